"""Contenders that need no feedback loop: constant replicas and the recent maximum."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Float, Int, Params, Placement, Samples, State
from rlscaler_rl.baselines.contender import Pair, PeriodicContender, Value, cheapest_mix, pools, rows


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


@dataclass(frozen=True, slots=True)
class RecentSettings:
    """Memory for the highest rate in seconds, and the utilization of the replicas for it."""

    window_seconds: Value = 300.0
    target: Value = 0.8
    period_seconds: Value | None = None
    """Control period in seconds; None is the action interval."""

    min_replicas: Pair = 0
    """Replicas that raise the policy's own minimum."""

    placement: Value = Placement.BALANCED


class MaxOfRecent(PeriodicContender):
    """The cheapest replicas for the highest sensed rate of the last `window_seconds`."""

    def __init__(self, settings: RecentSettings | None = None) -> None:
        self.settings = settings or RecentSettings()
        self.split, self.min_replicas = self.settings.placement, self.settings.min_replicas
        self.period_seconds = self.settings.period_seconds

    def reset(self, params: Params) -> None:
        super().reset(params)
        self.window = rows(self.settings.window_seconds, len(params))
        self.seen: deque[tuple[float, Float]] = deque()

    def watch(self, samples: Samples) -> None:
        now = float(samples.time[0])
        self.seen.append((now, np.array(samples.arrival_rate)))
        while self.seen[0][0] <= now - self.window.max():
            self.seen.popleft()

    def size(self, samples: Samples, state: State) -> Int:
        now = float(samples.time[0])
        peak = np.fmax.reduce([np.where(t > now - self.window, rate, np.nan) for t, rate in self.seen])
        mix = cheapest_mix(self.params, np.nan_to_num(peak) / self.settings.target)
        return np.where(np.isfinite(peak)[:, None], mix, samples.spec_replicas).astype(np.int32)
