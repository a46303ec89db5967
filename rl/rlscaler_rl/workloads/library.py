"""The five recorded workloads: samples that ship, or the full files in a folder of the user's.

`data/splits.json` has the cuts of each trace, made once, with the digest of every series. A file with other content is
refused, because its held-back part would be another.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.workloads.names import TRACES, Part, WorkloadError
from rlscaler_rl.workloads.recording import Recording, read_load

WHOLE = "all"
"""Key of a sample that is the whole trace."""

Span = tuple[int, int]
Float = NDArray[np.float64]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SampleFile(_Strict):
    """A file in `data/`: `seconds` of the trace from `begin_s` on."""

    file: str
    begin_s: int
    seconds: int
    digest: str


class Split(_Strict):
    """One trace: its origin, its cuts in seconds from its begin, and the samples that ship."""

    file: str
    """Name of the full trace's file, in a folder of the user's."""
    what: str
    source: str
    licence: str
    bins: int
    width_s: float
    digest: str
    reference_rps: float
    """99th percentile of the train part (of the whole, where nothing is for training)."""
    parts: dict[Part, tuple[Span, ...]] = {}
    folds: tuple[tuple[Span, ...], ...] = ()
    """The test part of every fold, instead of parts; the rest of the trace is the fold's tune part."""
    sample: dict[str, SampleFile]


class Splits(_Strict):
    """`data/splits.json`."""

    rule: str
    sample_rule: str
    traces: dict[str, Split]


@lru_cache(maxsize=1)
def splits() -> Splits:
    return Splits.model_validate(json.loads(data_file("splits.json").read_text(encoding="utf-8")))


def data_home(variable: str, name: str) -> Path:
    """Return where data that do not ship are looked for: the folder in the variable, or one of the user's data."""
    if chosen := os.environ.get(variable):
        return Path(chosen)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "rlscaler" / name


def data_file(name: str) -> Path:
    return Path(str(files("rlscaler_rl.workloads") / "data" / name))


@lru_cache(maxsize=16)
def recording(name: str, traces: Path | None = None, fold: int | None = None) -> Recording:
    """A recorded workload of `TRACES`, from the samples or from the full files in the folder `traces`.

    fold: of a trace that is cut into folds, which one is tested; None joins the folds for testing, and then there is
    nothing to tune on. Raises WorkloadError.
    """
    if name not in TRACES:
        raise WorkloadError(f"{name}: no recorded workload; there are {', '.join(TRACES)}")
    split = splits().traces[name]
    if fold is not None and not split.folds:
        raise WorkloadError(f"{name}: is cut by time and has no folds; leave the fold out")
    if fold is not None and not 0 <= fold < len(split.folds):
        raise WorkloadError(f"{name}: fold {fold}; there are 0 to {len(split.folds) - 1}")
    if traces is None and WHOLE not in split.sample:
        stretches = {part: (_sample(split.sample[part]).per_second(),) for part in Part}
        return Recording(name, stretches, split.reference_rps)
    rate = (_full(split, traces) if traces else _sample(split.sample[WHOLE])).per_second()
    spans = _folded(split, fold) if split.folds else split.parts
    pieces = {part: tuple(rate[begin:end] for begin, end in spans[part]) for part in Part}
    return Recording(name, pieces, split.reference_rps)


def wholes() -> list[str]:
    """Return the recorded workloads of which every second ships."""
    return [name for name, split in splits().traces.items() if WHOLE in split.sample]


def whole(name: str) -> Float:
    """Return every second of one of `wholes`, in requests/s."""
    return _sample(splits().traces[name].sample[WHOLE]).per_second()


def recorded_part(name: str, part: Part, traces: Path | None = None, fold: int | None = None) -> Recording:
    """`recording`, or WorkloadError where it has no such part."""
    folds = len(splits().traces[name].folds)
    if folds and (part == Part.TRAIN or (part == Part.TUNE and fold is None)):
        remedy = "train on the others" if part == Part.TRAIN else f"name one of the folds 0 to {folds - 1}"
        raise WorkloadError(f"{name}: has no {part} part, it is held out of training and cut into folds; {remedy}")
    return recording(name, traces, fold)


def blocks(
    name: str | Recording,
    part: Part,
    duration_seconds: int = 600,
    *,
    traces: Path | None = None,
    fold: int | None = None,
) -> int | None:
    """Number of stretches of a recorded workload that do not overlap; None for drawn workloads, which have no end."""
    if isinstance(name, Recording):
        return name.count(Part(part), duration_seconds)
    return recorded_part(name, Part(part), traces, fold).count(Part(part), duration_seconds) if name in TRACES else None


def _folded(split: Split, fold: int | None) -> dict[Part, Any]:
    if fold is None:
        return {Part.TRAIN: (), Part.TUNE: (), Part.TEST: tuple(sorted(sum(split.folds, ())))}
    others = tuple(sorted(sum((spans for i, spans in enumerate(split.folds) if i != fold), ())))
    return {Part.TRAIN: (), Part.TUNE: others, Part.TEST: split.folds[fold]}


def _sample(sample: SampleFile) -> Trace:
    return _known(data_file(sample.file), sample.digest)


def _full(split: Split, folder: Path) -> Trace:
    path = folder / split.file
    if not path.is_file():
        raise WorkloadError(f"{path}: no such file; the folder must hold {split.file} from {split.source}")
    return _known(path, split.digest)


def _known(path: Path, digest: str) -> Trace:
    trace = read_load(path)
    if trace.digest() != digest:
        raise WorkloadError(
            f"{path}: not the series that was cut into train, tune and test parts (digest {trace.digest()[:12]}, "
            f"recorded {digest[:12]}); fetch the original again, or use it as a trace of your own under another name"
        )
    return trace
