"""From a proposed action to replicas that are safe to write: the guards, in order.

unknown or failed -> pending -> `behavior` -> reactive floor -> budget -> min and max -> pause. `Decision.trail` holds
the desired replicas after each. `act` runs at action intervals, `floor_tick` at the sensing ticks between them. Both
take the names of guards to leave out, for showing what a guard was worth; nothing that acts leaves one out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision import behavior
from rlscaler_core.decision.action import LOGITS
from rlscaler_core.decision.budget import within_budget
from rlscaler_core.decision.capacity import Capacity, capacity_of
from rlscaler_core.decision.floor import raised_to_load
from rlscaler_core.decision.pairs import either
from rlscaler_core.decision.params import capacity_unknown
from rlscaler_core.decision.pending import spilled, stuck_pools
from rlscaler_core.decision.reactive import hpa_formula, pool_utilization
from rlscaler_core.decision.rule import RuleSettings, rule_replicas
from rlscaler_core.decision.samples import known
from rlscaler_core.decision.traffic import traffic_weights
from rlscaler_core.decision.types import (
    Bool,
    Decision,
    FallbackBehavior,
    Flag,
    Float,
    Float32,
    Int,
    Observation,
    Params,
    Samples,
    State,
)

ALL_GUARDS: frozenset[str] = frozenset()
"""No guard left out."""

NONE_STUCK = np.zeros((1, 2), np.bool_)

NO_ACTION = np.array([0, 0, -1], np.int32)


@dataclass(slots=True)
class _Guarded:
    """What `_guard` needs to know about a proposal that passed the first guard."""

    proposal: Int  # (N, 2)
    known: Int  # (N, 2) after the unknown guard
    flags: Int  # (N,)
    placement: Int  # (N,)
    acting: bool  # an action interval, not just a sensing tick
    without: frozenset[str]  # guards that are left out


class _Outcome(NamedTuple):
    """Desired replicas (N, 2) after each guard, and what follows."""

    base: Int
    pended: Int
    behaved: Int
    floored: Int
    paid: Int
    bounded: Int
    desired: Int
    weights: Int
    flags: Int


def act(
    params: Params,
    state: State,
    samples: Samples,
    observation: Observation,
    action: Int,
    actor_ok: Bool,
    probabilities: Float32 | None = None,
    rule: RuleSettings | None = None,
    *,
    out_of_envelope: Bool | None = None,
    capacity: Capacity | None = None,
    without: frozenset[str] = ALL_GUARDS,
) -> tuple[Decision, State]:
    """Take the action of one interval.

    `action` (N, 3) is GPU -2..2 and CPU -2..2 steps and the Placement; `actor_ok` (N,) is false where no actor
    ran or its output is unusable. The proposal is `spec_replicas` + action * step_size; with a `rule` (residual
    mode) the replicas of that forecast rule instead of `spec_replicas`. In rows `out_of_envelope` the fallback
    acts at once.
    `capacity` is `capacity_of(params)`, where the caller keeps it; `without` are guards (of `GUARDS`) to leave out.
    """
    capacity = capacity or capacity_of(params)
    outside = np.zeros(len(actor_ok), np.bool_) if out_of_envelope is None else out_of_envelope
    ran = actor_ok & ~outside
    base = _base(params, samples)
    start = base if rule is None else rule_replicas(params, state, samples, rule)
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
    if "unknown" in without:
        allowed = proposal

    flags = (
        np.where(failed & ~falls_back, Flag.HELD_UNKNOWN, 0)
        | np.where(falls_back, Flag.FALLBACK, 0)
        | np.where(either(no_capacity), Flag.CAPACITY_UNKNOWN, 0)
        | np.where(outside, Flag.OUT_OF_ENVELOPE, 0)
    ).astype(np.int32)
    placement = np.where(failed | samples.paused, state.placement, action[:, 2]).astype(np.int32)
    state = replace(state, unknown_intervals=intervals)
    guarded = _Guarded(proposal, allowed, flags, placement, acting=True, without=without)
    outcome, state = _guard(params, state, samples, base, guarded, capacity)
    taken = np.where(ran[:, None], action, NO_ACTION).astype(np.int32)
    return _decision(outcome, guarded, taken, _or_unknown(probabilities, len(ran))), state


def floor_tick(
    params: Params, state: State, samples: Samples, *, without: frozenset[str] = ALL_GUARDS
) -> tuple[Decision, State]:
    """Between action intervals: only floor, budget, limits and pause may move replicas; weights follow readiness."""
    n = len(samples.time)
    guarded, outcome, state = _tick(params, state, samples, capacity_of(params), without)
    nothing = np.broadcast_to(NO_ACTION, (n, 3))
    return _decision(outcome, guarded, nothing, _or_unknown(None, n)), state


def unexplained_floor_tick(
    params: Params, state: State, samples: Samples, capacity: Capacity
) -> tuple[Int, Int, State]:
    """Desired replicas (N, 2) and weights (N, 2) of `floor_tick`, without the account of who changed what.

    `capacity` is `capacity_of(params)`.
    """
    _, outcome, state = _tick(params, state, samples, capacity, ALL_GUARDS)
    return outcome.desired, outcome.weights, state


def _tick(
    params: Params, state: State, samples: Samples, capacity: Capacity, without: frozenset[str]
) -> tuple[_Guarded, _Outcome, State]:
    base = _base(params, samples)
    no_capacity = np.where(capacity.unmeasured, np.int32(Flag.CAPACITY_UNKNOWN), np.int32(0))
    guarded = _Guarded(base, base, no_capacity, state.placement, acting=False, without=without)
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
    without, flags = guarded.without, guarded.flags
    limit = params.max_replicas
    pended = guarded.known
    stuck = NONE_STUCK if "pending" in without else stuck_pools(params, samples)
    if stuck.any():
        pended = spilled(params, base, pended, stuck, capacity)
        flags = flags | _bit(stuck, Flag.PENDING)
    behaved = pended
    with_behavior = "behavior" not in without and bool(params.has_behavior.any())
    if with_behavior:
        state = behavior.note_writes(params, state, samples)
        highest = behavior.scale_up_limit(params, state, samples)
        limit = np.minimum(highest, limit)
        if guarded.acting:
            behaved = behavior.limited(params, state, samples, pended, highest)
    floored, hold = behaved, state.floor_hold
    if "floor" not in without:
        floored, hold = raised_to_load(params, state, samples, base, behaved, limit, capacity, stuck)
    paid, kept = floored, state.budget_kept
    if "budget" not in without and _budgeted(params, state):
        paid, limited, kept = _paid(params, state, base, floored, capacity)
        flags = flags | limited * np.int32(Flag.BUDGET_LIMITED)
    bounded = paid if "limits" in without else _within_limits(params, paid)
    desired = bounded if "pause" in without else _paused(params, samples, base, bounded)
    if with_behavior:
        lifted = floored != behaved
        recommended = np.where(lifted, np.maximum(pended, floored), pended)
        state = behavior.remember(params, state, samples, recommended, lifted | guarded.acting)
        state = behavior.expect_write(params, state, samples, desired)
    staying = np.minimum(samples.ready_replicas, desired)
    weights = traffic_weights(staying, params.requests_per_second, guarded.placement, state.weights)
    outcome = _Outcome(base, pended, behaved, floored, paid, bounded, desired, weights, flags)
    return outcome, replace(state, placement=guarded.placement, weights=weights, floor_hold=hold, budget_kept=kept)


def _budgeted(params: Params, state: State) -> bool:
    """Has any row a budget, or had one?"""
    return bool(np.isfinite(params.budget_per_hour).any() or np.isfinite(state.budget_kept).any())


def _paid(params: Params, state: State, base: Int, floored: Int, capacity: Capacity) -> tuple[Int, Bool, Float]:
    """The budget guard; what it leaves alone is bounded by the limits only after it."""
    bounded = _within_limits(params, floored)
    paid, limited, kept = within_budget(params, state, _within_limits(params, base), bounded, capacity)
    return np.where(limited[:, None], paid, floored).astype(np.int32, copy=False), limited, kept


def _decision(outcome: _Outcome, guarded: _Guarded, action: Int, probabilities: Float32) -> Decision:
    """The outcome with the account of what each guard changed."""
    base, pended, behaved, floored, paid, bounded, desired, weights, flags = outcome
    flags = flags | _bit(behaved != pended, Flag.BEHAVIOR) | _bit(floored != behaved, Flag.FLOOR)
    flags |= _bit(bounded != paid, Flag.LIMITED) | _bit(desired != bounded, Flag.PAUSED)
    trail = [guarded.proposal, guarded.known, pended, behaved, floored, paid, bounded, desired]
    return Decision(
        action=action,
        probabilities=probabilities,
        base=base,
        trail=np.stack(trail, axis=1),
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


def _paused(params: Params, samples: Samples, base: Int, bounded: Int) -> Int:
    """(N, 2) what the pause annotations leave of it, still within the limits."""
    if not (samples.paused.any() or samples.paused_scale_down.any()):
        return bounded
    kept = np.where(samples.paused_replicas >= 0, samples.paused_replicas, base)
    desired = np.where(samples.paused_scale_down[:, None], np.maximum(bounded, base), bounded)
    desired = np.where(samples.paused[:, None], kept, desired)
    return _within_limits(params, desired).astype(np.int32, copy=False)
