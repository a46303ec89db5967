"""A recorded load cut into parts by time, and the blocks that episodes are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.workloads.errors import WorkloadError
from rlscaler_rl.workloads.names import Part

Float = NDArray[np.float64]

REFERENCE_PERCENTILE = 99.0
"""Of the train part; episodes are rescaled so that it becomes their highest planned rate."""

FRACTIONS = {Part.TRAIN: 0.6, Part.TUNE: 0.15, Part.TEST: 0.25}
"""Of a trace's length, in the order of time."""

PAST_SECONDS = 60
"""The mean rate of this long before a block is what its episode begins with."""


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
        """How many blocks of this length there are, none overlapping another."""
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


def reference(rate: Float, name: str) -> float:
    """The rate that is not exceeded 99 % of the time."""
    found = float(np.percentile(rate, REFERENCE_PERCENTILE)) if len(rate) else 0.0
    if found <= 0:
        raise WorkloadError(
            f"{name}: its train part, the first {100 * FRACTIONS[Part.TRAIN]:g} %, is silent 99 % of the time; "
            "choose a history with traffic from its beginning"
        )
    return found


def _past(piece: Float, begin: int) -> float:
    before = piece[max(begin - PAST_SECONDS, 0) : begin] if begin else piece[:PAST_SECONDS]
    return float(before.mean())
