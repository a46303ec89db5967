"""The meters of a run, and the invariants that tie them to one another.

A broken meter can make any contender win with tight confidence intervals; no statistics catches it. So every
evaluation ends with `check`, and its figures are void when it raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.decision.types import Rows
from rlscaler_rl.simulation.cluster import Cluster
from rlscaler_rl.simulation.errors import LedgerError
from rlscaler_rl.simulation.scenario import Scenarios

Float = NDArray[np.float64]

RELATIVE_TOLERANCE = 1e-6


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
    work: Float  # (N, 2) requests answered by billed pods
    busy: Float  # (N, 2) replica-seconds that billed pods worked: at the request level with service times as drawn
    billed: Float  # (N, 2) replica-seconds
    ready_seconds: Float  # (N, 2)
    pending_seconds: Float  # (N, 2)
    target: Float  # (N, 2) replicas asked for at the end
    ready: Float  # (N, 2) at the end
    pending: Float  # (N, 2) at the end

    def cost(self, price_ratio: Float) -> Float:
        """(N,) mean billed GPU replica equivalents; `price_ratio` (N,) is CPU over GPU."""
        return np.asarray((self.billed[:, 0] + price_ratio * self.billed[:, 1]) / self.seconds)

    def late_percent(self) -> Float:
        """(N,) % of all requests that were late or dropped, or will be when the episode ends before them."""
        missed = self.late + self.dropped + self.overdue
        return np.asarray(100 * missed / np.maximum(self.requests, 1.0))


def read(cluster: Cluster) -> Ledger:
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
        ready_seconds=pool["ready_seconds"].copy(),
        pending_seconds=pool["pending_seconds"].copy(),
        target=pool["target"].astype(np.float64),
        ready=pool["ready"].astype(np.float64),
        pending=pool["waiting"].astype(np.float64),
    )


def check(ledger: Ledger, scenarios: Scenarios) -> Ledger:
    """The ledger itself, or LedgerError naming the broken invariant and the first row that breaks it."""
    counted = np.arange(scenarios.arrivals.shape[1]) < ledger.seconds[:, None]
    _equal("requests in = arrivals of the scenario", ledger.requests, (scenarios.arrivals * counted).sum(1))
    accounted = ledger.in_time + ledger.late + ledger.dropped + ledger.queued
    _equal("requests in = in time + late + dropped + queued", ledger.requests, accounted)
    _equal("billed = ready + pending replica-seconds", ledger.billed, ledger.ready_seconds + ledger.pending_seconds)
    _equal("ready + pending = target", ledger.ready + ledger.pending, ledger.target)
    bounded = (ledger.target >= scenarios.min_replicas) & (ledger.target <= scenarios.max_replicas)
    _holds("min_replicas <= target <= max_replicas", (bounded | ~scenarios.present).all(1), ledger.target)
    prices = np.stack([np.ones(len(ledger)), scenarios.price_ratio], axis=1)
    floor = (ledger.busy * prices).sum(1) / ledger.seconds
    cost = ledger.cost(scenarios.price_ratio)
    _holds("cost >= busy replica-seconds x price", cost >= floor * (1 - RELATIVE_TOLERANCE), np.stack([cost, floor], 1))
    counters = [ledger.in_time, ledger.late, ledger.dropped, ledger.queued]
    _holds("no counter below 0", (np.stack(counters) >= -1e-6).all(0), np.stack(counters, 1))
    return ledger


def _equal(name: str, left: Float, right: Float) -> None:
    scale = np.maximum(np.maximum(np.abs(left), np.abs(right)), 1.0)
    close = np.abs(left - right) <= RELATIVE_TOLERANCE * scale
    _holds(name, close.reshape(len(close), -1).all(1), np.stack([left, right], axis=-1))


def _holds(name: str, good: Any, shown: Float) -> None:
    if not np.all(good):
        row = int(np.flatnonzero(~good)[0])
        raise LedgerError(
            f"episode {row}: broken invariant '{name}': {shown[row].tolist()}; the run's figures are void"
        )
