"""From a proposed action to replicas that are safe to write: the guards, in order.

unknown or failed -> `behavior` -> reactive floor -> min and max -> pause. `Decision.trail` holds the desired
replicas after each. `act` runs at action intervals, `floor_tick` at the sensing ticks between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rlscaler_rl.decision import behavior
from rlscaler_rl.decision.action import LOGITS
from rlscaler_rl.decision.capacity import Capacity, capacity_of
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


class _Outcome(NamedTuple):
    """Desired replicas (N, 2) after each guard, and what follows."""

    base: Int
    behaved: Int
    floored: Int
    bounded: Int
    desired: Int
    weights: Int


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
    capacity: Capacity | None = None,
) -> tuple[Decision, State]:
    """Take the action of one interval.

    `action` (N, 3) is GPU -2..2 and CPU -2..2 steps and the Placement; `actor_ok` (N,) is false where no actor
    ran or its output is unusable. The proposal is `spec_replicas` + action * step_size, in residual mode the
    replicas of the forecast rule (set as `rule`) instead of `spec_replicas`. In rows `out_of_envelope` the fallback
    acts at once.
    `capacity` is `capacity_of(params)`, where the caller keeps it.
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
    outcome, state = _guard(params, state, samples, base, guarded, capacity or capacity_of(params))
    taken = np.where(ran[:, None], action, NO_ACTION).astype(np.int32)
    return _decision(outcome, guarded, taken, _or_unknown(probabilities, len(ran))), state


def floor_tick(params: Params, state: State, samples: Samples) -> tuple[Decision, State]:
    """Between action intervals: only floor, limits and pause may move replicas; weights follow readiness."""
    n = len(samples.time)
    guarded, outcome, state = _tick(params, state, samples, capacity_of(params))
    nothing = np.broadcast_to(NO_ACTION, (n, 3))
    return _decision(outcome, guarded, nothing, _or_unknown(None, n)), state


def unexplained_floor_tick(
    params: Params, state: State, samples: Samples, capacity: Capacity
) -> tuple[Int, Int, State]:
    """Desired replicas (N, 2) and weights (N, 2) of `floor_tick`, without the account of who changed what.

    `capacity` is `capacity_of(params)`.
    """
    _, outcome, state = _tick(params, state, samples, capacity)
    return outcome.desired, outcome.weights, state


def _tick(params: Params, state: State, samples: Samples, capacity: Capacity) -> tuple[_Guarded, _Outcome, State]:
    base = _base(params, samples)
    no_capacity = np.where(capacity.unmeasured, np.int32(Flag.CAPACITY_UNKNOWN), np.int32(0))
    guarded = _Guarded(base, base, no_capacity, state.placement, acting=False)
    outcome, state = _guard(params, state, samples, base, guarded, capacity)
    return guarded, outcome, state


def _base(params: Params, samples: Samples) -> Int:
    """(N, 2) an own array: `spec_replicas`, 0 for a pool that is not there."""
    return np.multiply(samples.spec_replicas, params.present, dtype=np.int32, casting="unsafe")


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
    params: Params, state: State, samples: Samples, base: Int, guarded: _Guarded, capacity: Capacity
) -> tuple[_Outcome, State]:
    """Everything after the unknown guard."""
    allowed = behaved = guarded.allowed
    limit = params.max_replicas
    with_behavior = bool(params.has_behavior.any())
    if with_behavior:
        state = behavior.note_writes(params, state, samples)
        highest = behavior.scale_up_limit(params, state, samples)
        limit = np.minimum(highest, limit)
        if guarded.acting:
            behaved = behavior.limited(params, state, samples, allowed, highest)
    floored, hold = _floored(params, state, samples, base, behaved, limit, capacity)
    bounded = _within_limits(params, floored)
    desired = _paused(params, samples, base, bounded)
    if with_behavior:
        lifted = floored != behaved
        recommended = np.where(lifted, np.maximum(allowed, floored), allowed)
        state = behavior.remember(params, state, samples, recommended, lifted | guarded.acting)
        state = behavior.expect_write(params, state, samples, desired)
    staying = np.minimum(samples.ready_replicas, desired)
    weights = traffic_weights(staying, params.requests_per_second, guarded.placement, state.weights)
    outcome = _Outcome(base, behaved, floored, bounded, desired, weights)
    return outcome, replace(state, placement=guarded.placement, weights=weights, floor_hold=hold)


def _decision(outcome: _Outcome, guarded: _Guarded, action: Int, probabilities: Float32) -> Decision:
    """The outcome with the account of what each guard changed."""
    _, behaved, floored, bounded, desired, weights = outcome
    flags = guarded.flags | _bit(behaved != guarded.allowed, Flag.BEHAVIOR) | _bit(floored != behaved, Flag.FLOOR)
    flags |= _bit(bounded != floored, Flag.LIMITED) | _bit(desired != bounded, Flag.PAUSED)
    return Decision(
        action=action,
        probabilities=probabilities,
        base=outcome.base,
        trail=np.stack([guarded.proposal, guarded.allowed, behaved, floored, bounded, desired], axis=1),
        desired=desired,
        placement=guarded.placement.copy(),
        weights=weights.copy(),
        flags=flags,
    )


def _bit(changed: Bool, flag: Flag) -> Int:
    return either(changed) * np.int32(flag)


def _within_limits(params: Params, replicas: Int) -> Int:
    """(N, 2) 0 for a pool that is not there."""
    bounded: Int = np.minimum(np.maximum(replicas, params.min_replicas), params.max_replicas) * params.present
    return bounded


def _floored(
    params: Params, state: State, samples: Samples, base: Int, desired: Int, limit: Int, capacity: Capacity
) -> tuple[Int, Int]:
    """(N, 2) `desired` raised to what the load needs now, and the replicas to hold until they were ready once.

    A hold ends when so many were ready, or when `spec_replicas` is below it: then it was never written, or
    somebody took it back.
    """
    hold = state.floor_hold
    held = np.where((samples.ready_replicas >= hold) | (base < hold), 0, hold)
    follows = arrivals_known(params, samples) & params.reactive_floor
    unmeasured = bool(capacity.unmeasured.any())
    if unmeasured:
        follows &= ~capacity.unmeasured
    arrivals = np.where(follows, samples.arrival_rate, np.nan)
    arrivals = behavior.steady_arrivals(params, state, samples, arrivals)
    wanted = floor_replicas(arrivals, np.maximum(desired, held), capacity, limit, base)
    serving = np.where(capacity.slower, np.minimum(wanted, samples.ready_replicas), wanted)
    starting = serving < wanted
    if starting.any():
        bridged = floor_replicas(arrivals, serving, capacity, np.where(starting, serving, limit), base)
        wanted = np.maximum(wanted, bridged)
    if unmeasured:
        utilization = pool_utilization(samples, known(params, samples))
        formula = hpa_formula(samples.ready_replicas, base, utilization, params.target_utilization)
        formula = np.where((capacity.unmeasured & params.reactive_floor)[:, None] & params.present, formula, 0)
        wanted = np.maximum(wanted, np.minimum(formula, limit))
    active = params.reactive_floor[:, None]
    floored = np.where(active, wanted, desired)
    added = floored > np.maximum(base, desired)
    hold = np.where(added, floored, held) * active
    return floored.astype(np.int32, copy=False), hold.astype(np.int32, copy=False)


def _paused(params: Params, samples: Samples, base: Int, bounded: Int) -> Int:
    """(N, 2) what the pause annotations leave of it, still within the limits."""
    if not (samples.paused.any() or samples.paused_scale_down.any()):
        return bounded
    kept = np.where(samples.paused_replicas >= 0, samples.paused_replicas, base)
    desired = np.where(samples.paused_scale_down[:, None], np.maximum(bounded, base), bounded)
    desired = np.where(samples.paused[:, None], kept, desired)
    return _within_limits(params, desired).astype(np.int32, copy=False)
