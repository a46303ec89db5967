"""The library of days: real loads of whole days, what is known about each, and their rates by the second.

`data/days.json` has a row for each load. Some files ship in `data/days`; the others are made of the published
originals by `rlscaler trace make`, and looked for in `$RLSCALER_DAYS` or `~/.local/share/rlscaler/days`. Every file
has the digest of its series in the index, and one with other content is refused.
"""

from __future__ import annotations

import json
import os
import zlib
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from rlscaler_loadgen.errors import TraceError
from rlscaler_loadgen.traces import Trace, read_trace
from rlscaler_rl.workloads.library import data_file
from rlscaler_rl.workloads.names import WorkloadError
from rlscaler_rl.workloads.originals import Recipe
from rlscaler_rl.workloads.seconds import draw_seconds, relative_variance

Float = NDArray[np.float64]

DAY = 86_400
VARIABLE = "RLSCALER_DAYS"


class Seconds(StrEnum):
    """Where the seconds of a load come from. Results on the two are never put into one figure."""

    RECORDED = "recorded"
    DRAWN = "drawn"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DayLoad(_Strict):
    """A row of the index."""

    what: str
    kind: str
    """What sends the requests: llm, web, database, ..."""
    group: str
    """Loads of one origin. A transfer split holds out whole groups."""
    fold: int
    """Which part of the transfer split tests this group; the same for all loads of it."""
    file: str
    ships: bool
    """Whether the file is in `data/days`."""
    source: str
    originals: tuple[str, ...]
    """Addresses of the published files."""
    licence: str
    bins: int
    width_s: float
    filled: int = 0
    """How many of the bins were missing and lie on a straight line between those around."""
    begin: str | None = None
    """When the first bin begins, ISO 8601 in the clock of `zone`; None where the source does not say."""
    zone: str | None = None
    weekday_known: bool = True
    """False where only the time of day of `begin` is known."""
    seconds: Seconds
    note: str = ""
    recipe: Recipe | None = None
    """How the original becomes the file; None where it ships only as it is."""
    digest: str

    @property
    def length_s(self) -> float:
        return self.bins * self.width_s

    @property
    def first_midnight_s(self) -> int:
        """Seconds from the begin of the load to the first midnight; 0 where the clock is not known."""
        if self.begin is None:
            return 0
        begin = datetime.fromisoformat(self.begin)
        midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
        return 0 if begin == midnight else round((midnight + timedelta(days=1) - begin).total_seconds())

    @property
    def days(self) -> int:
        """Whole days, from midnight to midnight where the clock is known."""
        return int((self.length_s - self.first_midnight_s) // DAY)


class _Index(_Strict):
    rule: str
    loads: dict[str, DayLoad]


@lru_cache(maxsize=1)
def day_loads() -> dict[str, DayLoad]:
    """The index, by name."""
    return _Index.model_validate(json.loads(data_file("days.json").read_text(encoding="utf-8"))).loads


def day_load(name: str) -> DayLoad:
    """One row of the index. Raises WorkloadError for a name that is not there."""
    try:
        return day_loads()[name]
    except KeyError:
        raise WorkloadError(f"{name}: no load of the library of days; there are {', '.join(day_loads())}") from None


def days_folder(folder: Path | None = None) -> Path:
    """Where files that do not ship are looked for: `folder`, else $RLSCALER_DAYS, else ~/.local/share/rlscaler/days."""
    if folder is not None:
        return folder
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "rlscaler" / "days"


def path_of(name: str, folder: Path | None = None) -> Path:
    """The file of a load, which need not be there."""
    load = day_load(name)
    return data_file("days") / load.file if load.ships else days_folder(folder) / load.file


def there(folder: Path | None = None) -> list[str]:
    """The loads whose files are there."""
    return [name for name in day_loads() if path_of(name, folder).is_file()]


@lru_cache(maxsize=8)
def day_trace(name: str, folder: Path | None = None) -> Trace:
    """The bins of a load as they are in its file. Raises WorkloadError where it is not there or is another series."""
    load, path = day_load(name), path_of(name, folder)
    if not path.is_file():
        where = " and ".join(load.originals) or load.source
        raise WorkloadError(f"{path}: no such file; fetch {where} and run `rlscaler trace make {name} FILE`")
    try:
        trace = read_trace(path)
    except TraceError as error:
        raise WorkloadError(str(error)) from error
    if trace.digest() != load.digest:
        raise WorkloadError(
            f"{path}: another series than the index knows (digest {trace.digest()[:12]}, not {load.digest[:12]}); "
            f"make it again with `rlscaler trace make {name} FILE`, or use it as a trace of your own"
        )
    return trace


class SecondsOf:
    """Requests/s of every second of a trace, for any stretch of it.

    The same second has the same rate however the stretch is chosen: drawn seconds come from blocks of about a day,
    each with a seed of its own. `measured_s` (begin, end): the part of the trace that the variance is measured on,
    which should be a part that is not judged.
    """

    def __init__(self, trace: Trace, name: str, measured_s: tuple[float, float], seed: int = 0) -> None:
        self.trace, self.name, self.seed = trace, name, seed
        self.drawn = trace.width_s > 1
        if self.drawn and trace.width_s != round(trace.width_s):
            raise WorkloadError(f"{name}: bins of {trace.width_s:g} s; give them a width of whole seconds")
        begin, end = (round(moment / trace.width_s) for moment in measured_s)
        self.variance = relative_variance(trace.rate[begin:end], trace.width_s) if self.drawn else 0.0
        """Relative variance of the rate inside a bin; 0 where nothing is drawn."""

    def rate(self, begin_s: int, end_s: int) -> Float:
        """(end_s - begin_s,) requests/s as recorded. Raises WorkloadError outside of the trace."""
        if not 0 <= begin_s < end_s <= self.trace.length_s:
            raise WorkloadError(
                f"{self.name}: seconds {begin_s} to {end_s} of a load that has {self.trace.length_s:g}; ask for less"
            )
        if not self.drawn:
            return self._whole()[begin_s:end_s]
        width = int(self.trace.width_s)
        size = -(-DAY // width)
        blocks = range(begin_s // (size * width), -(-end_s // (size * width)))
        drawn = np.concatenate([self._block(block, size, width) for block in blocks])
        skipped = begin_s - blocks[0] * size * width
        return drawn[skipped : skipped + end_s - begin_s]

    def _whole(self) -> Float:
        return self.trace.per_second()

    def _block(self, block: int, size: int, width: int) -> Float:
        rate = self.trace.rate
        bins = rate[block * size : (block + 1) * size]
        around = rate[[max(block * size - 1, 0), min(block * size + len(bins), len(rate) - 1)]]
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), self.seed, block])
        return draw_seconds(bins, width, self.variance, rng, around)
