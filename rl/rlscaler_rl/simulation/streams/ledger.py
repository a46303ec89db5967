"""The ledger of a run of groups: its counters, the invariants without which its figures are void, and its price."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Float, Rows
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.ledger import RELATIVE_TOLERANCE, at_most, equal, holds
from rlscaler_rl.simulation.objectives import NOMINAL_SIZE
from rlscaler_rl.simulation.streams.groups import Groups
from rlscaler_rl.simulation.streams.state import State


@dataclass(slots=True)
class StreamLedger(Rows):
    """Raw counters, one row per group."""

    seconds: Float  # (N,)
    written: Float  # (N,) messages
    waiting: Float  # (N,) messages that were never processed
    distinct: Float  # (N,) messages that were processed, each counted once
    worked: Float  # (N,) messages that were processed, those again included
    repeated: Float  # (N,) messages that were processed again
    departed: Float  # (N,) members that went without a word, after which messages are read again
    consumer_seconds: Float  # (N,) of every pod that exists, also while it starts
    ready_seconds: Float  # (N,) of consumers that run
    reading_seconds: Float  # (N,) of those that have a partition to read
    rebalances: Float  # (N,) generations of the group


def read(state: State) -> StreamLedger:
    """The ledger as it stands, copied."""
    return StreamLedger(
        seconds=state.time.copy(),
        written=state.end.sum(axis=1),
        waiting=(state.end - state.reached).sum(axis=1),
        distinct=state.distinct.copy(),
        worked=state.worked.copy(),
        repeated=state.repeated.copy(),
        departed=state.departed.astype(np.float64),
        consumer_seconds=state.billed.copy(),
        ready_seconds=state.ready_seconds.copy(),
        reading_seconds=state.reading_seconds.copy(),
        rebalances=state.generation.astype(np.float64),
    )


def check(ledger: StreamLedger, groups: Groups, steps: int) -> StreamLedger:
    """The ledger itself after so many steps, or LedgerError naming the broken invariant and the first row."""
    arrived = groups.arrivals[:, :, :steps].sum(axis=(1, 2), dtype=np.float64)
    rate = groups.rate
    equal("messages in = arrivals of the load", ledger.written, arrived)
    equal("messages in = processed distinct + waiting", ledger.written, ledger.distinct + ledger.waiting)
    equal("processed = distinct + again", ledger.worked, ledger.distinct + ledger.repeated)
    at_most("work takes its time of consumers that read", ledger.worked / rate, ledger.reading_seconds)
    at_most("consumers that read run", ledger.reading_seconds, ledger.ready_seconds)
    at_most("consumers that run are billed", ledger.ready_seconds, ledger.consumer_seconds)
    at_most(
        "what waits is at least what no consumer had time for", arrived - rate * ledger.ready_seconds, ledger.waiting
    )
    unread = (ledger.repeated <= RELATIVE_TOLERANCE) | (ledger.departed > 0)
    repeated = np.stack([ledger.repeated, ledger.departed], axis=1)
    holds("messages again only after a member went without a word", unread, repeated)
    counters = np.stack([ledger.waiting, ledger.repeated], axis=1)
    holds("no counter below 0", (counters >= -1e-6).all(axis=1), counters)
    return ledger


def consumer_price(groups: Groups) -> Float:
    """(N,) share of J of a consumer that exists for the whole load; `max_replicas` of them cost `NOMINAL_SIZE`."""
    return np.asarray(NOMINAL_SIZE / groups.max_replicas, np.float64)


def j_of(groups: Groups, consumer_seconds: Float, left: Float, late_percent: Float) -> Float:
    """(N,) J of a group: cost + `LATE_WEIGHT` * late percent, as of a service whose only pool it is."""
    # Messages left at the load's end cost the consumer-seconds that they will take: no contender gains by leaving them.
    consumers = (consumer_seconds + left / groups.rate) / groups.seconds
    return np.asarray(consumer_price(groups) * consumers + LATE_WEIGHT * late_percent, np.float64)
