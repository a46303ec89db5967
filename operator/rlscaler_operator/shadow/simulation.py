"""The shadow simulation: a virtual service beside each real one, stepped for a batch of policies at once. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import starting_state
from rlscaler_core.decision.decide import Kind, decide
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.tables import arrivals_known, capacity_unknown
from rlscaler_core.decision.types import Bool, FallbackBehavior, Float, Params, Rows, Samples, State
from rlscaler_core.decision.units import LoadUnit
from rlscaler_core.queueing.fluid import (
    Fleet,
    Meter,
    Running,
    advance,
    initial_fleet,
    initial_meter,
    percentile_ms,
    scale,
    settle,
)
from rlscaler_core.queueing.latency import USUAL_SPREAD
from rlscaler_operator.shadow.replica_history import ReplicaHistory, empty_history, replicas_at, with_newest
from rlscaler_operator.shadow.service_times import ServiceTimes

LONGEST_STEP_SECONDS = 120.0
"""A longer gap in the arrivals is not compared: nothing is known of the time in between."""

HPA_SCALE_DOWN_SECONDS = 300.0
"""The HPA's default scale-down window, where the policy sets no `behavior`."""

SHORT_SECONDS, LONG_SECONDS = 3600.0, 6 * 3600.0
"""Memories of the excess of late requests."""

WEIGHT_SECONDS = 600.0
"""Memory of the weight of a request, where the load is not counted in requests."""

LEAST_UTILIZATION = 0.05
"""Below it measured utilization is no scale for a virtual one."""


@dataclass(slots=True)
class ShadowSimulation(Rows):
    """One row a policy. `virtual` is the service that does not exist, `real` the one that runs."""

    params: Params  # of the policy itself
    state: State  # of who decides for the virtual service
    fleet: Fleet
    virtual: Meter
    real: Meter
    virtual_history: ReplicaHistory
    real_history: ReplicaHistory
    metered: Float  # (N,) up to when both were metered; NaN = not yet
    excess: Float  # (N, 2 memories, 2: requests, late of the virtual service minus late of the real one)
    arrived: Float  # (N, 2: load in its unit, requests) over about `WEIGHT_SECONDS`

    def take(self, rows: NDArray[np.intp] | slice) -> ShadowSimulation:
        return ShadowSimulation(*[_part(getattr(self, f.name), rows) for f in fields(self)])

    def put(self, rows: NDArray[np.intp] | slice, other: ShadowSimulation, which: slice = slice(None)) -> None:
        for f in fields(self):
            column, value = getattr(self, f.name), getattr(other, f.name)
            if isinstance(column, Rows):
                column.put(rows, value, which)
            else:
                column[rows] = value[which]

    @classmethod
    def concat(cls, parts: list[ShadowSimulation]) -> ShadowSimulation:
        return cls(*[_joined([getattr(part, f.name) for part in parts]) for f in fields(cls)])


def _part(column: Any, rows: NDArray[np.intp] | slice) -> Any:
    return column.take(rows) if isinstance(column, Rows) else np.array(column[rows])


def _joined(columns: list[Any]) -> Any:
    first = columns[0]
    return type(first).concat(columns) if isinstance(first, Rows) else np.concatenate(columns)


def new_simulation(params: Params, samples: Samples, stack: int) -> ShadowSimulation:
    """Return one row that starts from the replicas that really run."""
    replicas = samples.spec_replicas * params.present
    state = starting_state(stack, (int(replicas[0, 0]), int(replicas[0, 1])), float(samples.time[0]))
    ready = samples.ready_replicas * params.present
    return ShadowSimulation(
        params=params.copy(),
        state=state,
        fleet=initial_fleet(replicas, ready, samples.time, params.cold_start_seconds),
        virtual=initial_meter(1),
        real=initial_meter(1),
        virtual_history=empty_history(1),
        real_history=empty_history(1),
        metered=np.full(1, np.nan),
        excess=np.zeros((1, 2, 2)),
        arrived=np.zeros((1, 2)),
    )


@dataclass(slots=True)
class Passed(Rows):
    """The growth of both sides in one step, (N,) each."""

    seconds: Float
    requests: Float
    virtual_cost: Float
    real_cost: Float
    virtual_late: Float
    real_late: Float


def advance_meters(
    simulation: ShadowSimulation,
    samples: Samples,
    real_share: Float,
    window_seconds: float,
    compared: Bool,
    request_rate: Float | None = None,
    times: ServiceTimes | None = None,
    capacity_factor: Float | None = None,
) -> tuple[ShadowSimulation, Passed]:
    """Advance both services by the arrivals that have become known; in rows that are not `compared` (N,) nothing
    passes.

    `real_share` (N, 2) are the real shares of the arrivals, and `request_rate` (N,) the requests/s among them where the
    load has another unit; NaN = unknown, and nothing passes. `window_seconds` is the time for which a request counts
    for the percentile of the latency. Both services answer requests: the capacity of a replica is divided by the recent
    weight of a request. A rate measured over a window belongs to the window's middle: it meets the replicas of that
    moment on both sides. `times`, (N, 2) each, are the times of work on a request, which with the capacity give the
    number in work at a time; NaN = unknown, and one at a time. `capacity_factor` (N,) is the load that a replica
    carries over its capacity, by default 1.
    """
    requests = samples.arrival_rate if request_rate is None else request_rate
    weight, arrived = _weighed(simulation, samples, requests, compared)
    params = simulation.params
    # Both services answer requests: a replica's capacity in the unit of the load becomes requests/s.
    share = np.ones_like(weight) if capacity_factor is None else capacity_factor
    params = replace(params, requests_per_second=params.requests_per_second * (share / weight)[:, None])
    known = np.isfinite(weight) & (requests >= 0) & (requests < np.inf)
    at_once = np.ones_like(params.requests_per_second)
    spread = np.full_like(params.requests_per_second, USUAL_SPREAD)
    timed = np.full_like(params.requests_per_second, np.nan)
    if times is not None:
        # Little's law for one busy replica: requests in work = time of work * requests/s.
        at_once = np.fmax(times.seconds * params.requests_per_second, 1.0)
        spread = np.where(np.isfinite(times.spread), times.spread, USUAL_SPREAD)
        timed = times.timed
    fleet = settle(simulation.fleet, samples.time)
    present = params.present
    real_now = Running(samples.spec_replicas * present, samples.ready_replicas * present, real_share)
    virtual_now = Running(fleet.spec, fleet.ready, simulation.state.weights.astype(np.float64))
    real_history = with_newest(simulation.real_history, samples.time, real_now)
    virtual_history = with_newest(simulation.virtual_history, samples.time, virtual_now)
    seconds, metered = _elapsed(simulation, samples, compared & known)
    rate = np.where(seconds > 0, requests, 0.0)
    window = np.full(len(rate), window_seconds)
    both = advance(
        Params.concat([params, params]),
        Meter.concat([simulation.virtual, simulation.real]),
        Running.concat([replicas_at(virtual_history, metered), replicas_at(real_history, metered)]),
        np.concatenate([rate, rate]),
        np.concatenate([seconds, seconds]),
        np.concatenate([window, window]),
        np.concatenate([at_once, at_once]),
        np.concatenate([spread, spread]),
        np.concatenate([timed, timed]),
    )
    n = len(rate)
    virtual, real = both.view(slice(0, n)), both.view(slice(n, None))
    passed = Passed(
        seconds=seconds,
        requests=real.requests - simulation.real.requests,
        virtual_cost=virtual.cost - simulation.virtual.cost,
        real_cost=real.cost - simulation.real.cost,
        virtual_late=virtual.late - simulation.virtual.late,
        real_late=real.late - simulation.real.late,
    )
    # Exponential memories of an hour and of six hours.
    fade = np.exp(-seconds[:, None] / np.array([SHORT_SECONDS, LONG_SECONDS]))[:, :, None]
    added = np.stack([passed.requests, passed.virtual_late - passed.real_late], axis=1)
    return (
        replace(
            simulation,
            fleet=fleet,
            virtual=virtual,
            real=real,
            virtual_history=virtual_history,
            real_history=real_history,
            metered=np.where(np.isnan(metered), simulation.metered, metered),
            excess=simulation.excess * fade + added[:, None, :],
            arrived=arrived,
        ),
        passed,
    )


def _weighed(simulation: ShadowSimulation, samples: Samples, requests: Float, compared: Bool) -> tuple[Float, Float]:
    """Return the weight (N,) of a request in the unit of the load, NaN where unknown, and the sums (N, 2) behind it."""
    params = simulation.params
    both = np.stack([samples.arrival_rate, requests], axis=1)
    usable = compared & arrivals_known(params, samples) & ((both >= 0) & (both < np.inf)).all(axis=1)
    seconds = params.sense_seconds
    fade = np.where(usable, np.exp(-seconds / WEIGHT_SECONDS), 1.0)[:, None]
    arrived = simulation.arrived * fade + np.where(usable[:, None], both, 0.0) * seconds[:, None]
    some = (arrived > 0).all(axis=1)
    weight = np.divide(arrived[:, 0], arrived[:, 1], out=np.full(len(params), np.nan), where=some)
    return np.where(params.unit == LoadUnit.REQUESTS, 1.0, weight), arrived


def _elapsed(simulation: ShadowSimulation, samples: Samples, compared: Bool) -> tuple[Float, Float]:
    """Return the seconds (N,) to meter, and up to when; nothing where the load or a capacity is unknown."""
    params = simulation.params
    usable = arrivals_known(params, samples) & ~capacity_unknown(params).any(axis=1) & compared
    # A rate over a window belongs to the window's middle.
    until = np.where(usable, samples.time - samples.age_seconds[:, 0] - params.window_seconds / 2, np.nan)
    seconds = until - simulation.metered
    newer = seconds > 0
    gap = seconds > LONGEST_STEP_SECONDS
    metered = np.where(usable & (newer | np.isnan(simulation.metered)), until, simulation.metered)
    return np.where(newer & ~gap, seconds, 0.0), metered


def virtual_samples(simulation: ShadowSimulation, samples: Samples) -> Samples:
    """Return the measurements of the virtual services: `samples` (N rows) with the values that follow from their
    replicas.

    A measured utilization is scaled by the model's load of the virtual replicas over that of the real ones.
    """
    age = samples.age_seconds[:, :1]
    ages = np.concatenate([np.broadcast_to(age, (len(age), 5)), np.zeros_like(age)], axis=1)
    utilization = simulation.virtual.utilization
    measured = np.stack([samples.gpu_utilization, samples.cpu_utilization], axis=1)
    usable = np.isfinite(measured) & (simulation.real.utilization >= LEAST_UTILIZATION)
    # Measured percent per modelled share: it carries idle costs and limits of the real pods over.
    factor = np.divide(measured, simulation.real.utilization, out=np.full_like(measured, 100.0), where=usable)
    percent = utilization * factor
    ages[:, 2] = np.where(np.isfinite(samples.memory_utilization), samples.age_seconds[:, 2], np.inf)
    virtual = samples.copy()
    virtual.age_seconds = ages
    virtual.gpu_utilization = np.minimum(percent[:, 0], 100.0)
    virtual.cpu_utilization = percent[:, 1]
    virtual.p95_ms = percentile_ms(simulation.virtual.recent, simulation.params.slo_ms, 95.0)
    virtual.spec_replicas, virtual.ready_replicas = simulation.fleet.spec.copy(), simulation.fleet.ready.copy()
    virtual.paused[:] = False
    virtual.pending_seconds = np.zeros_like(samples.pending_seconds)
    virtual.stuck_replicas = np.zeros_like(samples.stuck_replicas)
    return virtual


def scale_virtual(
    simulation: ShadowSimulation, samples: Samples, params: Params, actor: ActorLike | None, kind: Kind, compared: Bool
) -> ShadowSimulation:
    """Scale the virtual services by `params` (N rows): by the actor, or without one by their fallback.

    In rows that are not `compared` (N,) they stay as they are.
    """
    sensed = virtual_samples(simulation, samples)
    state = sense(params, simulation.state, sensed)
    decision, _, state = decide(params, state, sensed, actor, kind=kind)
    desired = np.where(compared[:, None], decision.desired, simulation.fleet.spec)
    fleet = scale(simulation.fleet, desired, samples.time, params.cold_start_seconds)
    return replace(simulation, state=state, fleet=fleet)


def hpa_params(params: Params) -> Params:
    """Return the same policy driven by the HPA formula: for a demoted policy, and for the comparison with an acting
    one.

    Without an actor the fallback acts at once; where no `behavior` is set, scaling down has the HPA's default window.
    All guards stay in force.
    """
    changed = params.copy()
    changed.fallback[:] = FallbackBehavior.HPA_FORMULA
    # Without an actor the fallback decides: at the first tick, not after failures.
    changed.failure_threshold[:] = 1
    changed.stabilization_seconds[~params.has_behavior, 1] = HPA_SCALE_DOWN_SECONDS
    changed.has_behavior[:] = True
    return changed
