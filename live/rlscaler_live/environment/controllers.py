"""Who scales a live service in place of an agent."""

from __future__ import annotations

from typing import Protocol, TypeGuard

import numpy as np

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.types import Int, Params, Samples, State


class Contender(Protocol):
    """Another autoscaler, as `rlscaler_rl.baselines` has them: replicas (1, 2) and placement (1,)."""

    def reset(self, params: Params) -> None: ...

    def __call__(self, params: Params, state: State, samples: Samples, rng: np.random.Generator) -> tuple[Int, Int]: ...


Controller = Contender | ActorLike
"""Who scales in place of an agent: an actor behind the shield once an interval, or a contender at every tick."""


def is_actor(controller: Controller) -> TypeGuard[ActorLike]:
    return hasattr(controller, "probabilities")


def is_contender(controller: Controller | None) -> TypeGuard[Contender]:
    return controller is not None and not hasattr(controller, "probabilities")
