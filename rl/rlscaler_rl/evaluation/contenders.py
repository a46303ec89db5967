"""Who is played: the models, the line-up of the workload, and the pools of equal cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation import equal_cost
from rlscaler_rl.evaluation.board import SEED
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.tuning.errors import TuningError
from rlscaler_rl.evaluation.tuning.lineup import CONTROLS, Entry, lineup

COMPARISON = "comparison"
EVALUATED = (
    "policy",
    "ppo_tuned",
    "ppo_tuned_all",
    "hpa",
    "hpa_tuned",
    "hpa_tuned_all",
    "rule",
    "rule_tuned",
    "rule_tuned_all",
    "keda_tuned",
    *CONTROLS,
    "hindsight",
    "hindsight_tuned",
)
"""Who is played by `evaluate`; `compare` plays everybody, sweeps HPA's target and adds the pools of equal cost."""


def contenders(
    kind: str, loaded: Sequence[Loaded], workload: str | None = None, fold: int | None = None
) -> list[Entry]:
    """The policy first. Names, labels and roles are the same for every workload; how the tuned are set is not.

    `fold`: of a cross-fitted trace the one that is played; the settings come from the other. Raises EvaluationError
    for tuned settings that are out of date.
    """
    policy = loaded[0]
    try:
        everybody = lineup(policy.actor, policy.name, workload=workload, fold=fold, sweep=kind == COMPARISON)
    except TuningError as error:
        raise EvaluationError(str(error)) from error
    if kind != COMPARISON:
        everybody = [entry for entry in everybody if entry.name in EVALUATED]
    siblings = [
        Entry(f"seed_{number}", f"{other.name} (seed {number})", SEED, _always(other.actor))
        for number, other in enumerate(loaded[1:], 2)
    ]
    static = [
        Entry(name, equal_cost.LABELS[name], equal_cost.ROLE, lambda rate, seed: equal_cost.controller())
        for name in equal_cost.POOLS
        if kind == COMPARISON
    ]
    return [everybody[0], *siblings, *everybody[1:], *static]


def _always(actor: ActorLike) -> Callable[[Float, int], ActorLike]:
    return lambda rate, seed: actor
