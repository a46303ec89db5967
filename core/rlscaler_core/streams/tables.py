"""Arrays that go into `measure`: one look at the broker, and the memory from one look to the next.

A row is one consumer group, a column of the second axis one partition of its topics; rows with fewer partitions are
padded, `there` False. Missing data is NaN, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Int, Rows

SHORTEST_SECONDS = 1e-3
"""A rate is not taken over less time: looks that follow each other so closely say nothing of it."""

SLOTS = 128
"""Looks whose end offsets are remembered: two minutes at one look a second."""


@dataclass(slots=True)
class Look(Rows):
    """Offsets and members at one look at the broker."""

    time: Float  # (N,) seconds, any epoch, rising
    there: Bool  # (N, P) the partition exists
    renewed: Bool  # (N, P) its topic was deleted and made again since the last look
    start: Float  # (N, P) offset of the oldest message that is kept; NaN = not known
    end: Float  # (N, P) offset of the next message that will be written; NaN = not known
    committed: Float  # (N, P) offset of the next message that the group will read; NaN = nothing was committed
    owner: Int  # (N, P) number of the member that reads the partition; -1 where no member does
    members: Int  # (N,) members of the group
    ready: Int  # (N,) consumers that run and should be members of it; 0 = not known
    stable: Bool  # (N,) no rebalance is under way
    earliest: Bool  # (N,) where nothing was committed the group begins with the oldest message, else with the next one


@dataclass(slots=True)
class Memory(Rows):
    """Memory of the looks before."""

    time: Float  # (N, SLOTS) of the looks, oldest first; NaN = empty
    end: Float  # (N, P, SLOTS) end offsets at these times; NaN = empty
    begun: Float  # (N,) time of the first look; NaN = none yet
    committed: Float  # (N, P) as last seen; NaN = nothing was committed
    commit_time: Float  # (N, P) when that was committed, as far as looks can tell; NaN = before the first look
    gap: Float  # (N, P) usual seconds between two commits; NaN = not known yet
    rate: Float  # (N, P) messages/s between commits; NaN = not known yet
    baseline: Float  # (N, P) end offset when the partition was first seen without a commit; NaN = it has one
    baseline_time: Float  # (N, P) and when that was
    traffic_time: Float  # (N, P) when a message was last seen to arrive; NaN = never
    owner: Int  # (N, P) as last seen; -2 = no look yet
    changed_time: Float  # (N,) when members or their partitions last changed; NaN = they have not
    moving_since: Float  # (N,) when the group began to come to rest; NaN = it has
    served: Float  # (N,) messages/s of a consumer that had all the work it could do; NaN = none had it yet
    served_seconds: Float  # (N,) for which that was seen


def initial_memory(n: int, partitions: int) -> Memory:
    """Return N rows that remember nothing, of P = `partitions`."""

    def empty(*shape: int) -> Float:
        return np.full((n, *shape), np.nan)

    return Memory(
        time=empty(SLOTS),
        end=empty(partitions, SLOTS),
        begun=empty(),
        committed=empty(partitions),
        commit_time=empty(partitions),
        gap=empty(partitions),
        rate=empty(partitions),
        baseline=empty(partitions),
        baseline_time=empty(partitions),
        traffic_time=empty(partitions),
        owner=np.full((n, partitions), -2, np.int32),
        changed_time=empty(),
        moving_since=empty(),
        served=empty(),
        served_seconds=np.zeros(n),
    )


def with_partitions(memory: Memory, partitions: int) -> Memory:
    """Return the memory with room for `partitions`, at least as many as it has: topics grow."""
    more = partitions - memory.committed.shape[1]
    if more <= 0:
        return memory
    room = initial_memory(len(memory), more)
    grown = {
        name: np.concatenate([getattr(memory, name), getattr(room, name)], axis=1)
        for name in (
            "end",
            "committed",
            "commit_time",
            "gap",
            "rate",
            "baseline",
            "baseline_time",
            "traffic_time",
            "owner",
        )
    }
    return replace(memory, **grown)
