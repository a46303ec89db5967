"""The contenders of a comparison by name, and how each is made for a batch of episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlscaler_core.decision.actor import ActorLike, load_bundled
from rlscaler_core.decision.types import Float
from rlscaler_rl.baselines.actors import FrozenActor, RandomActor, UntrainedActor
from rlscaler_rl.baselines.contender import Contender
from rlscaler_rl.baselines.greedy import Greedy
from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.baselines.hpa import Hpa, HpaSettings, KedaRequestRate
from rlscaler_rl.baselines.kpa import Kpa
from rlscaler_rl.baselines.simple import MaxOfRecent, Static, StaticForPeak, StaticSettings, Unscaled
from rlscaler_rl.evaluation.tuning.cache import is_tuned, tuned
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS

POLICY = "policy"
CONTROLS = ("random", "frozen", "unscaled", "untrained")
HPA_TARGETS = (0.5, 0.6, 0.7, 0.9)
"""Utilization targets swept beside the default of 80 %, to show HPA's own cost-late front."""

FOR_ALL = ("ppo", "hpa", "rule")
"""Also shown with one setting for all loads, as a policy has to do with one network."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender of a comparison."""

    name: str
    """Key in result files."""

    label: str
    """As shown to people."""

    role: str
    """`policy`, `variant` (the bundled policy, tuned as contenders are), `contender`, `sweep` (a variant drawn on the
    front only), `control` (must lose visibly) or `reference` (knows what nobody can know)."""

    make: Callable[[Float, int], Contender | ActorLike]
    """(rate (N, T), seed) -> a fresh controller for that batch."""


def lineup(
    actor: ActorLike, label: str, *, workload: str | None = None, fold: int | None = None, sweep: bool = False
) -> list[Entry]:
    """The policy first, then everybody it meets on one workload; names, labels and roles are the same on all.

    `actor` is the model under evaluation; the controls run with its manifest: same stack, same residual mode. Only
    `frozen` always holds the present replicas, because a frozen residual policy would be the rule itself.
    `workload`, `fold`: as `tuning.cache.tuned` takes them. Contenders
    without tuned settings are left out; raises TuningError where settings are out of date.
    """
    manifest = actor.manifest.model_copy(update={"envelope": None})
    held = manifest.model_copy(update={"residual": False})
    entries = [
        Entry(POLICY, label, "policy", lambda rate, seed: actor),
        *_tuned(workload, fold),
        Entry("hpa", "HPA default (80 %)", "contender", lambda rate, seed: Hpa()),
        Entry("hpa_cpu", "HPA on the CPU pool only", "contender", lambda rate, seed: Hpa(_CPU_ONLY)),
        Entry("keda", "KEDA request rate", "contender", lambda rate, seed: KedaRequestRate()),
        Entry("kpa", "Knative KPA", "contender", lambda rate, seed: Kpa()),
        Entry("greedy", "Greedy by cost (Kthena)", "contender", lambda rate, seed: Greedy()),
        Entry("rule", "Forecast rule", "contender", lambda rate, seed: load_bundled("rule")),
        Entry("max_of_recent", "Max of recent 5 min", "contender", lambda rate, seed: MaxOfRecent()),
        Entry("static_max", "Static, all max", "contender", lambda rate, seed: Static()),
        Entry("static_mid", "Static, mid", "contender", lambda rate, seed: Static(StaticSettings(0.5))),
        Entry("random", "Random actions", "control", lambda rate, seed: RandomActor(manifest, seed)),
        Entry("frozen", "Shield alone", "control", lambda rate, seed: FrozenActor(held)),
        Entry("unscaled", "No scaling", "control", lambda rate, seed: Unscaled()),
        Entry("untrained", "Untrained network", "control", lambda rate, seed: UntrainedActor(manifest, seed)),
        Entry("static_peak", "Static, known peak", "reference", lambda rate, seed: StaticForPeak(rate)),
        Entry("hindsight", "Hindsight rule", "reference", lambda rate, seed: Hindsight(rate)),
    ]
    return entries + [_hpa_variant(target) for target in HPA_TARGETS] if sweep else entries


_ROLES = {"hindsight": "reference", "ppo": "variant"}
_CPU_ONLY = HpaSettings(scaled=(False, True))


def _tuned(workload: str | None, fold: int | None) -> list[Entry]:
    """Of the contenders that have been tuned at all."""
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
