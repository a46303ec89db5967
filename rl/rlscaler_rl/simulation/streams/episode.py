"""Play groups with one autoscaler, until everything was processed, and hand back checked figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.decide import Kind, decide
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.tables import initial_state, make_params
from rlscaler_core.decision.types import CPU, Float, Int, Params, Rows, Samples
from rlscaler_core.streams import initial_memory, measure
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.streams import ledger as ledgers
from rlscaler_rl.simulation.streams.curves import Waits, waits_of
from rlscaler_rl.simulation.streams.groups import STEP_SECONDS, Groups
from rlscaler_rl.simulation.streams.ledger import StreamLedger, j_of
from rlscaler_rl.simulation.streams.level import StreamLevel
from rlscaler_rl.simulation.streams.looks import Usage, look, samples_of_commits, samples_of_measured

DRAIN_SECONDS = 300.0
"""Seconds after the load in which consumers may process waiting messages; messages left then were never processed."""

CONTENDER_SECONDS = 5.0
"""Seconds between two calls of a contender; it decides for itself when its period is over."""

INTERVAL_SECONDS, SENSE_SECONDS = 15.0, 2.0
"""Default seconds between two actions of an actor, and between two looks of the operator."""

HOUR = 3600.0


@dataclass(slots=True)
class StreamResult(Rows):
    """Figures of every group, (N,) each."""

    p95_seconds: Float  # that 95 % of the messages waited at most; infinity where more than 5 % were never processed
    longest_seconds: Float
    late_percent: Float  # % of the messages that waited longer than the objective or were never processed
    consumer_seconds: Float  # of every pod that exists, over the time of the load
    performance_cost: Float  # messages within the objective for each consumer-second: performance over cost
    rebalances_per_hour: Float  # over the time of the load
    left: Float  # messages that were not processed at the load's end: work that is not in `consumer_seconds`
    repeated: Float  # messages that were processed again
    j: Float  # cost + 0.5 * late percent, as of a service: `price.j_of`


@dataclass(frozen=True, slots=True)
class StreamRun:
    """Results of `run`."""

    result: StreamResult
    ledger: StreamLedger
    """At the end, everything processed or `DRAIN_SECONDS` after the load."""
    waits: Waits


Tick = Callable[[float], Int | None]
"""Called at every step with its seconds; returns consumers (N,), or None where nothing is decided at that moment."""


def params_of(groups: Groups, interval_seconds: float, sense_seconds: float) -> Params:
    """The policies of the groups: consumers are the CPU pool, and everything else is as in a new custom resource."""
    none = np.zeros(len(groups))
    cold = (groups.cold_start_low + groups.cold_start_high) / 2
    return make_params(
        len(groups),
        present=(False, True),
        stream=True,
        min_replicas=np.stack([none, groups.min_replicas], axis=1).astype(np.int32),
        max_replicas=np.stack([none, groups.max_replicas], axis=1).astype(np.int32),
        requests_per_second=np.stack([none + np.nan, groups.rate], axis=1),
        cold_start_seconds=np.stack([none + 1.0, np.maximum(cold, 1.0)], axis=1),
        slo_ms=1000 * groups.slo_seconds,
        interval_seconds=interval_seconds,
        sense_seconds=sense_seconds,
    )


def run(
    groups: Groups,
    controller: Any,
    *,
    interval_seconds: float = INTERVAL_SECONDS,
    sense_seconds: float = SENSE_SECONDS,
    seed: int = 0,
) -> StreamRun:
    """Play groups from begin to end.

    :param controller: an actor or a contender (`baselines.contender`). An actor acts as in the operator:
        `streams.measure` measures the offsets, and `decision.decide` decides. A contender sees CPU usage and the ends
        less the commits.
    :param interval_seconds: between two actions of an actor, a multiple of `STEP_SECONDS`.
    :param sense_seconds: between two looks of the operator, a multiple of `STEP_SECONDS`.
    :param seed: of the contender's `rng`.
    :raises ScenarioError: the times are no multiples of a step.
    :raises LedgerError: the counters contradict one another.
    """
    for name, seconds in (("sense_seconds", sense_seconds), ("interval_seconds", interval_seconds)):
        if seconds <= 0 or seconds % STEP_SECONDS:
            raise ScenarioError(f"{name} = {seconds:g}: a multiple of {STEP_SECONDS:g} s is needed, above 0")
    level, params = StreamLevel(groups), params_of(groups, interval_seconds, sense_seconds)
    if hasattr(controller, "probabilities"):
        tick = _actor_tick(level, params, controller)
    else:
        tick = _contender_tick(level, params, controller, seed)
    return played(level, tick)


def played(level: StreamLevel, tick: Tick) -> StreamRun:
    """Play the groups of a level that has not begun, asking `tick` for consumers at every step."""
    groups, reached = level.groups, []
    at_end: StreamLedger | None = None
    last = groups.steps + round(DRAIN_SECONDS / STEP_SECONDS)
    while level.step < groups.steps or (level.step < last and np.any(level.state.end - level.state.reached > 1e-6)):
        desired = tick(level.step * STEP_SECONDS)
        if desired is not None:
            level.scale(desired)
        level.advance()
        reached.append(level.state.reached.copy())
        if level.step == groups.steps:
            at_end = ledgers.check(ledgers.read(level.state), groups, level.step)
    ledger = ledgers.check(ledgers.read(level.state), groups, level.step)
    assert at_end is not None
    waits = waits_of(groups, np.stack(reached, axis=2))
    return StreamRun(_result(groups, at_end, ledger, waits), ledger, waits)


class Operator:
    """The operator's sensing of groups, and its memory between two ticks."""

    def __init__(self, level: StreamLevel, params: Params, stack_size: int) -> None:
        self.level, self.params = level, params
        self.state = initial_state(len(level.groups), stack_size)
        self._usage, self._memory = Usage(), initial_memory(*level.groups.share.shape)

    def sense(self) -> Samples:
        """Look at the broker and update the memory."""
        groups, level = self.level.groups, self.level
        measured, self._memory = measure(self._memory, look(groups, level.state))
        usage = self._usage.percent(groups, level.state)
        samples = samples_of_measured(groups, level.state, usage, measured)
        self.state = sense(self.params, self.state, samples)
        return samples


def _actor_tick(level: StreamLevel, params: Params, actor: ActorLike) -> Tick:
    operator = Operator(level, params, actor.manifest.contract.stack_size)
    interval, every = float(params.interval_seconds[0]), float(params.sense_seconds[0])

    acts_at = 0.0

    def tick(second: float) -> Int | None:
        nonlocal acts_at
        acts = second >= acts_at
        if second % every and not acts:
            return None
        samples = operator.sense()
        kind: Kind = "action" if acts else "floor"
        acts_at += interval if acts else 0.0
        decision, _, operator.state = decide(params, operator.state, samples, actor, kind=kind)
        return decision.desired[:, CPU]

    return tick


def _contender_tick(level: StreamLevel, params: Params, contender: Any, seed: int) -> Tick:
    groups, usage, rng = level.groups, Usage(), np.random.default_rng(seed)
    state = initial_state(len(groups), 1, forecaster=False)
    contender.reset(params)

    def tick(second: float) -> Int | None:
        if second % CONTENDER_SECONDS:
            return None
        samples = samples_of_commits(groups, level.state, usage.percent(groups, level.state))
        desired, _ = contender(params, state, samples, rng)
        bounded: Int = np.clip(desired[:, CPU], groups.min_replicas, groups.max_replicas).astype(np.int32)
        return bounded

    return tick


def _result(groups: Groups, at_end: StreamLedger, ledger: StreamLedger, waits: Waits) -> StreamResult:
    late = waits.longer_than(groups.slo_seconds)
    late_percent = 100 * late / np.maximum(at_end.written, 1.0)
    return StreamResult(
        p95_seconds=waits.percentile(),
        longest_seconds=waits.longest(),
        late_percent=late_percent,
        consumer_seconds=at_end.consumer_seconds,
        performance_cost=(at_end.written - late) / np.maximum(at_end.consumer_seconds, STEP_SECONDS),
        rebalances_per_hour=at_end.rebalances / at_end.seconds * HOUR,
        left=at_end.waiting,
        repeated=ledger.repeated,
        j=j_of(groups, at_end.consumer_seconds, at_end.waiting, late_percent),
    )


def least_consumer_seconds(groups: Groups) -> Float:
    """(N,) consumer-seconds below which no autoscaler keeps its messages within the objective.

    The work on all messages that are due before the load's end, and no fewer consumers than `min_replicas` at any time.
    """
    due = STEP_SECONDS * (np.arange(groups.steps) + 1) <= groups.seconds - groups.slo_seconds[:, None]
    work = (groups.arrivals.sum(axis=1) * due).sum(axis=1) / groups.rate
    return np.asarray(np.maximum(work, groups.min_replicas * groups.seconds), np.float64)
