"""The sawtooth of commits: how far a group has read between two of them. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlscaler_core.decision.types import Bool, Float
from rlscaler_core.streams.tables import SHORTEST_SECONDS, Look, Memory

SMOOTHING = 0.5
"""Weight of the newest interval between two commits."""

CARRIED_GAPS = 1.0
"""A position is carried on for so many usual times between commits, and a look more."""

SILENT_GAPS = 2.0
"""Where the next commit stays away for so many, and two looks more, nothing is carried on: the readers may be gone."""


def note_commits(memory: Memory, look: Look, looked_before: Float) -> tuple[Memory, Bool]:
    """Return the memory with the commits of a look, and where (N, P) the group was set back.

    `looked_before` (N,) is the time of the look before; NaN = there was none. A commit was made between the two looks.
    """
    new, old = look.committed, memory.committed
    now = np.broadcast_to(look.time[:, None], new.shape)
    with np.errstate(invalid="ignore"):
        ahead, back = new > old, (new < old) | (np.isnan(new) & ~np.isnan(old))
    first = ~np.isnan(new) & np.isnan(old) & ~np.isnan(memory.baseline)
    middle = (now + np.where(np.isnan(looked_before), look.time, looked_before)[:, None]) / 2
    gap = middle - memory.commit_time
    timed = ahead & (gap >= SHORTEST_SECONDS)
    rate = np.where(timed, (new - old) / np.where(timed, gap, 1.0), np.nan)
    memory = replace(
        memory,
        committed=new,
        commit_time=np.where(ahead | first, middle, np.where(back, np.nan, memory.commit_time)),
        gap=np.where(timed, _smooth(memory.gap, gap), np.where(back, np.nan, memory.gap)),
        rate=np.where(timed, _smooth(memory.rate, rate), np.where(back, np.nan, memory.rate)),
    )
    never = np.isnan(new) & look.there
    begins = never & np.isnan(memory.baseline)
    memory = replace(
        memory,
        baseline=np.where(never, np.where(begins, look.end, memory.baseline), np.nan),
        baseline_time=np.where(never, np.where(begins, now, memory.baseline_time), np.nan),
    )
    return memory, back


def _smooth(old: Float, new: Float) -> Float:
    return np.where(np.isnan(old), new, old + SMOOTHING * (new - old))


def position(memory: Memory, look: Look) -> Float:
    """Return the offset (N, P) that the group has read to, at least its commit; NaN where it has committed nothing."""
    since = look.time[:, None] - memory.commit_time
    carried = np.clip(since, 0.0, CARRIED_GAPS * memory.gap + _beat(memory)[:, None])
    return look.committed + _rate(memory, look) * np.nan_to_num(carried)


def processed(memory: Memory, look: Look) -> Float:
    """Return the messages/s (N,) that the group reads, by its commits; NaN until a partition has two commits."""
    known = (look.there & ~np.isnan(memory.rate)).any(axis=1)
    return np.where(known, np.where(look.there, _rate(memory, look), 0.0).sum(axis=1), np.nan)


def _rate(memory: Memory, look: Look) -> Float:
    """Return the messages/s (N, P) between the last commits; 0 where the next one stays away for too long."""
    since = look.time[:, None] - memory.commit_time
    reads = (since <= SILENT_GAPS * (memory.gap + _beat(memory)[:, None])) & ~np.isnan(memory.rate)
    return np.where(reads, np.nan_to_num(memory.rate), 0.0)


def _beat(memory: Memory) -> Float:
    """Return the seconds (N,) between the last two looks; 0 where there was one only."""
    return np.nan_to_num(memory.time[:, -1] - memory.time[:, -2])
