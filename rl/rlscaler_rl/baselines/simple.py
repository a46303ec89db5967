"""Contenders that need no feedback loop: constant replicas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Float, Int, Placement, Samples, State
from rlscaler_rl.baselines.contender import Pair, PeriodicContender, Value, cheapest_mix, pools


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """Position of each pool between its minReplicas (0) and its maxReplicas (1)."""

    fraction: Pair = 1.0
    placement: Value = Placement.BALANCED


class Static(PeriodicContender):
    """Constant replicas, set in the first second."""

    def __init__(self, settings: StaticSettings | None = None) -> None:
        self.settings = settings or StaticSettings()
        self.split = self.settings.placement

    def size(self, samples: Samples, state: State) -> Int:
        low, high = self.params.min_replicas, self.params.max_replicas
        wanted = low + pools(self.settings.fraction, len(low)) * (high - low)
        return np.asarray(np.ceil(np.round(wanted, 9)), np.int32)


class Unscaled(PeriodicContender):
    """No scaling at all: the replicas that the episode began with."""

    def size(self, samples: Samples, state: State) -> Int:
        return samples.spec_replicas


class StaticForPeak(PeriodicContender):
    """The cheapest constant replicas for the highest rate of the episode: the provisioning of a user who knows the
    peak."""

    def __init__(self, rate: Float, target: float = 0.8) -> None:
        """`rate` (N, T): the mean arrivals of every second of the episodes that it will play."""
        self.peak, self.target = rate.max(axis=1), target

    def size(self, samples: Samples, state: State) -> Int:
        return cheapest_mix(self.params, self.peak / self.target)
