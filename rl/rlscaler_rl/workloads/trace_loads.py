"""Recorded loads for training: any stretch of the train parts, at any level the caller asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.workloads.library import recording
from rlscaler_rl.workloads.names import HELD_OUT, TRACES, Part, WorkloadError
from rlscaler_rl.workloads.recording import Recording

SPEED_SHARE = 0.3
"""Share of the rows that are replayed faster or slower than recorded."""

SPEED = (0.5, 2.0)
"""Bounds of the log-uniform speed at which these rows are replayed."""


class TraceLoads:
    """Stretches of one part of recorded loads, the train part unless told otherwise.

    recordings: by default all of `TRACES` but the one held out, each as likely as the others.
    """

    def __init__(
        self, part: Part = Part.TRAIN, *, recordings: Sequence[Recording] | None = None, traces: Path | None = None
    ) -> None:
        if recordings is None:
            recordings = [recording(name, traces) for name in TRACES if name != HELD_OUT]
        self.names = [recorded.name for recorded in recordings]
        self._pieces = [pieces_of(recorded, part) for recorded in recordings]

    def draw(self, n: int, seconds: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """(n, seconds) in units in which the recording's 99th percentile is 1; every draw comes from `rng`.

        A row begins anywhere in its piece and goes on at the piece's begin where it ends.
        """
        return cut(self._pieces, n, seconds, SPEED, SPEED_SHARE, rng)[0]


def cut(
    pieces_of_each: Sequence[Sequence[NDArray[np.float32]]],
    n: int,
    seconds: int,
    speed: tuple[float, float],
    speed_share: float,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Cut stretches (n, seconds) from recordings given by their pieces, each recording as likely as the others.

    A stretch begins anywhere in its piece and goes on at the piece's begin where it ends; `speed_share` of them are
    replayed at a log-uniform `speed`. Also gives which recording (n,) each is from.
    """
    which = rng.integers(len(pieces_of_each), size=n)
    start, choice = rng.random(n), rng.random(n)
    paces = np.exp(rng.uniform(math.log(speed[0]), math.log(speed[1]), n))
    paces = np.where(rng.random(n) < speed_share, paces, 1.0)
    # A faster replay leaves seconds out, a slower one repeats them.
    ticks = np.floor(np.arange(seconds) * paces[:, None]).astype(np.int64)
    loads = np.empty((n, seconds), np.float32)
    for i, pieces in enumerate(pieces_of_each):
        rows = np.flatnonzero(which == i)
        ends = np.cumsum([len(piece) for piece in pieces])
        # Pieces are chosen in proportion to their length.
        picked = np.searchsorted(ends, choice[rows] * ends[-1], side="right")
        for j, piece in enumerate(pieces):
            chosen = rows[picked == j]
            begin = (start[chosen] * len(piece)).astype(np.int64)
            loads[chosen] = piece[(begin[:, None] + ticks[chosen]) % len(piece)]
    return loads, which


def pieces_of(recorded: Recording, part: Part) -> list[NDArray[np.float32]]:
    """The pieces of a part relative to the recording's 99th percentile. Raises WorkloadError where there is none."""
    pieces = [(piece / recorded.reference).astype(np.float32) for piece in recorded.pieces[part] if len(piece)]
    if not pieces:
        raise WorkloadError(f"{recorded.name}: has no {part} part; leave it out of the loads that are trained on")
    return pieces
