"""Variables of groups while they are played: pods, membership, the owner of each partition, and its position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Int, Rows
from rlscaler_rl.simulation.streams.groups import MOMENTS, Groups
from rlscaler_rl.simulation.streams.protocols import NOBODY, PROTOCOLS, in_ranges

EMPTY, STARTING, RUNNING, SILENT = range(4)
"""Kinds of a slot: no pod, one in its cold start, a consumer, or a consumer that died and that its group still counts
as a member."""

SLOTS_EACH = 4
"""Slots for each replica that there can be: silent members stay for a session."""

NEVER = np.inf

HEARTBEATS = np.array([protocol.heartbeat_seconds for protocol in PROTOCOLS])
BROKER_SHARES = np.array([protocol.broker_shares for protocol in PROTOCOLS])


@dataclass(slots=True)
class State(Rows):
    """Rows of groups; M slots of pods, P partitions. Times are seconds since the begin, `NEVER` where none is set."""

    time: Float  # (N,)
    target: Int  # (N,) replicas asked for
    created: Int  # (N,) pods ever, the initial ones included
    moments: Int  # (N,) how many of `Groups.drawn` were used for moments within batches
    pod: Int  # (N, M) `EMPTY` and so on
    number: Int  # (N, M) of the pod, in the order in which pods were created
    ordered_at: Float  # (N, M) when it was ordered
    ready_at: Float  # (N, M) when a starting pod's consumer starts
    joins_at: Float  # (N, M) when it asks to become a member
    member: Bool  # (N, M)
    beat: Float  # (N, M) the moment of one heartbeat, from which the others follow
    asked: Float  # (N, M) when it asks, or will ask, to join the round under way; `NEVER` = it does not take part
    gone_at: Float  # (N, M) when the group notices that a silent member is gone
    busy: Float  # (N, M) share of the last step that it worked
    round_end: Float  # (N,) when all members know their partitions; `NEVER` = no round is under way, or it has no end
    generation: Int  # (N,) rebalances so far
    owner: Int  # (N, P) slot of the member that reads the partition, or `NOBODY`
    heir: Int  # (N, P) slot of the member that will read it, where the broker shares; `NOBODY` = the owner stays
    given_up: Bool  # (N, P) its owner gives it up in the round that is under way
    stop_from: Float  # (N, P) the last stop of its reading: from when
    stop_until: Float  # (N, P) and until when
    end: Float  # (N, P) offset of the next message that will be written
    position: Float  # (N, P) offset that is read next; falls back to the commit after an owner that went silent
    reached: Float  # (N, P) the highest position so far: the messages below were processed at least once
    committed: Float  # (N, P) offset that the group will begin with
    commits_at: Float  # (N, P) when the next commit is due
    distinct: Float  # (N,) messages that were processed for the first time
    worked: Float  # (N,) messages that were processed, those again included
    repeated: Float  # (N,) messages that were processed again
    departed: Int  # (N,) members that went without a word
    billed: Float  # (N,) consumer-seconds of pods that exist
    ready_seconds: Float  # (N,) consumer-seconds of consumers that run
    reading_seconds: Float  # (N,) consumer-seconds of those that have a partition to read


def begin(groups: Groups) -> State:
    """N groups at rest: the initial consumers are members, with whole partitions as equal in number as can be."""
    n, columns = groups.share.shape
    slots = SLOTS_EACH * int(groups.max_replicas.max())
    place = np.arange(slots)
    there = place < groups.initial[:, None]
    beat = HEARTBEATS[groups.protocol][:, None] * groups.drawn[:, MOMENTS, :1]
    own_beat = HEARTBEATS[groups.protocol][:, None] * groups.drawn[:, MOMENTS, 1 : 1 + slots]
    owner = np.full((n, columns), NOBODY, np.int32)
    for row, (partitions, consumers) in enumerate(zip(groups.partitions, groups.initial, strict=True)):
        owner[row, :partitions] = in_ranges(int(partitions), range(int(consumers)))
    commits = groups.drawn[:, MOMENTS, -columns:] * groups.commit_seconds[:, None]

    def floats(*shape: int, value: float = 0.0) -> Float:
        return np.full((n, *shape), value)

    return State(
        time=floats(),
        target=groups.initial.copy(),
        created=groups.initial.copy(),
        moments=np.full(n, 1 + slots, np.int32),
        pod=np.where(there, RUNNING, EMPTY).astype(np.int32),
        number=np.where(there, place, -1).astype(np.int32),
        ordered_at=floats(slots),
        ready_at=floats(slots, value=NEVER),
        joins_at=floats(slots, value=NEVER),
        member=there,
        beat=np.where(BROKER_SHARES[groups.protocol][:, None], own_beat, beat),
        asked=floats(slots, value=NEVER),
        gone_at=floats(slots, value=NEVER),
        busy=floats(slots),
        round_end=floats(value=NEVER),
        generation=np.zeros(n, np.int32),
        owner=owner,
        heir=np.full((n, columns), NOBODY, np.int32),
        given_up=np.zeros((n, columns), np.bool_),
        stop_from=floats(columns, value=-NEVER),
        stop_until=floats(columns, value=-NEVER),
        end=floats(columns),
        position=floats(columns),
        reached=floats(columns),
        committed=floats(columns),
        commits_at=commits,
        distinct=floats(),
        worked=floats(),
        repeated=floats(),
        departed=np.zeros(n, np.int32),
        billed=floats(),
        ready_seconds=floats(),
        reading_seconds=floats(),
    )


def settled(groups: Groups, state: State) -> Bool:
    """(N,) groups of which no member waits for a partition or is told to give one up."""
    moving = np.logical_or.reduce(state.heir != NOBODY, axis=1)
    in_round = np.logical_or.reduce(state.asked < NEVER, axis=1)
    return np.where(BROKER_SHARES[groups.protocol], ~moving, ~in_round)


def running_owner(state: State) -> Bool:
    """(N, P) partitions of which the owner's consumer runs."""
    owner = np.maximum(state.owner, 0)
    running: Bool = (state.owner != NOBODY) & (np.take_along_axis(state.pod, owner, axis=1) == RUNNING)
    return running
