"""The library of days: real loads of whole days, their parts for training and judging, and their rates by the second.

`data/days.json` has a row for each load. Some files ship in `data/days`; the others are made of the published
originals by `rlscaler trace make`, and looked for in `$RLSCALER_DAYS` or `~/.local/share/rlscaler/days`. Every file
has the digest of its series in the index, and one with other content is refused.

A load is rescaled by a percentile of its own train days, and the train days come first: nothing of a judged day reaches
a scale or a setting.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.workloads.library import data_file, data_home
from rlscaler_rl.workloads.names import Part, WorkloadError
from rlscaler_rl.workloads.originals import Recipe
from rlscaler_rl.workloads.recording import FRACTIONS, read_load, reference
from rlscaler_rl.workloads.seconds import draw_seconds, relative_variance

Float = NDArray[np.float64]

DAY = 86_400
VARIABLE = "RLSCALER_DAYS"

LEAST_DAYS = 3
"""A load with fewer whole days has no split: one day each to train, tune and test."""

NOMINAL_SHARE = 0.45
"""Part of the service's capacity that a load's reference rate needs: a jump to twice the busy hours needs all of it."""


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
    """Kind of the sender of the requests: llm, web, database, ..."""
    group: str
    """Loads of one origin. A transfer split holds out whole groups."""
    fold: int
    """Part of a split over groups that tests this group; the same for all loads of it."""
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
    """Number of bins that were missing and lie on a straight line between their neighbours."""
    begin: str | None = None
    """When the first bin begins, ISO 8601 in the clock of `zone`; None where the source does not say."""
    zone: str | None = None
    weekday_known: bool = True
    """False where only the time of day of `begin` is known."""
    seconds: Seconds
    note: str = ""
    recipe: Recipe | None = None
    """Recipe that makes the file of the original; None where it ships only as it is."""
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
    return folder or data_home(VARIABLE, "days")


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
    trace = read_load(path)
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
        # Blocks of about a day: a second has the same rate however the stretch is chosen.
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
        # The neighbouring bins go in, so that two blocks join without a step.
        around = rate[[max(block * size - 1, 0), min(block * size + len(bins), len(rate) - 1)]]
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), self.seed, block])
        return draw_seconds(bins, width, self.variance, rng, around)


@dataclass(frozen=True)
class Days:
    """Days of a load, each from midnight to midnight: `first` to `last`, the latter not included."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last))


def own_service(load: DayLoad) -> Mapping[Part, Days]:
    """Return train, tune and test days, one after the other: about `FRACTIONS` of the whole days, at least one of each.

    Raises WorkloadError for a load with fewer than `LEAST_DAYS`.
    """
    if load.days < LEAST_DAYS:
        raise WorkloadError(f"{load.file}: {load.days} whole days; at least {LEAST_DAYS} are needed, use a longer load")
    # Tests and tuning round down, so that short loads keep most of their days for training.
    test = max(math.floor(FRACTIONS[Part.TEST] * load.days), 1)
    tune = max(math.floor(FRACTIONS[Part.TUNE] * load.days), 1)
    train = load.days - tune - test
    return {
        Part.TRAIN: Days(0, train),
        Part.TUNE: Days(train, train + tune),
        Part.TEST: Days(train + tune, load.days),
    }


def span_s(load: DayLoad, days: Days) -> tuple[int, int]:
    """Begin and end of the days in seconds of the load."""
    begin = load.first_midnight_s
    return begin + days.first * DAY, begin + days.last * DAY


def before_test_s(load: DayLoad) -> tuple[int, int]:
    """Span that a load's scale and dispersion are measured on: everything up to the end of the train days."""
    return 0, span_s(load, own_service(load)[Part.TRAIN])[1]


def seconds_of_day_load(name: str, folder: Path | None = None, seed: int = 0) -> SecondsOf:
    """Return the seconds of a load of the library, its dispersion measured on its train days only."""
    return SecondsOf(day_trace(name, folder), name, before_test_s(day_load(name)), seed)


def reference_rps(name: str, folder: Path | None = None) -> float:
    """Return the recorded rate, in requests/s, that is not exceeded 99 % of the time of the load's train days."""
    trace = day_trace(name, folder)
    begin, end = (round(moment / trace.width_s) for moment in before_test_s(day_load(name)))
    return reference(trace.rate[begin:end], name)


def scale(reference_rps: float, capacity_rps: float, share: float = NOMINAL_SHARE) -> float:
    """Return the factor after which a load's reference rate needs `share` of the service's capacity at its largest."""
    if not (reference_rps > 0 and capacity_rps > 0 and share > 0):
        raise WorkloadError(
            f"reference {reference_rps:g} and capacity {capacity_rps:g} requests/s, share {share:g}; "
            "all have to be positive"
        )
    return share * capacity_rps / reference_rps
