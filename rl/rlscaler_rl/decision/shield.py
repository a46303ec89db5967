"""From a proposed action to replicas that are safe to write: the guards, in order.

unknown or failed -> `behavior` -> reactive floor -> min and max -> pause. `Decision.trail` holds the desired
replicas after each. `act` runs at action intervals, `floor_tick` at the sensing ticks between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlscaler_rl.decision import behavior
from rlscaler_rl.decision.action import LOGITS
from rlscaler_rl.decision.pairs import either
from rlscaler_rl.decision.params import capacity_unknown
from rlscaler_rl.decision.reactive import floor_replicas, hpa_formula, pool_utilization
from rlscaler_rl.decision.rule import DEFAULT_SETTINGS, RuleSettings, rule_replicas
from rlscaler_rl.decision.samples import arrivals_known, known
from rlscaler_rl.decision.traffic import traffic_weights
from rlscaler_rl.decision.types import (
    Bool,
    Decision,
    FallbackBehavior,
    Flag,
    Float32,
    Int,
    Observation,
    Params,
    Samples,
    State,
)

NO_ACTION = np.array([0, 0, -1], np.int32)


@dataclass(slots=True)
class _Guarded:
    """What `_guard` needs to know about a proposal that passed the first guard."""

    proposal: Int  # (N, 2)
    allowed: Int  # (N, 2) after the unknown guard
    flags: Int  # (N,)
    placement: Int  # (N,)
    acting: bool  # an action interval, not just a sensing tick


def act(
    params: Params,
    state: State,
    samples: Samples,
    observation: Observation,
    action: Int,
    actor_ok: Bool,
    probabilities: Float32 | None = None,
    residual: bool = False,
    *,
    out_of_envelope: Bool | None = None,
    rule: RuleSettings = DEFAULT_SETTINGS,
) -> tuple[Decision, State]:
    """Take the action of one interval.

    `action` (N, 3) is GPU -2..2 and CPU -2..2 steps and the Placement; `actor_ok` (N,) is false where no actor
    ran or its output is unusable. The proposal is `spec_replicas` + action * step_size, in residual mode the
    replicas of the forecast rule (set as `rule`) instead of `spec_replicas`. In rows `out_of_envelope` the fallback
    acts at once.
    """
    outside = np.zeros(len(actor_ok), np.bool_) if out_of_envelope is None else out_of_envelope
    ran = actor_ok & ~outside
    base = _base(params, samples)
    start = rule_replicas(params, state, samples, rule) if residual else base
    asked = np.maximum(start + action[:, :2] * params.step_size, 0)
    proposal = np.where(ran[:, None] & params.present, asked, base)

    failed = observation.required_unknown | ~ran
    intervals = np.where(failed, state.unknown_intervals + 1, 0).astype(np.int32)
    falls_back = outside | (failed & (intervals >= params.failure_threshold))
    no_capacity = capacity_unknown(params)
    allowed = np.where(no_capacity, np.maximum(proposal, base), proposal)
    allowed = np.where(failed[:, None], base, allowed)
    if falls_back.any():
        fallback = _fallback(params, samples, base, observation.required_unknown)
        allowed = np.where(falls_back[:, None], fallback, allowed)

    flags = (
        np.where(failed & ~falls_back, Flag.HELD_UNKNOWN, 0)
        | np.where(falls_back, Flag.FALLBACK, 0)
        | np.where(either(no_capacity), Flag.CAPACITY_UNKNOWN, 0)
        | np.where(outside, Flag.OUT_OF_ENVELOPE, 0)
    ).astype(np.int32)
    placement = np.where(failed | samples.paused, state.placement, action[:, 2]).astype(np.int32)
    state = replace(state, unknown_intervals=intervals)
    guarded = _Guarded(proposal, allowed, flags, placement, acting=True)
    taken = np.where(ran[:, None], action, NO_ACTION).astype(np.int32)
    return _guard(params, state, samples, base, guarded, taken, _or_unknown(probabilities, len(ran)))


def floor_tick(params: Params, state: State, samples: Samples) -> tuple[Decision, State]:
    """Between action intervals: only floor, limits and pause may move replicas; weights follow readiness."""
    n = len(samples.time)
    base = _base(params, samples)
    no_capacity = np.where(either(capacity_unknown(params)), Flag.CAPACITY_UNKNOWN, 0).astype(np.int32)
    guarded = _Guarded(base, base, no_capacity, state.placement, acting=False)
    return _guard(params, state, samples, base, guarded, np.broadcast_to(NO_ACTION, (n, 3)), _or_unknown(None, n))


def _base(params: Params, samples: Samples) -> Int:
    """(N, 2) an own array: `spec_replicas`, 0 for a pool that is not there."""
    return np.where(params.present, samples.spec_replicas, 0).astype(np.int32)


def _or_unknown(probabilities: Float32 | None, n: int) -> Float32:
    if probabilities is None:
        return np.broadcast_to(np.float32(np.nan), (n, LOGITS))
    return probabilities


def _fallback(params: Params, samples: Samples, base: Int, required_unknown: Bool) -> Int:
    """(N, 2) what the user asked for when the actor cannot decide; only `static` may lower on unknown data."""
    kind = params.fallback[:, None]
    utilization = pool_utilization(samples, known(params, samples))
    formula = hpa_formula(samples.ready_replicas, base, utilization, params.target_utilization)
    formula = np.where(required_unknown[:, None], np.maximum(formula, base), formula)
    choice = np.where(kind == FallbackBehavior.HPA_FORMULA, formula, base)
    higher = np.maximum(base, params.fallback_replicas)
    choice = np.where(kind == FallbackBehavior.CURRENT_REPLICAS_IF_HIGHER, higher, choice)
    choice = np.where(kind == FallbackBehavior.STATIC, params.fallback_replicas, choice)
    return np.where(params.present, choice, 0).astype(np.int32)


def _guard(
    params: Params,
    state: State,
    samples: Samples,
    base: Int,
    guarded: _Guarded,
    action: Int,
    probabilities: Float32,
) -> tuple[Decision, State]:
    """Everything after the unknown guard."""
    state = behavior.note_writes(params, state, samples)
    highest = behavior.scale_up_limit(params, state, samples)
    behaved = guarded.allowed
    if guarded.acting:
        behaved = behavior.limited(params, state, samples, behaved, highest)
    floored, hold = _floored(params, state, samples, base, behaved, np.minimum(highest, params.max_replicas))
    bounded = np.where(params.present, floored, 0)
    bounded = np.clip(bounded, params.min_replicas, params.max_replicas) * params.present
    desired = _paused(params, samples, base, bounded)

    lifted = floored != behaved
    recommended = np.where(lifted, np.maximum(guarded.allowed, floored), guarded.allowed)
    state = behavior.remember(params, state, samples, recommended, lifted | guarded.acting)
    state = behavior.expect_write(params, state, samples, desired)

    flags = guarded.flags | _bit(behaved != guarded.allowed, Flag.BEHAVIOR) | _bit(lifted, Flag.FLOOR)
    flags |= _bit(bounded != floored, Flag.LIMITED) | _bit(desired != bounded, Flag.PAUSED)
    staying = np.minimum(samples.ready_replicas, desired)
    weights = traffic_weights(staying, params.requests_per_second, guarded.placement, state.weights)
    stages = [guarded.proposal, guarded.allowed, behaved, floored, bounded, desired]
    decision = Decision(
        action=action,
        probabilities=probabilities,
        base=base,
        trail=np.stack(stages, axis=1),
        desired=desired,
        placement=guarded.placement.copy(),
        weights=weights.copy(),
        flags=flags,
    )
    return decision, replace(state, placement=guarded.placement, weights=weights, floor_hold=hold)


def _bit(changed: Bool, flag: Flag) -> Int:
    return np.where(either(changed), int(flag), 0).astype(np.int32)


def _floored(params: Params, state: State, samples: Samples, base: Int, desired: Int, limit: Int) -> tuple[Int, Int]:
    """(N, 2) `desired` raised to what the load needs now, and the replicas to hold until they were ready once.

    A hold ends when so many were ready, or when `spec_replicas` is below it: then it was never written, or
    somebody took it back.
    """
    held = np.where((samples.ready_replicas >= state.floor_hold) | (base < state.floor_hold), 0, state.floor_hold)
    arrivals = np.where(arrivals_known(params, samples) & params.reactive_floor, samples.arrival_rate, np.nan)
    arrivals = behavior.steady_arrivals(params, state, samples, arrivals)
    rps = np.where(params.present, params.requests_per_second, 0.0)
    unmeasured = either(np.isnan(rps))
    if unmeasured.any():
        arrivals = np.where(unmeasured, np.nan, arrivals)
    facts = (rps, params.target_utilization, params.cold_start_seconds, params.cost_per_hour)
    wanted = floor_replicas(arrivals, np.maximum(desired, held), *facts, limit, base)
    serving = _serving_first(params, samples, wanted)
    starting = serving < wanted
    if starting.any():
        bridged = floor_replicas(arrivals, serving, *facts, np.where(starting, serving, limit), base)
        wanted = np.maximum(wanted, bridged)
    if unmeasured.any():
        utilization = pool_utilization(samples, known(params, samples))
        formula = hpa_formula(samples.ready_replicas, base, utilization, params.target_utilization)
        formula = np.where((unmeasured & params.reactive_floor)[:, None] & params.present, formula, 0)
        wanted = np.maximum(wanted, np.minimum(formula, limit))
    active = params.reactive_floor[:, None]
    floored = np.where(active, wanted, desired)
    added = floored > np.maximum(base, desired)
    hold = np.where(added, floored, held) * active
    return floored.astype(np.int32), hold.astype(np.int32)


def _serving_first(params: Params, samples: Samples, wanted: Int) -> Int:
    """(N, 2) `wanted` without the replicas of the slower pool that are still starting: the quicker one bridges them."""
    slower = params.cold_start_seconds > params.cold_start_seconds[:, ::-1]
    return np.where(slower, np.minimum(wanted, samples.ready_replicas), wanted).astype(np.int32)


def _paused(params: Params, samples: Samples, base: Int, bounded: Int) -> Int:
    """(N, 2) what the pause annotations leave of it, still within the limits."""
    if not (samples.paused.any() or samples.paused_scale_down.any()):
        return bounded
    kept = np.where(samples.paused_replicas >= 0, samples.paused_replicas, base)
    desired = np.where(samples.paused_scale_down[:, None], np.maximum(bounded, base), bounded)
    desired = np.where(samples.paused[:, None], kept, desired)
    return (np.clip(desired, params.min_replicas, params.max_replicas) * params.present).astype(np.int32)
