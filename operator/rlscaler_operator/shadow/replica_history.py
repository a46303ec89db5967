"""The last minute or two of a service's replicas: arrivals are known late, and meet the replicas of back then. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Int, Rows
from rlscaler_core.queueing.fluid import Running

LENGTH = 32
SPACING_SECONDS = 4.0
"""Moments closer than this replace one another, so that two minutes fit."""


@dataclass(slots=True)
class ReplicaHistory(Rows):
    """N rows, newest moment last; NaN = nothing yet."""

    time: Float  # (N, LENGTH)
    spec: Int  # (N, LENGTH, 2)
    ready: Int  # (N, LENGTH, 2)
    share: Float  # (N, LENGTH, 2)


def empty_history(n: int) -> ReplicaHistory:
    counts = np.zeros((n, LENGTH, 2), np.int32)
    return ReplicaHistory(np.full((n, LENGTH), np.nan), counts, counts.copy(), np.zeros((n, LENGTH, 2)))


def with_newest(history: ReplicaHistory, time: Float, now: Running) -> ReplicaHistory:
    """Return the history with the replicas of `time` (N,) at its end."""
    # The moment before the newest stays put, so that moments that replace one another cannot replace for ever.
    crowded = time - history.time[:, -2] < SPACING_SECONDS
    return replace(
        history,
        time=_shifted(history.time, time, crowded),
        spec=_shifted(history.spec, now.spec, crowded),
        ready=_shifted(history.ready, now.ready, crowded),
        share=_shifted(history.share, now.share, crowded),
    )


def _shifted(column: Any, newest: Any, crowded: Bool) -> Any:
    moved = np.empty_like(column)
    moved[:, :-1] = column[:, 1:]
    moved[crowded, :-1] = column[crowded, :-1]
    moved[:, -1] = newest
    return moved


def replicas_at(history: ReplicaHistory, time: Float) -> Running:
    """Return the replicas of `time` (N,), or the oldest that are known."""
    known = ~np.isnan(history.time)
    past = known & (history.time <= time[:, None])
    # argmax finds the first True: on the reversed columns that is the newest moment.
    newest = LENGTH - 1 - past[:, ::-1].argmax(axis=1)
    oldest = known.argmax(axis=1)
    place = np.where(past.any(axis=1), newest, oldest)
    rows = np.arange(len(time))
    return Running(history.spec[rows, place], history.ready[rows, place], history.share[rows, place])
