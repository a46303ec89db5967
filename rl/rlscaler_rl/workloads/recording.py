"""A recorded load cut into parts by time, and the blocks that episodes are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_loadgen.errors import TraceError
from rlscaler_loadgen.traces import Fill, Trace, read_trace, write_trace
from rlscaler_rl.workloads.names import Part, WorkloadError

Float = NDArray[np.float64]

REFERENCE_PERCENTILE = 99.0
"""Percentile of the train part's rates that becomes the highest planned rate of the episodes."""

FRACTIONS = {Part.TRAIN: 0.6, Part.TUNE: 0.15, Part.TEST: 0.25}
"""Fractions of a trace's length that its parts have, in the order of time."""

PAST_SECONDS = 60
"""Seconds before a block whose mean rate its episode begins with."""


def read_load(path: Path, series: str | None = None, fill: Fill | None = None) -> Trace:
    """Read a recorded load (`traces.read_trace`). Raises WorkloadError naming file, line, column and remedy."""
    try:
        return read_trace(path, series, fill)
    except TraceError as error:
        raise WorkloadError(str(error)) from error


class Block(NamedTuple):
    """A stretch of a recording: `rate` (seconds,) requests/s as recorded, `past` the mean rate just before it."""

    rate: Float
    past: float


@dataclass(frozen=True, eq=False)
class Recording:
    """A recorded load. `pieces[part]`: stretches in the order of time, each (seconds,) requests/s."""

    name: str
    pieces: Mapping[Part, tuple[Float, ...]]
    reference: float
    """The recorded rate that is rescaled to the highest planned one."""

    def seconds(self, part: Part) -> int:
        return sum(map(len, self.pieces[part]))

    def count(self, part: Part, duration_seconds: int) -> int:
        """Number of blocks of this length that do not overlap."""
        return sum(len(piece) // duration_seconds for piece in self.pieces[part])

    def blocks(self, part: Part, duration_seconds: int) -> list[Block]:
        """All of them in the order of time. Raises WorkloadError where there are none."""
        blocks = [
            Block(piece[begin : begin + duration_seconds], _past(piece, begin))
            for piece in self.pieces[part]
            for begin in range(0, len(piece) - duration_seconds + 1, duration_seconds)
        ]
        if not blocks:
            longest = max(map(len, self.pieces[part]), default=0)
            raise WorkloadError(
                f"{self.name}: the {part} part has at most {longest} s in a row and the episode {duration_seconds} s; "
                "ask for shorter episodes or give a longer trace"
            )
        return blocks


def cut(trace: Trace, name: str) -> Recording:
    """A trace of one's own: train, tune and test parts one after the other (`FRACTIONS`).

    Raises WorkloadError for a trace whose train part has next to no traffic.
    """
    rate = trace.per_second()
    ends = np.rint(np.cumsum(list(FRACTIONS.values())) * len(rate)).astype(int)
    pieces = {part: (piece,) for part, piece in zip(FRACTIONS, np.split(rate, ends[:-1]), strict=True)}
    return Recording(name, pieces, reference(pieces[Part.TRAIN][0], name))


def split_file(trace: Trace, name: str, folder: Path) -> list[Path]:
    """Cut a trace into the files `name`-train.csv and so on, with their digests in `name`.split.json.

    Returns the paths. Raises WorkloadError for a part without traffic, and where a file cannot be written.
    """
    reference = cut(trace, name).reference
    ends = np.rint(np.cumsum(list(FRACTIONS.values())) * len(trace.rate)).astype(int)
    begins = [0, *ends[:-1].tolist()]
    parts, paths = {}, []
    for part, begin, end in zip(Part, begins, ends.tolist(), strict=True):
        piece = Trace(trace.rate[begin:end], trace.width_s, (*trace.comments, f"Part: {part}, bins {begin} to {end}"))
        if len(piece.rate) < 2 or not piece.rate.any():
            raise WorkloadError(
                f"{name}: its {part} part has {len(piece.rate)} bins or no traffic; give a longer trace"
            )
        paths.append(folder / f"{name}-{part}.csv")
        parts[part.value] = {"file": paths[-1].name, "bins": [begin, end], "digest": piece.digest()}
        try:
            write_trace(paths[-1], piece, digits=17)
        except OSError as error:
            raise WorkloadError(f"{paths[-1]}: {error.strerror}; name a folder that can be written by --out") from error
    rule = "by time: " + ", ".join(f"{part} {100 * share:g} %" for part, share in FRACTIONS.items())
    record = {"rule": rule, "digest": trace.digest(), "reference_rps": reference, "parts": parts}
    paths.append(folder / f"{name}.split.json")
    paths[-1].write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return paths


def reference(rate: Float, name: str) -> float:
    """The rate that is not exceeded 99 % of the time."""
    percentile = float(np.percentile(rate, REFERENCE_PERCENTILE)) if len(rate) else 0.0
    if percentile <= 0:
        raise WorkloadError(
            f"{name}: its train part, the first {100 * FRACTIONS[Part.TRAIN]:g} %, is silent 99 % of the time; "
            "choose a history with traffic from its beginning"
        )
    return percentile


def _past(piece: Float, begin: int) -> float:
    before = piece[max(begin - PAST_SECONDS, 0) : begin] if begin else piece[:PAST_SECONDS]
    return float(before.mean())
