"""The ledger of a run: its counters, and the invariants that tie them to one another.

A wrong counter can make any contender win with tight confidence intervals, and no statistics catches it. So every run
ends with `check`, and its figures are void when it raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Rows
from rlscaler_rl.simulation.cluster import BLOCK, BUCKETS_SECONDS, ClusterState
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.simulation.tables import CVS

Float = NDArray[np.float64]

RELATIVE_TOLERANCE = 1e-6


class LedgerError(AssertionError):
    """The counters contradict one another, so every figure of the run is void. The message names the invariant."""


@dataclass(slots=True)
class Ledger(Rows):
    """Raw counters, one row per episode, pools in the order (GPU, CPU)."""

    seconds: Float  # (N,)
    requests: Float  # (N,) received
    in_time: Float  # (N,) answered within the SLO
    late: Float  # (N,) answered after the SLO
    dropped: Float  # (N,) refused, no ready pod, or given up by the client
    queued: Float  # (N,) neither answered nor dropped at the end
    overdue: Float  # (N,) those of them that will be late or dropped
    work: Float  # (N, 2) requests worked off, whether or not their clients waited for it
    busy: Float  # (N, 2) replica-seconds that billed pods worked: at the request level with service times as drawn
    billed: Float  # (N, 2) replica-seconds
    start_billed: Float  # (N, 2) replica-seconds that starts cost beside
    ready_seconds: Float  # (N, 2)
    pending_seconds: Float  # (N, 2)
    asked: Float  # (N, 2) replica-seconds of the targets as they were set; NaN if not followed
    ready_limit: Float  # (N, 2) most ready replica-seconds the targets allow (`ready_limit`); infinite if not followed
    created: Float  # (N, 2) pods ever, the initial ones included
    target: Float  # (N, 2) replicas asked for at the end
    ready: Float  # (N, 2) at the end
    pending: Float  # (N, 2) at the end
    answered: (
        Float  # (N, BUCKETS + 1) by latency, cumulative, the last all; NaN at the fluid level, where it is derived
    )

    def cost(self, price_ratio: Float) -> Float:
        """(N,) mean billed GPU replica equivalents; `price_ratio` (N,) is CPU over GPU."""
        billed = self.billed + self.start_billed
        return np.asarray((billed[:, 0] + price_ratio * billed[:, 1]) / self.seconds)

    def late_percent(self) -> Float:
        """(N,) % of all requests that were late or dropped, or will be when the episode ends before them."""
        missed = self.late + self.dropped + self.overdue
        return np.asarray(100 * missed / np.maximum(self.requests, 1.0))


def read(cluster: ClusterState) -> Ledger:
    """The ledger as it stands, copied."""
    row, pool = cluster.row, cluster.pool
    return Ledger(
        seconds=row["time"].astype(np.float64),
        requests=row["requests"].copy(),
        in_time=row["in_time"].copy(),
        late=row["late"].copy(),
        dropped=row["dropped"].copy(),
        queued=pool["queue"].sum(1),
        overdue=pool["overdue"].sum(1),
        work=pool["work"].copy(),
        busy=pool["busy_seconds"].copy(),
        billed=pool["billed"].copy(),
        start_billed=pool["start_billed"].copy(),
        ready_seconds=pool["ready_seconds"].copy(),
        pending_seconds=pool["pending_seconds"].copy(),
        asked=np.full(pool.shape, np.nan),
        ready_limit=np.full(pool.shape, np.inf),
        created=pool["created"].astype(np.float64),
        target=pool["target"].astype(np.float64),
        ready=pool["ready"].astype(np.float64),
        pending=pool["waiting"].astype(np.float64),
        answered=np.where(cluster.blocks.shape[1], np.nan, cluster.histogram.astype(np.float64)),
    )


def ready_limit(targets: NDArray[Any], tick_seconds: int, scenarios: Scenarios) -> Float:
    """(N, 2) most replica-seconds that can have been ready, from the targets (K, N, 2) of K ticks alone.

    A pod that is ready was asked for one cold start ago and ever since: as many can be ready as the lowest target over
    the shortest cold start before, and no more than the nodes have room for.
    """
    targeted = np.concatenate([scenarios.initial[None], np.repeat(targets, tick_seconds, axis=0)])
    limit = np.zeros(scenarios.initial.shape)
    seconds = np.ceil(np.maximum(scenarios.cold_start_low, 1)).astype(int)
    for row, pool in np.ndindex(*limit.shape):
        window = min(int(seconds[row, pool]), len(targeted) - 1)
        past = np.concatenate([np.full(window - 1, targeted[0, row, pool]), targeted[:, row, pool]])
        lowest = np.lib.stride_tricks.sliding_window_view(past, window).min(axis=1)
        room = max(scenarios.schedulable[row, pool], scenarios.initial[row, pool])
        limit[row, pool] = np.minimum(lowest[1:], room).sum()
    return limit


def check(ledger: Ledger, scenarios: Scenarios) -> Ledger:
    """The ledger itself, or LedgerError naming the broken invariant and the first row that breaks it."""
    counted = np.arange(scenarios.arrivals.shape[1]) < ledger.seconds[:, None]
    equal("requests in = arrivals of the scenario", ledger.requests, (scenarios.arrivals * counted).sum(1))
    accounted = ledger.in_time + ledger.late + ledger.dropped + ledger.queued
    equal("requests in = in time + late + dropped + queued", ledger.requests, accounted)
    equal("billed = ready + pending replica-seconds", ledger.billed, ledger.ready_seconds + ledger.pending_seconds)
    equal("billed = targets over time", ledger.billed, np.where(np.isnan(ledger.asked), ledger.billed, ledger.asked))
    started = (ledger.created - scenarios.initial) * scenarios.start_seconds
    equal("billed for starts = started pods x their price", ledger.start_billed, started)
    equal("ready + pending = target", ledger.ready + ledger.pending, ledger.target)
    bounded = (ledger.target >= scenarios.min_replicas) & (ledger.target <= scenarios.max_replicas)
    holds("min_replicas <= target <= max_replicas", (bounded | ~scenarios.present).all(1), ledger.target)
    prices = np.stack([np.ones(len(ledger)), scenarios.price_ratio], axis=1)
    floor = (ledger.busy * prices).sum(1) / ledger.seconds
    cost = ledger.cost(scenarios.price_ratio)
    holds("cost >= busy replica-seconds x price", cost >= floor * (1 - RELATIVE_TOLERANCE), np.stack([cost, floor], 1))
    at_most("busy <= ready replica-seconds", ledger.busy, ledger.ready_seconds)
    at_most("ready replica-seconds <= what cold starts allow", ledger.ready_seconds, ledger.ready_limit)
    room = np.maximum(scenarios.schedulable, scenarios.initial)
    at_most("ready <= what the nodes have room for", ledger.ready, room)
    at_most("answered <= worked off", ledger.in_time + ledger.late, ledger.work.sum(1))
    apart = np.abs(ledger.work / scenarios.rps - ledger.busy)
    at_most("work takes its service time", apart, work_tolerance(ledger, scenarios))
    low, high = in_time_limits(ledger, scenarios)
    at_most("in time >= answered in the buckets up to the SLO", low, ledger.in_time)
    at_most("in time <= answered in the buckets from the SLO", ledger.in_time, high)
    counters = [ledger.in_time, ledger.late, ledger.dropped, ledger.queued]
    holds("no counter below 0", (np.stack(counters) >= -1e-6).all(0), np.stack(counters, 1))
    return ledger


def work_tolerance(ledger: Ledger, scenarios: Scenarios) -> Float:
    """(N, 2) seconds that work x mean service time may differ from the seconds worked: the sum of drawn service times
    (six standard deviations), and the last request of every pod, begun but not done, or done by a pod that left. Where
    the capacity of a replica moves, the service times lie between those of its least and of its greatest capacity.
    """
    spread = 6 * np.array(CVS)[scenarios.cv][:, None] * np.sqrt(ledger.work)
    moves = 1 / ((1 - scenarios.drift) * (1 - scenarios.fall)) - 1
    drawn = (spread + 4 * ledger.created) * (1 + moves) + moves * ledger.work
    return np.asarray(drawn / scenarios.rps + RELATIVE_TOLERANCE * ledger.busy)


def in_time_limits(ledger: Ledger, scenarios: Scenarios) -> tuple[Float, Float]:
    """(N,) fewest and most requests in time that the latencies allow, where every one was taken; else no limits."""
    slo = scenarios.slo_ms / 1000
    bounds = np.append(BUCKETS_SECONDS, np.inf)
    below = np.searchsorted(bounds, slo + 1e-9) - 1
    above = np.searchsorted(bounds, slo - 1e-9)
    rows = np.arange(len(slo))
    low = np.where(below >= 0, ledger.answered[rows, np.maximum(below, 0)], 0.0)
    known = np.isfinite(ledger.answered[:, 0]) & (ledger.seconds % BLOCK == 0)
    return np.where(known, low, 0.0), np.where(known, ledger.answered[rows, above], np.inf)


def at_most(name: str, low: Float, high: Float) -> None:
    """Raise LedgerError unless low (N, ...) is no more than high (N, ...), but for rounding."""
    good = low <= high + RELATIVE_TOLERANCE * np.maximum(np.abs(low), 1.0)
    holds(name, good.reshape(len(good), -1).all(1), np.stack([low, high], axis=-1))


def equal(name: str, left: Float, right: Float) -> None:
    """Raise LedgerError unless left (N, ...) and right (N, ...) are equal, but for rounding."""
    scale = np.maximum(np.maximum(np.abs(left), np.abs(right)), 1.0)
    close = np.abs(left - right) <= RELATIVE_TOLERANCE * scale
    holds(name, close.reshape(len(close), -1).all(1), np.stack([left, right], axis=-1))


def holds(name: str, good: Any, shown: Float) -> None:
    """Raise LedgerError with the invariant's name and the `shown` (N, ...) values of the first row that is not `good`
    (N,)."""
    if not np.all(good):
        row = int(np.flatnonzero(~good)[0])
        raise LedgerError(
            f"episode {row}: broken invariant '{name}': {shown[row].tolist()}; the run's figures are void"
        )
