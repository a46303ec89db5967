"""Run a batch of whole episodes with one controller and hand back checked figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.guards import GUARDS
from rlscaler_core.decision.spec import SpecSettings, spec_of, with_spec
from rlscaler_core.decision.types import Flag, Rows, State
from rlscaler_rl.simulation import ledger as ledgers
from rlscaler_rl.simulation.batch import SENSE_SECONDS, Batch, Past
from rlscaler_rl.simulation.cluster import BUCKETS_SECONDS, ClusterState
from rlscaler_rl.simulation.ledger import Ledger
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import ScenarioError, Scenarios, as_measured_for

Float = NDArray[np.float64]

LATE_WEIGHT = 0.5
"""GPU replica equivalents that one percent of late requests is worth: J = cost + LATE_WEIGHT * late_percent."""


@dataclass(slots=True)
class Result(Rows):
    """Figures of every episode, (N,) each."""

    j: Float
    cost: Float  # mean billed GPU replica equivalents, pending and starts included
    late_percent: Float  # % of all requests late, dropped or left waiting
    requests: Float
    in_time: Float
    late: Float
    dropped: Float
    queued: Float
    gpu_replica_seconds: Float
    cpu_replica_seconds: Float
    gpu_starts: Float  # pods
    cpu_starts: Float
    goodput_rps: Float  # answered within the SLO
    p50_ms: Float
    p95_ms: Float
    p99_ms: Float
    scale_ups: Float  # changes of the desired replicas of either pool
    scale_downs: Float
    placement_changes: Float
    floor_raises: Float  # ticks at which the reactive floor raised replicas


@dataclass(slots=True)
class Run:
    """Results of `run`."""

    result: Result
    ledger: Ledger
    timeline: dict[str, NDArray[Any]]
    """Per point, (N, T) or (N, T, 2), arrivals and late shares since the point before; empty without `timeline`."""
    state: State
    """Memory of an actor at the end."""

    acted: dict[str, Float]
    """Sensing ticks (N,) at which each guard, by its name, changed something or stood in the way; 0 for a contender,
    which has no guards."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.result, name)


MASKS = np.array([int(guard.changes | guard.holds) for guard in GUARDS])
"""Flags (G,) of each guard."""


class _Counts:
    """Changes from tick to tick."""

    def __init__(self, batch: Batch) -> None:
        self.desired, self.placement = batch.cluster.pool["target"].copy(), batch.state.placement.copy()
        self.targets: list[NDArray[np.int64]] = []
        self.ups, self.downs, self.moves, self.raises = (np.zeros(len(batch.rows)) for _ in range(4))
        self.acted = np.zeros((len(batch.rows), len(GUARDS)))

    def note(self, batch: Batch, flags: NDArray[Any] | None) -> None:
        change = batch.cluster.pool["target"] - self.desired
        self.ups += (change > 0).sum(1)
        self.downs += (change < 0).sum(1)
        self.moves += batch.state.placement != self.placement
        self.desired, self.placement = batch.cluster.pool["target"].copy(), batch.state.placement.copy()
        self.targets.append(self.desired)
        if flags is not None:
            self.raises += (flags & Flag.FLOOR) != 0
            self.acted += (flags[:, None] & MASKS) != 0


class _Timeline:
    """Events between two points, for pictures."""

    def __init__(self, batch: Batch, step_seconds: int) -> None:
        """`step_seconds` lie between two points, and divide a sensing tick."""
        self.batch, self.step, self.points = batch, step_seconds, []  # type: ignore[var-annotated]
        self.before = ledgers.read(batch.cluster)

    def advance(self) -> None:
        for _ in range(SENSE_SECONDS // self.step):
            self.batch.advance(self.step)
            now, cluster = ledgers.read(self.batch.cluster), self.batch.cluster
            missed = now.late + now.dropped - self.before.late - self.before.dropped
            arrived = now.requests - self.before.requests
            self.points.append(
                {
                    "arrivals": arrived / self.step,
                    "desired": cluster.pool["target"].copy(),
                    "ready": cluster.pool["ready"].copy(),
                    "rps": self.batch.facts.pool["rps"].copy(),
                    "weights_gpu": cluster.pool["weight"][:, 0].copy(),
                    "queue": cluster.pool["queue"].copy(),
                    "late_share": missed / np.maximum(arrived, 1.0),
                }
            )
            self.before = now

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {name: np.stack([point[name] for point in self.points], axis=1) for name in self.points[0]}


def run(
    scenarios: Scenarios,
    controller: Any,
    seed: int = 0,
    *,
    timeline: int = 0,
    level: LevelName = "fluid",
    past: Past | None = None,
) -> Run:
    """Play all episodes from begin to end.

    :param scenarios: N episodes of one length and one action interval.
    :param controller: an actor or a contender. An actor has `probabilities((N, 10 k)) -> (N, 13)` and a `Manifest`; it
        acts through `decide` and its shield, under the specs of the policies and its own `SpecSettings`, if it has any.
        A contender has `reset(params)` and `(params, state, samples, rng) -> replicas (N, 2), placement (N,)`; it is
        called at every sensing tick.
    :param seed: of the contender's `rng`.
    :param timeline: seconds between two points of the timeline, a divisor of the sensing tick; 0 records none.
    :param level: fluid or request level of the simulator.
    :param past: history of the services before their episodes; contenders do not see it.
    :raises ScenarioError: the episodes differ in length or interval.
    :raises LedgerError: the counters contradict one another.
    """
    durations = np.unique(scenarios.duration)
    if len(durations) != 1 or durations[0] % SENSE_SECONDS:
        raise ScenarioError(f"duration: one common multiple of {SENSE_SECONDS} s is needed, got {durations.tolist()}")
    is_actor = hasattr(controller, "probabilities")
    spec = spec_of(controller)
    contract = controller.manifest.contract if is_actor else None
    batch = Batch(
        paced(as_measured_for(controller, scenarios), spec), contract, level=level, past=past if is_actor else None
    )
    batch.params = with_spec(batch.params, spec)
    counts = _Counts(batch)
    record = _Timeline(batch, timeline) if timeline else None
    tick = _actor_tick(batch, controller) if is_actor else contender_tick(batch, controller, seed)
    for second in range(0, int(durations[0]), SENSE_SECONDS):
        counts.note(batch, tick(second))
        if record is None:
            batch.advance()
        else:
            record.advance()
        batch.level.count_latencies(batch.facts, batch.cluster, batch.rows)
    ledger = ledgers.read(batch.cluster)
    targets = np.stack(counts.targets)
    ledger.asked = SENSE_SECONDS * targets.sum(axis=0, dtype=np.float64)
    ledger.ready_limit = ledgers.ready_limit(targets, SENSE_SECONDS, scenarios)
    ledgers.check(ledger, scenarios)
    acted = {guard.name: counts.acted[:, i] for i, guard in enumerate(GUARDS)}
    result = _result(ledger, batch.cluster, scenarios, counts)
    return Run(result, ledger, record.arrays() if record else {}, batch.state, acted)


def paced(scenarios: Scenarios, spec: SpecSettings) -> Scenarios:
    """The scenarios with the action interval that a spec asks for.

    Raises ScenarioError where the spec asks for more than one.
    """
    if spec.interval_seconds is None:
        return scenarios
    intervals = np.unique(spec.interval_seconds)
    if len(intervals) != 1:
        raise ScenarioError(f"interval_seconds: one for all episodes of a batch is needed, got {intervals.tolist()}")
    return replace(scenarios, interval_seconds=np.full(len(scenarios), float(intervals[0])))


Tick = Callable[[int], NDArray[Any] | None]


def _actor_tick(batch: Batch, actor: Any) -> Tick:
    def tick(second: int) -> NDArray[Any]:
        if second % batch.interval:
            return batch.floor_tick().flags
        samples = batch.sense()
        made, _, batch.state = decide(batch.params, batch.state, samples, actor, capacity=batch.capacity)
        batch.scale(made.desired, made.weights)
        return made.flags

    return tick


def contender_tick(batch: Batch, controller: Any, seed: int) -> Tick:
    """Make the sensing tick of a contender, which has no shield and gets an `rng` of `seed`."""
    rng = np.random.default_rng(seed)
    controller.reset(batch.params)

    def tick(second: int) -> None:
        samples = batch.sense()
        if getattr(controller, "knows_capacity", False):
            controller.params.requests_per_second[:] = batch.facts.pool["rps"]
        desired, placement = controller(batch.params, batch.state, samples, rng)
        batch.scale_unshielded(desired, placement)

    return tick


def _result(ledger: Ledger, cluster: ClusterState, scenarios: Scenarios, counts: _Counts) -> Result:
    cost, late = ledger.cost(scenarios.price_ratio), ledger.late_percent()
    percentiles = {f"p{q}_ms": _percentile(cluster, q / 100, scenarios.timeout) for q in (50, 95, 99)}
    return Result(
        j=cost + LATE_WEIGHT * late,
        cost=cost,
        late_percent=late,
        requests=ledger.requests,
        in_time=ledger.in_time,
        late=ledger.late,
        dropped=ledger.dropped,
        queued=ledger.queued,
        gpu_replica_seconds=ledger.billed[:, 0],
        cpu_replica_seconds=ledger.billed[:, 1],
        gpu_starts=ledger.created[:, 0] - scenarios.initial[:, 0],
        cpu_starts=ledger.created[:, 1] - scenarios.initial[:, 1],
        goodput_rps=ledger.in_time / ledger.seconds,
        scale_ups=counts.ups,
        scale_downs=counts.downs,
        placement_changes=counts.moves,
        floor_raises=counts.raises,
        **percentiles,
    )


def _percentile(cluster: ClusterState, level: float, timeout: Float) -> Float:
    """(N,) milliseconds over the episode as clients see it, linear within a bucket; NaN when nothing arrived.

    A dropped request counts as the client's `timeout` (N,) in seconds, and no request as longer than that.
    """
    bounds = np.concatenate([[0.0], BUCKETS_SECONDS])
    result = np.full(len(cluster.row), np.nan)
    for row, counts in enumerate(cluster.histogram.astype(np.float64)):
        total = counts[-1] + cluster.row["dropped"][row]
        if total > 0:
            cumulative = np.maximum.accumulate(np.concatenate([[0.0], counts[:-1] / total]))
            latency = np.interp(level, cumulative, bounds, right=np.inf)
            result[row] = 1000 * min(latency, timeout[row])
    return result
