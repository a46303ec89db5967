"""Who is played: the models, everybody the line-up has for a workload, and the static pools of equal cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlscaler_rl.baselines.lineup import CONTROLS, Entry, lineup
from rlscaler_rl.decision.actor import ActorLike
from rlscaler_rl.decision.types import Float
from rlscaler_rl.evaluation import equal_cost
from rlscaler_rl.evaluation.board import SEED
from rlscaler_rl.evaluation.models import Loaded

EVALUATED = (
    "policy",
    "hpa",
    "hpa_tuned",
    "hpa_tuned_all",
    "rule",
    "rule_tuned",
    "rule_tuned_all",
    "keda",
    *CONTROLS,
    "hindsight",
)
"""Who is played by `evaluate`; `compare` plays everybody, sweeps HPA's target and adds the pools of equal cost."""

COMPARISON = "comparison"


def contenders(
    kind: str, loaded: Sequence[Loaded], workload: str | None = None, fold: int | None = None
) -> list[Entry]:
    """The policy first. Names, labels and roles are the same for every workload; how the tuned are set is not."""
    policy = loaded[0]
    everybody = lineup(policy.actor, policy.name, sweep=kind == COMPARISON)
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
