"""Metrics of one tick of a policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from rlscaler_core.api import conditions as types
from rlscaler_core.api.promotion import RegretInterval
from rlscaler_core.decision.action import HEADS, REACH
from rlscaler_core.decision.batch import Outcome
from rlscaler_core.decision.forecaster import rises
from rlscaler_core.decision.forecaster.memory import LEVELS, is_kept, recent_of
from rlscaler_core.decision.guards import GUARDS
from rlscaler_core.decision.headroom import factors
from rlscaler_core.decision.types import POOLS, Decision, observations
from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.actuation.apply import Applied
from rlscaler_operator.actuation.resize import ResizeOutcome
from rlscaler_operator.actuation.scale import WriteResult
from rlscaler_operator.cluster.bodies import Deployment
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.series import Series
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.shadow.verdict import PromotionStage
from rlscaler_operator.state.error_budget import late_price, left
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.status import PLACEMENTS

STEPS = tuple(f"{step:+d}" if step else "0" for step in range(-REACH, REACH + 1))
ACTIONS = {"gpu": STEPS, "cpu": STEPS, "placement": PLACEMENTS}
"""Names of the actions of each head, in the order of the network's outputs."""


def measure(
    metrics: Metrics,
    policy: Policy,
    outcome: Outcome | None,
    missing: Sequence[tuple[str, Reading]],
    deployments: Mapping[str, Deployment | None],
) -> None:
    """Update all metrics of a policy after a tick. `missing` are the required signals that are unknown."""
    if not policy.running:
        metrics.forget(*policy.key)
    of = metrics.of(*policy.key)
    true = {condition.type for condition in policy.report.conditions if condition.status == "True"}
    for type_ in types.MEANING:
        of.put(metrics.condition, type_ in true, type_)
    if not policy.running:
        return
    _standing(metrics, of, policy)
    _pools(metrics, of, policy, deployments)
    sizing = policy.decision.sizing
    for pool, size in (sizing.sizes if sizing is not None else {}).items():
        _pod_size(metrics, of, pool, "recommended", size)
    for signal, reading in missing:
        of.add(metrics.unknown, 1, signal, reading.reason)
    of.add(metrics.errors, 0)
    if outcome is None or outcome.decision is None:
        return
    of.add(metrics.decisions, 1, outcome.entry.kind)
    _decided(metrics, of, policy, outcome, outcome.decision)
    if outcome.entry.kind == "action":
        _acted(metrics, of, outcome, outcome.decision)
        _compared(metrics, of, policy)


def measure_quiet(metrics: Metrics, policy: Policy, outcome: Outcome, missing: Sequence[tuple[str, Reading]]) -> None:
    """Update the metrics that differ even after a sensing tick with the findings and decision of the one before."""
    of = metrics.of(*policy.key)
    _signals(metrics, of, policy)
    for signal, reading in missing:
        of.add(metrics.unknown, 1, signal, reading.reason)
    pending = outcome.entry.samples.pending_seconds[0].tolist()
    for pool, _ in policy.facts.targets:
        of.put(metrics.pending, pending[POOLS.index(pool)], pool)
    of.add(metrics.decisions, 1, outcome.entry.kind)
    if outcome.guarded and outcome.decision is not None:
        for guard, intervened in interventions(outcome.decision).items():
            if intervened:
                of.add(metrics.guards, 1, guard)


def written(metrics: Metrics, policy: Policy, applied: Applied) -> None:
    """Count the results of one decision's writes and resizes."""
    of = metrics.of(*policy.key)
    for pool, resized in applied.sizes.resized.items():
        _pod_size(metrics, of, pool, "set", resized.asked)
        for outcome in get_args(ResizeOutcome):
            of.add(metrics.resizes, resized.outcomes.get(outcome, 0), pool, outcome)
    for pool, write in applied.writes.items():
        of.add(metrics.writes, 1, pool, write.outcome)
        if write.seconds is not None:
            metrics.write_seconds.observe(write.seconds)
    if applied.weights_problem is not None:
        of.add(metrics.placement_failures, 1, applied.weights_problem.reason)


def _standing(metrics: Metrics, of: Series, policy: Policy) -> None:
    spec, actor = policy.spec, policy.decision.actor
    model, digest = ("", "") if actor is None else (actor.manifest.name, actor.manifest.digest)
    of.only(metrics.info, spec.mode, policy.subject.service, model, digest)
    of.put(metrics.slo_latency, spec.slo.latency_milliseconds / 1000)
    of.put(metrics.slo_objective, spec.slo.objective / 100)
    _signals(metrics, of, policy)


def _signals(metrics: Metrics, of: Series, policy: Policy) -> None:
    for signal, reading in policy.decision.readings.items():
        of.put(metrics.signal, reading.value, signal)
        of.put(metrics.age, reading.age_seconds, signal)


def _pools(metrics: Metrics, of: Series, policy: Policy, deployments: Mapping[str, Deployment | None]) -> None:
    for pool, deployment in deployments.items():
        current, ready = (math.nan, math.nan) if deployment is None else (deployment.replicas, deployment.ready)
        of.put(metrics.replicas, current, pool, "current")
        of.put(metrics.replicas, ready, pool, "ready")
        of.put(metrics.replicas, policy.decision.desired.get(pool, current), pool, "desired")
        for result in get_args(WriteResult):
            of.add(metrics.writes, 0, pool, result)


def _pod_size(metrics: Metrics, of: Series, pool: str, state: str, size: PodSize) -> None:
    of.put(metrics.pod_cpu, size.cpu, pool, state)
    of.put(metrics.pod_memory, size.memory, pool, state)


def _decided(metrics: Metrics, of: Series, policy: Policy, outcome: Outcome, decision: Decision) -> None:
    params, samples = outcome.entry.params, outcome.entry.samples
    for i, pool in enumerate(POOLS):
        if params.present[0, i]:
            of.put(metrics.limit, int(params.min_replicas[0, i]), pool, "min")
            of.put(metrics.limit, int(params.max_replicas[0, i]), pool, "max")
            of.put(metrics.pending, float(samples.pending_seconds[0, i]), pool)
            of.put(metrics.cost, float(samples.spec_replicas[0, i] * params.cost_per_hour[0, i]), pool)
            of.put(metrics.weight, int(decision.weights[0, i]), pool)
    of.put(metrics.slo_budget_left, left(params, outcome.state, samples, policy.spec.slo.objective / 100))
    of.put(metrics.late_price, late_price(params, outcome.state, policy.decision.actor))
    for guard, intervened in interventions(decision).items():
        of.add(metrics.guards, intervened, guard)


def interventions(decision: Decision) -> dict[str, bool]:
    """Return by guard whether it changed the replicas (first row) or held them against the action."""
    trail, flags = decision.trail[0], int(decision.flags[0])
    changed = (trail[1:] != trail[:-1]).any(axis=1).tolist()
    return {guard.name: moved or bool(flags & guard.holds) for guard, moved in zip(GUARDS, changed, strict=True)}


def _acted(metrics: Metrics, of: Series, outcome: Outcome, decision: Decision) -> None:
    begin = 0
    for (head, names), size in zip(ACTIONS.items(), HEADS, strict=True):
        chances = decision.probabilities[0, begin : begin + size].astype(np.float64)
        begin += size
        for name, chance in zip(names, chances.tolist(), strict=True):
            of.put(metrics.probability, chance, head, name)
        of.put(metrics.entropy, entropy_ratio(chances), head)
    if outcome.observation is not None:
        for name, value in zip(observations(outcome.entry.params), outcome.observation.values[0].tolist(), strict=True):
            of.put(metrics.observation, value, name)
    for pool, factor in zip(POOLS, factors(outcome.state)[0].tolist(), strict=True):
        of.put(metrics.headroom, factor - 1, pool)
    if is_kept(outcome.state.load_recent):
        _forecasts(metrics, of, outcome)


def _forecasts(metrics: Metrics, of: Series, outcome: Outcome) -> None:
    """Set the share of forecasts of the load that held, and their number."""
    recent = recent_of(outcome.state.load_recent)
    held, judged = rises.coverage(recent)[0].tolist(), recent.judged[0].tolist()
    for i, pool in enumerate(POOLS):
        if outcome.entry.params.present[0, i]:
            of.put(metrics.forecasts_judged, judged[i], pool)
            for level, share in zip(LEVELS, held[i], strict=True):
                of.put(metrics.forecast_held, share, pool, f"{level:g}")


def entropy_ratio(chances: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Return the Shannon entropy of `chances` (n,) over that of n equal ones; NaN where a chance is NaN."""
    # x log x is 0 at x = 0, where the logarithm itself is not finite.
    logarithms = np.log(np.where(chances == 0, 1.0, chances))
    return abs(float(-(chances * logarithms).sum() / np.log(len(chances))))


def _compared(metrics: Metrics, of: Series, policy: Policy) -> None:
    promotion, today = policy.promotion.status, policy.promotion.today
    for state in get_args(PromotionStage):
        of.put(metrics.promotion, promotion is not None and promotion.state == state, state)
    regret = None if promotion is None else promotion.regret
    _interval(of, metrics.regret_cost, None if regret is None else regret.cost_percent)
    _interval(of, metrics.regret_late, None if regret is None else regret.late_points)
    if today is not None:
        of.put(metrics.compared_requests, today.requests)
        for side, cost, late in (("policy", today.cost, today.late), ("other", today.other_cost, today.other_late)):
            of.put(metrics.compared_cost, cost, side)
            of.put(metrics.compared_late, late, side)


def _interval(of: Series, metric: Any, interval: RegretInterval | None) -> None:
    for bound in ("mean", "low", "high"):
        value = None if interval is None else getattr(interval, bound)
        of.put(metric, math.nan if value is None else value, bound)
