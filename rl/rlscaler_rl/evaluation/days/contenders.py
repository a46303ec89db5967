"""Contenders on days: autoscalers at their defaults, and references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.baselines.hpa import Hpa, KedaRequestRate
from rlscaler_rl.baselines.kpa import Kpa

Role = Literal["policy", "untuned", "tuned", "reference"]


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of the table."""

    name: str
    label: str
    role: Role
    make: Callable[[Float], Any]
    """Rates (N, T) in requests/s -> a fresh controller of N days.

    Picklable where contenders play side by side in processes.
    """


@dataclass(frozen=True, slots=True)
class Afresh:
    """A contender that needs to know nothing of the rates; picklable, other than a lambda."""

    create: Callable[[], Any]

    def __call__(self, rate: Float) -> Any:
        return self.create()


@dataclass(frozen=True, slots=True)
class Policy:
    """A network that plays beside the forecast rule."""

    name: str
    label: str
    load: Callable[[], ActorLike]
    """Returns its actor. A process of its own loads it again, so this function has to be picklable."""

    def __call__(self, rate: Float) -> ActorLike:
        """Return the actor, which has no state between batches of days."""
        return self.load()


def untuned(policies: Sequence[Policy] = ()) -> list[Contender]:
    """Return the policies, then the autoscalers that users have, at their defaults."""
    return [
        *(Contender(policy.name, policy.label, "policy", policy) for policy in policies),
        Contender("rule", "Forecast rule", "policy", Afresh(partial(load_bundled, "rule"))),
        *autoscalers(),
    ]


def autoscalers() -> list[Contender]:
    """Return the autoscalers that users have, at their defaults; the HPA first."""
    return [
        Contender("hpa", "HPA 80 %", "untuned", Afresh(Hpa)),
        Contender("keda", "KEDA request rate", "untuned", Afresh(KedaRequestRate)),
        Contender("kpa", "Knative KPA", "untuned", Afresh(Kpa)),
    ]


def hindsight() -> Contender:
    """Return the hindsight rule, which knows the load to come."""
    return Contender("hindsight", "Hindsight rule", "reference", Hindsight)
