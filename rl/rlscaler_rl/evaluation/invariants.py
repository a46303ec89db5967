"""Conservation laws of the meter, recomputed from the raw counters of every episode, and the physical cost floor.

The simulator refuses a run that breaks a law. This second check is written against the counters alone and puts the
largest deviation into the result: a broken meter once made a policy win by 11-45 % with tight intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rlscaler_core.decision.types import GPU, Float, Params
from rlscaler_rl.evaluation.schema import Invariant
from rlscaler_rl.simulation.ledger import Ledger, in_time_limits, work_tolerance
from rlscaler_rl.simulation.scenario import Scenarios

TOLERANCE = 1e-5
"""Allowed deviation, relative to the larger of 1 and the compared values: counters are sums of thousands of terms."""

STATEMENTS = {
    "billing": "billed replica-seconds = (ready + pending) replica-seconds = targets over time",
    "replicas": "ready + pending = target, within [minReplicas, maxReplicas]",
    "requests": "requests in = in time + late + dropped + still queued = arrivals of the scenario",
    "floor": "cost >= seconds that billed replicas spent on requests x price",
    "busy": "seconds worked <= ready replica-seconds",
    "cold_start": "ready replica-seconds <= what the targets allow after the shortest cold start; ready <= nodes' room",
    "work": "answered <= worked off, and work takes its service time",
    "latency": "in time as the latencies say (request level)",
    "signs": "no counter is negative or undefined",
}


@dataclass(slots=True)
class Audit:
    """Largest violation of each invariant over all runs."""

    worst: dict[str, tuple[float, str]] = field(default_factory=dict)
    checked: int = 0

    def add(self, name: str, ledger: Ledger, scenarios: Scenarios) -> None:
        """Check one run; `name` is the run in the report of a violation."""
        self.checked += len(scenarios)
        for key, values in deviations(ledger, scenarios).items():
            worst = float(np.max(np.where(np.isfinite(values), values, np.inf)))
            if key not in self.worst or worst > self.worst[key][0]:
                self.worst[key] = worst, name

    def merge(self, other: Audit) -> None:
        """Add the checks of another audit."""
        self.checked += other.checked
        for key, worst in other.worst.items():
            if key not in self.worst or worst[0] > self.worst[key][0]:
                self.worst[key] = worst

    def invariants(self) -> list[Invariant]:
        return [
            Invariant(
                name=key,
                statement=statement,
                holds=key in self.worst and self.worst[key][0] <= TOLERANCE,
                checked=self.checked,
                worst=self.worst.get(key, (float("inf"), ""))[0],
            )
            for key, statement in STATEMENTS.items()
        ]

    def reasons(self) -> list[str]:
        """Return a sentence for each broken invariant."""
        return [
            f"broken meter: {item.statement} (deviation {item.worst:.3g} in {self.worst[item.name][1]})"
            for item in self.invariants()
            if not item.holds
        ]


def deviations(ledger: Ledger, scenarios: Scenarios) -> dict[str, Float]:
    """Return the relative violation (N,) of each invariant by episode; 0 or less where it holds."""
    params = scenarios.params()
    inside = np.arange(scenarios.arrivals.shape[1]) < ledger.seconds[:, None]
    arrivals = np.where(inside, scenarios.arrivals, 0).sum(axis=1, dtype=np.float64)
    accounted = ledger.in_time + ledger.late + ledger.dropped + ledger.queued
    low, high = (np.where(scenarios.present, bound, 0) for bound in (scenarios.min_replicas, scenarios.max_replicas))
    outside = np.maximum(low - ledger.target, ledger.target - high)
    price = relative_price(params)
    busy = (ledger.busy * price).sum(axis=1) / ledger.seconds
    cost = (ledger.billed * price).sum(axis=1) / ledger.seconds
    slowest, fastest = in_time_limits(ledger, scenarios)
    counters = [ledger.requests, ledger.in_time, ledger.late, ledger.dropped, ledger.queued, *ledger.billed.T]
    return {
        "billing": np.maximum(
            _apart(ledger.billed, ledger.ready_seconds + ledger.pending_seconds),
            _apart(ledger.billed, np.where(np.isnan(ledger.asked), ledger.billed, ledger.asked)),
        ).max(axis=1),
        "replicas": np.maximum(_apart(ledger.ready + ledger.pending, ledger.target), outside).max(axis=1),
        "requests": np.maximum(_apart(ledger.requests, accounted), _apart(ledger.requests, arrivals)),
        "floor": busy - cost,
        "busy": _beyond(ledger.busy, ledger.ready_seconds).max(axis=1),
        "cold_start": np.maximum(
            _beyond(ledger.ready_seconds, ledger.ready_limit),
            _beyond(ledger.ready, np.maximum(scenarios.schedulable, scenarios.initial)),
        ).max(axis=1),
        "work": np.maximum(
            _beyond(ledger.in_time + ledger.late, ledger.work.sum(axis=1)),
            _beyond(np.abs(ledger.work / scenarios.rps - ledger.busy), work_tolerance(ledger, scenarios)).max(axis=1),
        ),
        "latency": np.maximum(_beyond(slowest, ledger.in_time), _beyond(ledger.in_time, fastest)),
        "signs": -np.min(np.stack(counters), axis=0),
    }


def relative_price(params: Params) -> Float:
    """Return the price of a replica, (N, 2), in GPU replica equivalents."""
    return np.asarray(params.cost_per_hour / params.cost_per_hour[:, [GPU]])


def physical_floor(params: Params, answered_rps: Float) -> Float:
    """Return the mean GPU replica equivalents (N,) that `answered_rps` (N,) keeps busy on the cheaper pool present."""
    # Arrivals x service time x price: every replica busy all the time, no cold start, no idle second, no queue.
    per_request = np.where(params.present, relative_price(params) / params.requests_per_second, np.inf)
    return np.asarray(answered_rps * np.min(per_request, axis=1))


def minimum_cost(params: Params) -> Float:
    """Return the GPU replica equivalents (N,) of minReplicas, billed from the first second to the last."""
    return np.asarray((np.where(params.present, params.min_replicas, 0) * relative_price(params)).sum(axis=1))


def _beyond(low: Float, high: Float) -> Float:
    """Return the relative excess of `low` over `high`; an infinite `high` is no limit."""
    return np.asarray(np.maximum(low - high, 0.0) / np.maximum(np.abs(low), 1.0))


def _apart(left: Float, right: Float) -> Float:
    return np.asarray(np.abs(left - right) / np.maximum(np.maximum(np.abs(left), np.abs(right)), 1.0))
