"""The consumers of a group: the service rate of one of them, and whether the group has come to rest. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlscaler_core.decision.types import Bool, Float
from rlscaler_core.streams.tables import Look, Memory

BUSY_SECONDS = 3.0
"""A consumer has all the work it can do while messages of one of its partitions wait for longer."""

MEMORY_SECONDS = 60.0
"""Seconds under full load over which the service rate is a mean."""

SETTLE_SECONDS = 60.0
"""Longest time for which a group counts as coming to rest: one that never does is not waited for."""


def learn_service(memory: Memory, look: Look, before: Memory, age: Float, stuck: Bool) -> Memory:
    """Return the memory with the service rate of the busy consumers of this look, and with the assignment.

    The median over the consumers whose messages have waited for a while; a consumer that was given partitions a moment
    ago does not count. `age` (N, P) is the wait of messages, in seconds.
    """
    seen = memory.owner != -2
    changed = look.there & seen & (look.owner != memory.owner)
    changed_time = np.where(changed.any(axis=1), look.time, memory.changed_time)
    owner = np.where(look.there, look.owner, -2).astype(np.int32)
    memory = replace(memory, owner=owner, changed_time=changed_time)
    elapsed = np.nan_to_num(look.time - before.time[:, -1])
    usual = np.nan_to_num(memory.gap).max(axis=1, initial=0.0)
    rested = look.time - np.where(np.isnan(changed_time), memory.begun, changed_time) > 2 * usual + BUSY_SECONDS
    served, seconds = memory.served.copy(), memory.served_seconds.copy()
    for row in np.flatnonzero(look.stable & rested & (elapsed > 0)):
        mine = look.there[row] & (look.owner[row] >= 0) & ~stuck[row]
        if not mine.any():
            continue
        who = look.owner[row][mine]
        sums = np.bincount(who, np.nan_to_num(memory.rate[row][mine]))
        with np.errstate(invalid="ignore"):
            busy = np.bincount(who, age[row][mine] > BUSY_SECONDS) > 0
        if not (busy & (sums > 0)).any():
            continue
        rate = float(np.median(sums[busy & (sums > 0)]))
        weight = elapsed[row] / min(seconds[row] + elapsed[row], MEMORY_SECONDS)
        served[row] = rate if np.isnan(served[row]) else served[row] + min(weight, 1.0) * (rate - served[row])
        seconds[row] += elapsed[row]
    return replace(memory, served=served, served_seconds=seconds)


def settle(memory: Memory, look: Look, waits: Float) -> tuple[Memory, Bool]:
    """Return the memory, and where (N,) the group comes to rest.

    That is while a rebalance is under way, consumers that are ready have not joined, or a partition that changed hands
    has no commit since.

    `waits` (N, P) are the messages of each partition; one without any need not be committed. A group that does not come
    to rest within `SETTLE_SECONDS` counts as settled until it has: it is not waited for for ever.
    """
    with np.errstate(invalid="ignore"):
        behind = look.there & (waits > 0) & (look.owner >= 0) & ~(memory.commit_time > memory.changed_time[:, None])
    moving = ~look.stable | (look.members < look.ready) | (behind.any(axis=1) & ~np.isnan(memory.changed_time))
    since = np.where(moving, np.where(np.isnan(memory.moving_since), look.time, memory.moving_since), np.nan)
    with np.errstate(invalid="ignore"):
        settling = moving & (look.time - since <= SETTLE_SECONDS)
    return replace(memory, moving_since=since), settling
