"""Contenders that are tuned: name -> search space, default settings and the controller of given settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.actors import Configured
from rlscaler_rl.baselines.contender import Contender, stacked
from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.baselines.hpa import Hpa, KedaRequestRate
from rlscaler_rl.baselines.kpa import Kpa
from rlscaler_rl.baselines.simple import Static
from rlscaler_rl.evaluation.tuning import spaces
from rlscaler_rl.evaluation.tuning.spaces import Point, Space

Controller = Contender | ActorLike

STANDING = ((1, 4), (2, 2), (2, 6), (3, 3), (3, 8), (4, 1), (4, 5), (5, 3), (5, 8), (6, 6))
"""minReplicas (GPU, CPU) that searches start from."""


@dataclass(frozen=True, slots=True)
class Tunable:
    """A contender with everything that can be set of it."""

    name: str
    label: str
    space: Space
    default: Point
    """The settings that ship; the first trial of every search."""

    settings: Callable[[Point], Any]
    make: Callable[[Any, Float], Controller]
    """(settings, rate (N, T)) -> a controller of N episodes."""

    def starts(self) -> list[Point]:
        """The default alone and over standing capacity, which bursts need most and a search hardly hits by chance."""
        return [self.default, *(point for gpu, cpu in STANDING if (point := self.over(gpu, cpu)))]

    def over(self, gpu: int, cpu: int) -> Point | None:
        """The default over so many replicas that always stand; None where the contender has no minimum."""
        if "min_gpu" not in self.space:
            return None
        most_gpu, most_cpu = (getattr(self.space[name], "high", 1) for name in ("min_gpu", "min_cpu"))
        return {**self.default, "min_gpu": min(gpu, most_gpu), "min_cpu": min(cpu, most_cpu)}

    def controller(self, point: Point, rate: Float) -> Controller:
        """One setting for all episodes."""
        return self.make(self.settings(point), rate)

    def controllers(self, points: Sequence[Point], rate: Float, repeats: int) -> Controller:
        """A batch in which every setting plays `repeats` episodes, one setting after the other."""
        return self.make(stacked([self.settings(point) for point in points], repeats), rate)


CONTENDERS: dict[str, Tunable] = {
    tunable.name: tunable
    for tunable in (
        Tunable("hpa", "HPA", spaces.HPA, spaces.HPA_DEFAULT, spaces.hpa, lambda chosen, rate: Hpa(chosen)),
        Tunable(
            "keda",
            "KEDA request rate",
            spaces.KEDA,
            spaces.HPA_DEFAULT,
            spaces.hpa,
            lambda chosen, rate: KedaRequestRate(chosen),
        ),
        Tunable("kpa", "Knative KPA", spaces.KPA, spaces.KPA_DEFAULT, spaces.kpa, lambda chosen, rate: Kpa(chosen)),
        Tunable(
            "rule",
            "Forecast rule",
            spaces.RULE,
            spaces.RULE_DEFAULT,
            spaces.rule,
            lambda chosen, rate: Rule(chosen),
        ),
        Tunable(
            "static",
            "Static",
            spaces.STATIC,
            spaces.STATIC_DEFAULT,
            spaces.static,
            lambda chosen, rate: Static(chosen),
        ),
        Tunable(
            "ppo",
            "Bundled PPO",
            spaces.SPEC,
            spaces.SPEC_DEFAULT,
            spaces.spec,
            lambda chosen, rate: Configured(load_bundled("ppo"), chosen),
        ),
        Tunable(
            "hindsight",
            "Hindsight rule",
            spaces.HINDSIGHT,
            spaces.HINDSIGHT_DEFAULT,
            spaces.hindsight,
            lambda chosen, rate: Hindsight(rate, chosen),
        ),
    )
}
