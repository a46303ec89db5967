"""The shield makes a proposed action into replicas that are safe to write: it runs the table of guards.

`act` runs at action intervals, `floor_tick` at the sensing ticks between them. Both can be given another table than
`GUARDS`, to show what a guard was worth; nothing that acts does so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlscaler_core.decision.action import LOGITS, PREFERENCE, traffic_weights
from rlscaler_core.decision.guards import GUARDS, Guard
from rlscaler_core.decision.rule import Plan, RuleSettings, rule_plan, rule_split
from rlscaler_core.decision.situation import Capacity, Doubt, Situation, capacity_of
from rlscaler_core.decision.types import (
    Bool,
    Decision,
    Flag,
    Float32,
    Int,
    Observation,
    Params,
    Samples,
    State,
    either,
)

NO_ACTION = np.array([0, 0, -1], np.int32)
"""What `Decision.action` holds in rows in which no actor ran."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What an actor asks for in one interval."""

    action: Int
    """(N, 3) GPU steps -2..2, CPU steps -2..2 and the Placement."""

    usable: Bool
    """(N,) False where no actor ran or where its output is unusable."""

    probabilities: Float32 | None = None
    """(N, 13) those that the action was chosen by; None = there are none."""

    rule: RuleSettings | None = None
    """The forecast rule to whose replicas the action is added (residual mode); None = to `spec_replicas`."""

    outside: Bool | None = None
    """(N,) where the service is outside the actor's envelope, so that the fallback acts at once; None = in no row."""


def act(
    params: Params,
    state: State,
    samples: Samples,
    observation: Observation,
    proposal: Proposal,
    *,
    capacity: Capacity | None = None,
    guards: Sequence[Guard] = GUARDS,
) -> tuple[Decision, State]:
    """Take the action of one interval, N rows at once. Nothing that is passed in is changed.

    The desired replicas are `spec_replicas` (or those of the proposal's rule) + action * step_size, after the guards.
    `capacity` is `capacity_of(params)`, for a caller that keeps it.
    """
    capacity = capacity or capacity_of(params)
    outside = np.zeros(len(proposal.usable), np.bool_) if proposal.outside is None else proposal.outside
    ran = proposal.usable & ~outside
    base = _base(params, samples)
    plan = None if proposal.rule is None else rule_plan(params, state, samples, proposal.rule)
    start = base if plan is None else plan.replicas
    moved = np.maximum(start + proposal.action[:, :2] * params.step_size, 0)
    asked = np.where(ran[:, None] & params.present, moved, base)

    failed = observation.required_unknown | ~ran
    intervals = np.where(failed, state.unknown_intervals + 1, 0).astype(np.int32)
    doubt = Doubt(observation.required_unknown, failed, outside | (failed & (intervals >= params.failure_threshold)))
    state = replace(state, unknown_intervals=intervals)
    now = _situation(params, state, samples, base, capacity, doubt)
    now.set_flag(Flag.OUT_OF_ENVELOPE, outside)
    trail = _run(guards, now, asked)
    _place(now, trail[-1], proposal, plan, failed | samples.paused)
    _weigh(now, trail[-1])
    taken = np.where(ran[:, None], proposal.action, NO_ACTION).astype(np.int32)
    return _decision(guards, now, trail, taken, proposal.probabilities), now.state


def floor_tick(
    params: Params,
    state: State,
    samples: Samples,
    *,
    capacity: Capacity | None = None,
    guards: Sequence[Guard] = GUARDS,
) -> tuple[Decision, State]:
    """Decide between two action intervals, N rows at once.

    Only floor, budget, limits and pause may move replicas; the traffic weights follow readiness. `capacity` is as in
    `act`.
    """
    now, trail = _tick(guards, params, state, samples, capacity or capacity_of(params))
    nothing = np.broadcast_to(NO_ACTION, (len(samples.time), 3))
    return _decision(guards, now, trail, nothing, None), now.state


def unexplained_floor_tick(
    params: Params, state: State, samples: Samples, capacity: Capacity
) -> tuple[Int, Int, State]:
    """Give desired replicas (N, 2), weights (N, 2) and state of `floor_tick`, without the account of what changed them.

    `capacity` is `capacity_of(params)`.
    """
    now, trail = _tick(GUARDS, params, state, samples, capacity)
    return trail[-1], now.state.weights, now.state


def _place(now: Situation, desired: Int, proposal: Proposal, plan: Plan | None, stays: Bool) -> None:
    """Say in the state which pool the traffic prefers, and how much; as before where it `stays` (N,)."""
    state, placement, preference = now.state, proposal.action[:, 2], np.full(len(stays), PREFERENCE.max())
    if plan is not None and proposal.rule is not None:
        staying = np.minimum(now.samples.ready_replicas, desired)
        splits, pool, more = rule_split(now.params, state, now.samples, staying, plan, proposal.rule, placement)
        placement, preference = np.where(splits, pool, placement), np.where(splits, more, preference)
    state.placement = np.where(stays, state.placement, placement).astype(np.int32)
    state.preference = np.where(stays, state.preference, preference)


def _weigh(now: Situation, desired: Int) -> None:
    """Turn the placement in force into weights."""
    state, staying = now.state, np.minimum(now.samples.ready_replicas, desired)
    rps = now.params.requests_per_second
    state.weights = traffic_weights(staying, rps, state.placement, state.weights, state.preference)


def _tick(
    guards: Sequence[Guard], params: Params, state: State, samples: Samples, capacity: Capacity
) -> tuple[Situation, list[Int]]:
    base = _base(params, samples)
    now = _situation(params, replace(state), samples, base, capacity, None)
    trail = _run(guards, now, base)
    _weigh(now, trail[-1])
    return now, trail


def _situation(
    params: Params, state: State, samples: Samples, base: Int, capacity: Capacity, doubt: Doubt | None
) -> Situation:
    flags = np.where(capacity.unmeasured, np.int32(Flag.CAPACITY_UNKNOWN), np.int32(0))
    return Situation(params, samples, capacity, base, doubt, state, flags, params.max_replicas)


def _base(params: Params, samples: Samples) -> Int:
    """Give the replicas (N, 2) that an action starts from, as an array of its own; 0 for a pool that is not there."""
    return np.multiply(samples.spec_replicas, params.present, dtype=np.int32, casting="unsafe")


def _run(guards: Sequence[Guard], now: Situation, asked: Int) -> list[Int]:
    """Give the replicas (N, 2) as asked for and after each guard."""
    trail = [asked]
    for guard in guards:
        trail.append(guard.apply(now, trail[-1]))
    desired = trail[-1]
    for guard in guards:
        if guard.settle is not None:
            guard.settle(now, desired)
    return trail


def _decision(
    guards: Sequence[Guard], now: Situation, trail: list[Int], action: Int, probabilities: Float32 | None
) -> Decision:
    """Give the decision with the account of what each guard changed."""
    flags = now.flags
    for guard, before, after in zip(guards, trail[:-1], trail[1:], strict=True):
        if guard.changes and after is not before:
            flags = flags | either(after != before) * np.int32(guard.changes)
    unknown = np.broadcast_to(np.float32(np.nan), (len(action), LOGITS))
    return Decision(
        action=action,
        probabilities=unknown if probabilities is None else probabilities,
        base=now.base,
        trail=np.stack(trail, axis=1),
        desired=trail[-1],
        placement=now.state.placement.copy(),
        weights=now.state.weights.copy(),
        flags=flags,
    )
