"""From one tick of a policy to its metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from rlscaler_operator.actuation.scale import Outcome as WriteOutcome
from rlscaler_operator.api import conditions as types
from rlscaler_operator.api.status import RegretInterval
from rlscaler_operator.decisions import Outcome
from rlscaler_operator.policies import Policy
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.status import PLACEMENTS
from rlscaler_operator.sensing.cache import Deployment
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.shadow.verdict import State
from rlscaler_rl.decision.action import HEADS, REACH
from rlscaler_rl.decision.types import GUARDS, OBSERVATIONS, POOLS, Decision, Flag

if TYPE_CHECKING:
    from rlscaler_operator.actuation.apply import Applied

Of = Callable[..., Any]

STEPS = tuple(f"{step:+d}" if step else "0" for step in range(-REACH, REACH + 1))
ACTIONS = {"gpu": STEPS, "cpu": STEPS, "placement": PLACEMENTS}
"""By head, in the order of the network's outputs."""

HOLDING = {"unknown": Flag.HELD_UNKNOWN | Flag.FALLBACK, "pending": Flag.PENDING, "budget": Flag.BUDGET_LIMITED}
"""Flags that say that a guard stood in the way though replicas look as if it had not."""


def measure(
    metrics: Metrics,
    policy: Policy,
    outcome: Outcome | None,
    missing: Sequence[tuple[str, Reading]],
    deployments: Mapping[str, Deployment | None],
) -> None:
    """Bring everything up to date that a tick found and decided. `missing` are the required signals unknown at it."""
    if not policy.running:
        metrics.forget(*policy.key)
    of = metrics.of(*policy.key)
    true = {condition.type for condition in policy.conditions if condition.status == "True"}
    for type_ in types.MEANING:
        of(metrics.condition, type_).set(type_ in true)
    if not policy.running:
        return
    _standing(metrics, of, policy)
    _pools(metrics, of, policy, deployments)
    for signal, reading in missing:
        of(metrics.unknown, signal, reading.reason).inc()
    of(metrics.errors)
    if outcome is None or outcome.decision is None:
        return
    of(metrics.decisions, outcome.entry.kind).inc()
    _decided(metrics, of, policy, outcome, outcome.decision)
    if outcome.entry.kind == "action":
        _acted(metrics, of, outcome, outcome.decision)
        _compared(metrics, of, policy)


def again(metrics: Metrics, policy: Policy, outcome: Outcome, missing: Sequence[tuple[str, Reading]]) -> None:
    """After a sensing tick that found and decided what the one before did: only what differs all the same."""
    of = metrics.of(*policy.key)
    for signal, reading in policy.readings.items():
        of(metrics.signal, signal).set(reading.value)
        of(metrics.age, signal).set(reading.age_seconds)
    for signal, reading in missing:
        of(metrics.unknown, signal, reading.reason).inc()
    pending = outcome.entry.samples.pending_seconds[0].tolist()
    for pool, _ in policy.facts.targets:
        of(metrics.pending, pool).set(pending[POOLS.index(pool)])
    of(metrics.decisions, outcome.entry.kind).inc()
    if outcome.guarded and outcome.decision is not None:
        for guard, intervened in interventions(outcome.decision).items():
            if intervened:
                of(metrics.guards, guard).inc()


def written(metrics: Metrics, policy: Policy, applied: Applied) -> None:
    """What became of one decision's writes."""
    of = metrics.of(*policy.key)
    for pool, write in applied.writes.items():
        of(metrics.writes, pool, write.outcome).inc()
        if write.seconds is not None:
            metrics.write_seconds.observe(write.seconds)
    if applied.placement_problem is not None:
        of(metrics.placement_failures, applied.placement_problem.reason).inc()


def _standing(metrics: Metrics, of: Of, policy: Policy) -> None:
    spec, actor = policy.spec, policy.actor
    model, digest = ("", "") if actor is None else (actor.manifest.name, actor.manifest.digest)
    metrics.only(metrics.info, *policy.key, spec.mode, policy.subject.service, model, digest)
    of(metrics.slo_latency).set(spec.slo.latency_milliseconds / 1000)
    of(metrics.slo_objective).set(spec.slo.objective / 100)
    for signal, reading in policy.readings.items():
        of(metrics.signal, signal).set(reading.value)
        of(metrics.age, signal).set(reading.age_seconds)


def _pools(metrics: Metrics, of: Of, policy: Policy, deployments: Mapping[str, Deployment | None]) -> None:
    for pool, deployment in deployments.items():
        current, ready = (math.nan, math.nan) if deployment is None else (deployment.replicas, deployment.ready)
        of(metrics.replicas, pool, "current").set(current)
        of(metrics.replicas, pool, "ready").set(ready)
        of(metrics.replicas, pool, "desired").set(policy.desired.get(pool, current))
        for result in get_args(WriteOutcome):
            of(metrics.writes, pool, result)


def _decided(metrics: Metrics, of: Of, policy: Policy, outcome: Outcome, decision: Decision) -> None:
    params, samples = outcome.entry.params, outcome.entry.samples
    for i, pool in enumerate(POOLS):
        if params.present[0, i]:
            of(metrics.limit, pool, "min").set(int(params.min_replicas[0, i]))
            of(metrics.limit, pool, "max").set(int(params.max_replicas[0, i]))
            of(metrics.pending, pool).set(float(samples.pending_seconds[0, i]))
            of(metrics.cost, pool).set(float(samples.spec_replicas[0, i] * params.cost_per_hour[0, i]))
            of(metrics.weight, pool).set(int(decision.weights[0, i]))
    for guard, intervened in interventions(decision).items():
        of(metrics.guards, guard).inc(intervened)


def interventions(decision: Decision) -> dict[str, bool]:
    """By guard: did it change the replicas (first row), or stand in the way of what was asked for?"""
    trail, flags = decision.trail[0], int(decision.flags[0])
    changed = (trail[1:] != trail[:-1]).any(axis=1).tolist()
    return {
        guard: moved or bool(flags & HOLDING.get(guard, Flag.NONE))
        for guard, moved in zip(GUARDS[1:], changed, strict=True)
    }


def _acted(metrics: Metrics, of: Of, outcome: Outcome, decision: Decision) -> None:
    begin = 0
    for (head, names), size in zip(ACTIONS.items(), HEADS, strict=True):
        chances = decision.probabilities[0, begin : begin + size].astype(np.float64)
        begin += size
        for name, chance in zip(names, chances.tolist(), strict=True):
            of(metrics.probability, head, name).set(chance)
        of(metrics.entropy, head).set(entropy_ratio(chances))
    if outcome.observation is not None:
        for name, value in zip(OBSERVATIONS, outcome.observation.values[0].tolist(), strict=True):
            of(metrics.observation, name).set(value)


def entropy_ratio(chances: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Shannon entropy of `chances` (n,) over that of n equal ones; NaN where they are."""
    logarithms = np.log(np.where(chances == 0, 1.0, chances))
    return abs(float(-(chances * logarithms).sum() / np.log(len(chances))))


def _compared(metrics: Metrics, of: Of, policy: Policy) -> None:
    promotion, today = policy.promotion, policy.today
    for state in get_args(State):
        of(metrics.promotion, state).set(promotion is not None and promotion.state == state)
    regret = None if promotion is None else promotion.regret
    _interval(of, metrics.regret_cost, None if regret is None else regret.cost_percent)
    _interval(of, metrics.regret_late, None if regret is None else regret.late_points)
    if today is not None:
        of(metrics.compared_requests).set(today.requests)
        for side, cost, late in (("policy", today.cost, today.late), ("other", today.other_cost, today.other_late)):
            of(metrics.compared_cost, side).set(cost)
            of(metrics.compared_late, side).set(late)


def _interval(of: Of, metric: Any, interval: RegretInterval | None) -> None:
    for bound in ("mean", "low", "high"):
        value = None if interval is None else getattr(interval, bound)
        of(metric, bound).set(math.nan if value is None else value)
