"""The one decision function: training, evaluation, replay, Shadow mode and live all call `decide`.

It goes through four stages: observe, ask the actor, let the guards make safe replicas of its answer, account for each
change. Between two action intervals the first two are left out, and training brings its own answer to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from rlscaler_core.decision.action import LOGITS, PREFERENCE, mask_absent, most_likely, traffic_weights
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.belief import believed, below_declared
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.guards import GUARDS, Guard
from rlscaler_core.decision.headroom import factors, model_number, move, neutral, steps_of_mean
from rlscaler_core.decision.observation import ObservationContract, observe, stacked_input
from rlscaler_core.decision.rule import Plan, RuleSettings, rule_plan, rule_split, rule_under
from rlscaler_core.decision.situation import Capacity, Doubt, Situation, capacity_of
from rlscaler_core.decision.types import (
    Bool,
    Decision,
    Flag,
    Float32,
    Int,
    Observation,
    Params,
    Placement,
    Samples,
    State,
    either,
)

Kind = Literal["action", "floor"]
"""A sensing tick at which an action interval begins, or one between two, at which only the guards run."""

NO_ACTION = np.array([0, 0, -1], np.int32)
"""`Decision.action` of rows in which no actor ran."""

RULE_ALONE = np.array([0, 0, Placement.BALANCED], np.int32)
"""Action that leaves replicas and traffic to the rule."""

_PREFERS = float(PREFERENCE.max())


@dataclass(frozen=True, slots=True)
class Proposal:
    """The answer of an actor in one action interval, before any guard."""

    observation: Observation
    """The observation that the action was chosen by."""

    action: Int
    """(N, 3) GPU steps -2..2, CPU steps -2..2 and the traffic preference, a Placement."""

    rule: RuleSettings | None = None
    """The forecast rule to whose replicas the action is added (residual mode); None = to `spec_replicas`."""

    probabilities: Float32 | None = None
    """(N, 13) those that the action was chosen by; None = there are none."""

    usable: Bool | None = None
    """(N,) False where no actor ran or where its output is unusable; None = usable in every row."""

    outside: Bool | None = None
    """(N,) where the service is outside the actor's envelope: the rule alone acts where the actor's steps move its
    headroom, otherwise the fallback acts at once; None = in no row."""

    model: float = 0.0
    """The `headroom.model_number` of the actor, whose headroom no other actor takes over."""


class Decided(NamedTuple):
    """Result of `decide`."""

    decision: Decision
    observation: Observation | None
    """None at a tick of kind "floor"."""
    state: State
    """The state for the next tick."""


def decide(
    params: Params,
    state: State,
    samples: Samples,
    by: ActorLike | Proposal | None = None,
    *,
    kind: Kind = "action",
    capacity: Capacity | None = None,
    guards: Sequence[Guard] = GUARDS,
    explain: bool = True,
) -> Decided:
    """Decide one sensing tick of N rows at once, after `sense`. No argument is changed.

    At an action the desired replicas are those of the actor's rule with the headroom that its steps have moved, or
    where its steps do not last `spec_replicas` (or those of the rule) + action * step_size, after the guards. `by` is
    an actor, of which the most likely action counts, or where steps last the mean step; "no change" for an absent
    pool. Or `by` is a `Proposal` that a caller made after `observe`, as training does. Rows where the actor fails or
    returns NaN are held. Rows outside its envelope are decided by its rule alone where its steps last, and fall back at
    once where they do not. Without an actor every row is held, and falls back after `failure_threshold` intervals.
    At kind "floor" only floor, budget, limits and pause may move replicas, the traffic weights follow readiness, and
    `by` is not used.

    Rule, guards and weights go by the believed capacity of a replica, which `observe` moves at an action. `capacity` is
    `capacity_of(params)`, for a caller that keeps it, and is not used where a capacity is learned. Only a study of a
    guard's worth passes other `guards`. Without `explain` the decision has a `trail` of no columns and no flags, which
    saves a sixth of the time of a floor tick. Raises ContractMismatchError where `state` was made for another stack
    size.
    """
    base = _base(params, samples)
    if kind == "floor":
        params, capacity = _believed(params, state, capacity)
        now = _situation(params, samples, capacity, base, None, replace(state))
        trail = _run(guards, now, base)
        _weigh(now, trail[-1])
        none = np.full((len(base), 3), NO_ACTION)
        return Decided(_decision(guards, now, trail, none, None, explain), None, now.state)
    if isinstance(by, Proposal):
        proposal = by
    else:
        proposal, state = _propose(params, state, samples, by)
    params, capacity = _believed(params, state, capacity)
    doubt, ran, by_rule, state = _doubt(params, state, proposal)
    if by_rule.any():
        proposal = replace(proposal, action=np.where(by_rule[:, None], RULE_ALONE, proposal.action))
    steps, headroom = proposal.action[:, :2], None
    if proposal.rule is not None and proposal.rule.lasting:
        state = move(params, state, samples, steps, proposal.model, ~doubt.failed, doubt.falls_back | by_rule)
        steps, headroom = np.zeros_like(steps), factors(state)
    else:
        state = neutral(state)
    plan = None if proposal.rule is None else rule_plan(params, state, samples, proposal.rule, headroom)
    start = base if plan is None else plan.replicas
    moved = np.maximum(start + steps * params.step_size, 0)
    now = _situation(params, samples, capacity, base, doubt, state)
    if proposal.outside is not None:
        now.set_flag(Flag.OUT_OF_ENVELOPE, proposal.outside)
    trail = _run(guards, now, np.where(ran[:, None] & params.present, moved, base))
    _prefer(now, trail[-1], proposal, plan, doubt.failed | samples.paused)
    _weigh(now, trail[-1])
    taken = np.where((ran & ~by_rule)[:, None], proposal.action, NO_ACTION).astype(np.int32)
    decision = _decision(guards, now, trail, taken, proposal.probabilities, explain)
    return Decided(decision, proposal.observation, now.state)


def _propose(params: Params, state: State, samples: Samples, actor: ActorLike | None) -> tuple[Proposal, State]:
    """Observe and ask the actor; return its answer and the state that remembers the observation."""
    if actor is None:
        n = len(params.slo_ms)
        observation, state = observe(params, state, samples, ObservationContract(stack_size=state.stack.shape[1]))
        return Proposal(observation, np.zeros((n, 3), np.int32), usable=np.zeros(n, np.bool_)), state
    observation, state = observe(params, state, samples, actor.manifest.contract)
    stacked = stacked_input(state)
    try:
        probabilities = actor.probabilities(stacked)
    except ModelError:
        probabilities = np.full((len(stacked), LOGITS), np.nan, np.float32)
    # A NaN or an infinity in any column makes the sum of the row one.
    usable = np.isfinite(np.einsum("ij->i", probabilities))
    probabilities = mask_absent(probabilities, params.present)
    outside = actor.manifest.mask(params, samples.age_seconds[:, 0], observation)
    proposal, state = proposed_by(actor, state, observation, probabilities)
    return replace(proposal, probabilities=probabilities, usable=usable, outside=outside), state


def proposed_by(
    actor: ActorLike, state: State, observation: Observation, probabilities: Float32
) -> tuple[Proposal, State]:
    """Return the proposal of an actor that answers an observation with `probabilities` (N, 13), and the state after it.

    Absent pools are masked.
    """
    action, rule, model = most_likely(probabilities), rule_under(actor), model_number(actor.manifest.digest)
    if rule is not None and rule.lasting:
        action[:, :2], state = steps_of_mean(state, probabilities, model)
    return Proposal(observation, action, rule, model=model), state


def _doubt(params: Params, state: State, proposal: Proposal) -> tuple[Doubt, Bool, Bool, State]:
    """Return the doubts of an action, where (N,) its proposal counts, where (N,) the rule beneath it decides alone, and
    the state that counts failed intervals."""
    unknown = proposal.observation.required_unknown
    usable = np.ones(len(unknown), np.bool_) if proposal.usable is None else proposal.usable
    outside = np.zeros(len(unknown), np.bool_) if proposal.outside is None else proposal.outside
    # A rule has no envelope: without the steps of a network it acts everywhere.
    by_rule = outside & (proposal.rule is not None and proposal.rule.lasting)
    ran = (usable & ~outside) | by_rule
    failed = unknown | ~ran
    intervals = np.where(failed, state.unknown_intervals + 1, 0).astype(np.int32)
    doubt = Doubt(unknown, failed, (outside & ~by_rule) | (failed & (intervals >= params.failure_threshold)))
    return doubt, ran, by_rule, replace(state, unknown_intervals=intervals)


def _believed(params: Params, state: State, capacity: Capacity | None) -> tuple[Params, Capacity]:
    """Return the parameters with the believed capacity of a replica, and the `Capacity` that follows."""
    own = believed(params, state)
    return own, capacity if capacity is not None and own is params else capacity_of(own)


def _situation(
    params: Params, samples: Samples, capacity: Capacity, base: Int, doubt: Doubt | None, state: State
) -> Situation:
    """Return the facts that the guards read. `state` has to be a table of the caller's own: guards assign columns."""
    flags = np.where(capacity.unmeasured, np.int32(Flag.CAPACITY_UNKNOWN), np.int32(0))
    if params.learns_capacity.any():
        flags |= either(below_declared(params, state)) * np.int32(Flag.CAPACITY_BELOW_DECLARED)
    return Situation(params, samples, capacity, base, doubt, state, flags, params.max_replicas)


def _base(params: Params, samples: Samples) -> Int:
    """Return the replicas (N, 2) that an action starts from, as an array of its own; 0 for an absent pool."""
    return np.multiply(samples.spec_replicas, params.present, dtype=np.int32, casting="unsafe")


def _run(guards: Sequence[Guard], now: Situation, proposed: Int) -> list[Int]:
    """Return the replicas (N, 2) as asked for and after each guard."""
    trail = [proposed]
    for guard in guards:
        trail.append(guard.apply(now, trail[-1]))
    desired = trail[-1]
    for guard in guards:
        if guard.settle is not None:
            guard.settle(now, desired)
    return trail


def _prefer(now: Situation, desired: Int, proposal: Proposal, plan: Plan | None, stays: Bool) -> None:
    """Set in the state which pool the traffic prefers, and how much; unchanged where it `stays` (N,)."""
    state, placement, preference = now.state, proposal.action[:, 2], np.full(len(stays), _PREFERS)
    if plan is not None and proposal.rule is not None:
        staying = np.minimum(now.samples.ready_replicas, desired)
        splits, pool, more = rule_split(now.params, state, now.samples, staying, plan, proposal.rule, placement)
        placement, preference = np.where(splits, pool, placement), np.where(splits, more, preference)
    state.placement = np.where(stays, state.placement, placement).astype(np.int32)
    state.preference = np.where(stays, state.preference, preference)


def _weigh(now: Situation, desired: Int) -> None:
    """Turn the traffic preference in force into weights. Replicas about to be removed get no traffic any more."""
    state, staying = now.state, np.minimum(now.samples.ready_replicas, desired)
    rps = now.params.requests_per_second
    state.weights = traffic_weights(staying, rps, state.placement, state.weights, state.preference)


def _decision(
    guards: Sequence[Guard],
    now: Situation,
    trail: list[Int],
    action: Int,
    probabilities: Float32 | None,
    explain: bool,
) -> Decision:
    """Return the decision, with the changes of each guard where `explain` asks for them."""
    if probabilities is None:
        probabilities = np.full((len(action), LOGITS), np.nan, np.float32)
    state, desired = now.state, trail[-1]
    if not explain:
        none, trail_of_none = np.zeros(len(action), np.int32), np.empty((len(action), 0, 2), np.int32)
        return Decision(action, probabilities, now.base, trail_of_none, desired, state.placement, state.weights, none)
    flags = now.flags
    for guard, before, after in zip(guards, trail[:-1], trail[1:], strict=True):
        if guard.changes and after is not before:
            flags = flags | either(after != before) * np.int32(guard.changes)
    return Decision(
        action=action,
        probabilities=probabilities,
        base=now.base,
        trail=np.stack(trail, axis=1),
        desired=desired,
        placement=state.placement.copy(),
        weights=state.weights.copy(),
        flags=flags,
    )
