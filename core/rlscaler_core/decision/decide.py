"""The one decision function: live, in Shadow mode, in evaluation and in replay."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.action import LOGITS, mask_absent, most_likely
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.observation import observe, stacked_input
from rlscaler_core.decision.rule import rule_under
from rlscaler_core.decision.shield import ALL_GUARDS, act
from rlscaler_core.decision.types import Bool, Decision, Float32, Observation, Params, Samples, State


def decide(
    params: Params, state: State, samples: Samples, actor: ActorLike, *, without: frozenset[str] = ALL_GUARDS
) -> tuple[Decision, Observation, State]:
    """Observe, ask the actor, shield its answer. Once an action interval, after `sense`; N rows at once.

    Nothing that is passed in is changed. The actor's most likely action counts, "no change" for a pool that is not
    there. Rows where the actor fails or gives NaN are held, rows outside its envelope fall back at once.
    Raises ContractMismatchError where `state` was made for another stack size.
    """
    manifest = actor.manifest
    observation, state = observe(params, state, samples, manifest.contract)
    probabilities, usable = _ask(actor, stacked_input(state))
    probabilities = mask_absent(probabilities, params.present)
    outside = manifest.mask(params, samples.age_seconds[:, 0], observation)
    decision, state = act(
        params,
        state,
        samples,
        observation,
        most_likely(probabilities),
        usable,
        probabilities,
        rule_under(actor),
        out_of_envelope=outside,
        without=without,
    )
    return decision, observation, state


def _ask(actor: ActorLike, stacked: Float32) -> tuple[Float32, Bool]:
    """(N, 13) probabilities and (N,) where they are usable."""
    try:
        probabilities = actor.probabilities(stacked)
    except ModelError:
        probabilities = np.full((len(stacked), LOGITS), np.nan, np.float32)
    return probabilities, np.isfinite(np.einsum("ij->i", probabilities))
