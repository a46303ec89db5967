"""Contenders: the model under evaluation, tuned and untuned autoscalers, controls, references and static pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.actors import FrozenActor, RandomActor, UntrainedActor
from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.baselines.hpa import Hpa, HpaSettings, KedaRequestRate
from rlscaler_rl.baselines.kpa import Kpa
from rlscaler_rl.baselines.simple import Static, StaticForPeak, StaticSettings, Unscaled
from rlscaler_rl.evaluation.board import POLICY, SEED
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.tuning.cache import is_tuned, tuned
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, Controller
from rlscaler_rl.simulation.scenario import Scenarios

COMPARISON = "comparison"
CONTROLS = ("random", "frozen", "unscaled", "untrained")
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
"""Contenders of `evaluate`; `compare` plays all entries and sweeps HPA's target."""

HPA_TARGETS = (0.5, 0.6, 0.7, 0.9)
"""Utilization targets swept beside the default of 80 %, to show HPA's own cost-late front."""

FOR_ALL = ("ppo", "hpa", "rule")
"""Contenders that also play with one setting for all loads, as a policy has one network for all loads."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a comparison: a controller with its name."""

    name: str
    """Key in result files."""

    label: str
    """Name for people."""

    role: str
    """`policy`, `variant` (the bundled policy, tuned as contenders are), `seed`, `contender`, `sweep` (a
    variant drawn on the front only), `control` (must lose visibly) or `reference` (knows the load to come).
    For one service also `spec` (a network under the recommended spec), `tuned` and `today`."""

    make: Callable[[Float, int], Controller]
    """(rate (N, T) in requests/s, seed) -> a fresh controller for that batch."""

    replicas: tuple[int, int] | None = None
    """GPU and CPU replicas that stand from the first second to the last, for an entry that does not scale."""


def contenders(
    kind: str, loaded: Sequence[Loaded], workload: str | None = None, fold: int | None = None
) -> list[Entry]:
    """Return all contenders, the policy first. Only the settings of tuned ones differ between workloads.

    `fold`: the played fold of a cross-fitted trace; the settings come from the other. Raises EvaluationError for tuned
    settings that are out of date.
    """
    policy = loaded[0]
    listed = lineup(policy.actor, policy.name, workload=workload, fold=fold, sweep=kind == COMPARISON)
    if kind != COMPARISON:
        listed = [entry for entry in listed if entry.name in EVALUATED]
    siblings = [
        Entry(f"seed_{number}", f"{other.name} (seed {number})", SEED, _always(other.actor))
        for number, other in enumerate(loaded[1:], 2)
    ]
    return [listed[0], *siblings, *listed[1:]]


def lineup(
    actor: ActorLike, label: str, *, workload: str | None = None, fold: int | None = None, sweep: bool = False
) -> list[Entry]:
    """Return the policy, then its rivals on one workload; names, labels and roles are the same on all workloads.

    `actor` is the model under evaluation; the controls run with its manifest: same stack, same residual mode. Only
    `frozen` always holds the present replicas, because a frozen residual policy would be the rule itself.
    `workload` and `fold` are those of `tuning.cache.tuned`. Contenders without tuned settings are left out; raises
    EvaluationError where settings are out of date.
    """
    manifest = actor.manifest.model_copy(update={"envelope": None})
    held = manifest.model_copy(update={"residual": False})
    entries = [
        Entry(POLICY, label, POLICY, _always(actor)),
        *_tuned(workload, fold),
        Entry("hpa", "HPA default (80 %)", "contender", lambda rate, seed: Hpa()),
        Entry("hpa_cpu", "HPA on the CPU pool only", "contender", lambda rate, seed: Hpa(_CPU_ONLY)),
        Entry("keda", "KEDA request rate", "contender", lambda rate, seed: KedaRequestRate()),
        Entry("kpa", "Knative KPA", "contender", lambda rate, seed: Kpa()),
        Entry("rule", "Forecast rule", "contender", lambda rate, seed: load_bundled("rule")),
        Entry("static_max", "Static, all max", "contender", lambda rate, seed: Static()),
        Entry("static_mid", "Static, mid", "contender", lambda rate, seed: Static(StaticSettings(0.5))),
        Entry("random", "Random actions", "control", lambda rate, seed: RandomActor(manifest, seed)),
        Entry("frozen", "Shield alone", "control", lambda rate, seed: FrozenActor(held)),
        Entry("unscaled", "No scaling", "control", unscaled),
        Entry("untrained", "Untrained network", "control", lambda rate, seed: UntrainedActor(manifest, seed)),
        Entry("static_peak", "Static, known peak", "reference", lambda rate, seed: StaticForPeak(rate)),
        Entry("hindsight", "Hindsight rule", "reference", lambda rate, seed: Hindsight(rate)),
    ]
    return entries + [_hpa_variant(target) for target in HPA_TARGETS] if sweep else entries


def unscaled(rate: Float, seed: int) -> Controller:
    """Return a controller that keeps the replicas which an episode begins with."""
    return Unscaled()


def standing(scenarios: Scenarios, replicas: NDArray[np.int64]) -> Scenarios:
    """Return the episodes with `replicas` (N, 2) from the first second to the last, whatever the limits were."""
    return replace(
        scenarios.copy(),
        initial=replicas,
        min_replicas=replicas,
        max_replicas=replicas,
        schedulable=np.maximum(scenarios.schedulable, replicas),
    )


_ROLES = {"hindsight": "reference", "ppo": "variant"}
_CPU_ONLY = HpaSettings(scaled=(False, True))


def _always(actor: ActorLike) -> Callable[[Float, int], ActorLike]:
    return lambda rate, seed: actor


def _tuned(workload: str | None, fold: int | None) -> list[Entry]:
    """Return one or two entries for each contender that has tuned settings."""
    entries = []
    for name, tunable in CONTENDERS.items():
        if not is_tuned(name):
            continue
        role = _ROLES.get(name, "contender")
        entries.append(_entry(f"{name}_tuned", f"{tunable.label}, tuned for the load", role, name, workload, fold))
        if name in FOR_ALL:
            entries.append(_entry(f"{name}_tuned_all", f"{tunable.label}, tuned for all loads", role, name))
    return entries


def _entry(key: str, label: str, role: str, name: str, workload: str | None = None, fold: int | None = None) -> Entry:
    make = tuned(name, workload, fold)
    return Entry(key, label, role, lambda rate, seed: make(rate))


def _hpa_variant(target: float) -> Entry:
    percent = round(100 * target)
    return Entry(f"hpa_{percent}", f"HPA at {percent} %", "sweep", lambda rate, seed: Hpa(HpaSettings(target)))
