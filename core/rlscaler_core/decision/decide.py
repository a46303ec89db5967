"""The one decision function: live, in Shadow mode, in evaluation and in replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from rlscaler_core.decision.action import LOGITS, mask_absent, most_likely
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.guards import GUARDS, Guard
from rlscaler_core.decision.observation import ObservationContract, observe, stacked_input
from rlscaler_core.decision.rule import rule_under
from rlscaler_core.decision.shield import Proposal, act, floor_tick
from rlscaler_core.decision.situation import Capacity
from rlscaler_core.decision.types import Bool, Decision, Float32, Observation, Params, Samples, State

Kind = Literal["action", "floor"]
"""What a sensing tick does: an action interval begins, or only the floor and the bounds are looked after."""


def decide(
    params: Params,
    state: State,
    samples: Samples,
    actor: ActorLike | None,
    *,
    capacity: Capacity | None = None,
    guards: Sequence[Guard] = GUARDS,
) -> tuple[Decision, Observation, State]:
    """Observe, ask the actor and shield its answer, N rows at once. Call it once an action interval, after `sense`.

    Nothing that is passed in is changed. The actor's most likely action counts, "no change" for a pool that is not
    there. Rows where the actor fails or gives NaN are held, rows outside its envelope fall back at once. Without an
    actor every row is held, and falls back in time. `capacity` is `capacity_of(params)`, for a caller that keeps it.
    Raises ContractMismatchError where `state` was made for another stack size.
    """
    if actor is None:
        n = len(params.slo_ms)
        observation, state = observe(params, state, samples, ObservationContract(stack_size=state.stack.shape[1]))
        proposal = Proposal(np.zeros((n, 3), np.int32), np.zeros(n, np.bool_))
    else:
        observation, state = observe(params, state, samples, actor.manifest.contract)
        probabilities, usable = _ask(actor, stacked_input(state))
        probabilities = mask_absent(probabilities, params.present)
        outside = actor.manifest.mask(params, samples.age_seconds[:, 0], observation)
        proposal = Proposal(most_likely(probabilities), usable, probabilities, rule_under(actor), outside)
    decision, state = act(params, state, samples, observation, proposal, capacity=capacity, guards=guards)
    return decision, observation, state


def decide_at(
    kind: Kind,
    params: Params,
    state: State,
    samples: Samples,
    actor: ActorLike | None,
    *,
    guards: Sequence[Guard] = GUARDS,
) -> tuple[Decision, Observation | None, State]:
    """Decide what one sensing tick does, after `sense`: `decide` at an action, `floor_tick` between two of them."""
    if kind == "floor":
        decision, state = floor_tick(params, state, samples, guards=guards)
        return decision, None, state
    return decide(params, state, samples, actor, guards=guards)


def _ask(actor: ActorLike, stacked: Float32) -> tuple[Float32, Bool]:
    """Give the probabilities (N, 13) and where (N,) they are usable."""
    try:
        probabilities = actor.probabilities(stacked)
    except ModelError:
        probabilities = np.full((len(stacked), LOGITS), np.nan, np.float32)
    return probabilities, np.isfinite(np.einsum("ij->i", probabilities))
