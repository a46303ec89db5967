"""Greedy by cost over heterogeneous pools, after the autoscaler of Kthena (volcano-sh/kthena).

One recommendation for the whole service, spread over its pools in a fixed order: each pool is cut into packages of 1,
e, e^2, ... replicas (costExpansionRatePercent), and the packages are taken cheapest first. A panic mode holds the
highest recommendation. Source: https://kthena.volcano.sh/ and pkg/autoscaler (`Optimizer`,
`RecommendedInstancesAlgorithm`, `CorrectedInstancesAlgorithm`). Difference: Kthena counts instances as if all carried
the same; here a replica counts for its own requests/s, without which the order of the pools could not be judged by cost
per capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Int, Params, Placement, Samples, State
from rlscaler_rl.baselines.behavior import SlidingWindow
from rlscaler_rl.baselines.contender import Pair, PeriodicContender, Value, rows

SYNC_SECONDS = 15.0
NEVER = 1e9


@dataclass(frozen=True, slots=True)
class GreedySettings:
    """Kthena's AutoscalingPolicy; the order of the pools by cost per capacity, or by the bare price of a replica."""

    target: Value = 0.8
    """Fraction of the capacity that is to be used."""

    tolerance: Value = 0.1
    expansion_percent: Value = 200.0
    """100: each pool is one package, filled before the next."""

    by_capacity: Value = True
    panic_threshold_percent: Value = 200.0
    panic_hold_seconds: Value = 60.0
    scale_up_window_seconds: Value = 0.0
    scale_down_window_seconds: Value = 300.0
    min_replicas: Pair = 0
    """Replicas that raise the policy's own minimum."""

    placement: Value = Placement.BALANCED


class Greedy(PeriodicContender):
    """Replicas in the order of their cost until they carry the load."""

    period_seconds = SYNC_SECONDS

    def __init__(self, settings: GreedySettings | None = None) -> None:
        self.settings = settings or GreedySettings()
        self.split, self.min_replicas = self.settings.placement, self.settings.min_replicas

    def reset(self, params: Params) -> None:
        super().reset(params)
        n, chosen = len(params), self.settings
        self.replicas = scaling_order(
            self.lowest * params.present,
            params.max_replicas * params.present,
            np.nan_to_num(params.cost_per_hour / self._unit(params)),
            rows(chosen.expansion_percent, n) / 100,
        )
        self.capacity: Float = np.einsum("nlp,np->nl", self.replicas, np.nan_to_num(params.requests_per_second))
        self.position: Int = np.zeros(n, np.int32)
        self.panic_until: Float = np.full(n, -np.inf)
        windows = (chosen.scale_up_window_seconds, chosen.scale_down_window_seconds)
        self.recommended = SlidingWindow(max(1.0, *(float(np.max(window)) for window in windows)))

    def _unit(self, params: Params) -> Float:
        """(N, 2) divisor of the price in the order of the pools."""
        by_capacity = rows(self.settings.by_capacity, len(params)).astype(np.bool_)
        return np.where(by_capacity[:, None], params.requests_per_second, 1.0)

    def size(self, samples: Samples, state: State) -> Int:
        now, every = float(samples.time[0]), np.arange(len(self.position))
        if not self.recommended.times:
            self.position = self._position_of(samples.spec_replicas)
        wanted = self._recommend(samples.arrival_rate)
        # Kthena panics by the ratio of wanted to present capacity.
        needed = self.capacity[every, wanted] / np.maximum(self.capacity[every, self.position], 1e-9)
        alarmed = (wanted > self.position) & (100 * needed >= self.settings.panic_threshold_percent)
        self.panic_until = np.where(alarmed, now + rows(self.settings.panic_hold_seconds, len(every)), self.panic_until)
        self.position = self._corrected(now, wanted, now <= self.panic_until)
        self.recommended.add(now, wanted)
        return np.asarray(self.replicas[every, self.position], np.int32)

    def _recommend(self, rate: Float) -> Int:
        """(N,) the first step of the order that carries the load; the present one within the tolerance."""
        need = np.nan_to_num(rate) / self.settings.target
        carrying = self.capacity[np.arange(len(need)), self.position]
        near = np.abs(need / np.maximum(carrying, 1e-9) - 1) <= self.settings.tolerance
        first = np.argmax(self.capacity >= need[:, None] - 1e-9, axis=1)
        enough = self.capacity[:, -1] >= need - 1e-9
        wanted = np.where(enough, first, self.capacity.shape[1] - 1)
        return np.where(near | ~np.isfinite(rate), self.position, wanted).astype(np.int32)

    def _corrected(self, now: float, wanted: Int, panic: Bool) -> Int:
        """After the stabilization windows; in panic mode at once upwards and never downwards."""
        settings = self.settings
        up = self.recommended.since(now - np.asarray(settings.scale_up_window_seconds), NEVER)
        down = self.recommended.since(now - np.asarray(settings.scale_down_window_seconds), -NEVER)
        lowest, highest = np.minimum.reduce([*up, wanted]), np.maximum.reduce([*down, wanted])
        # The lower bound wins where the windows contradict one another.
        stable = np.clip(self.position, lowest, np.maximum(lowest, highest))
        return np.asarray(np.where(panic, np.maximum(wanted, self.position), stable), np.int32)

    def _position_of(self, replicas: Int) -> Int:
        """(N,) the first step with the capacity of these replicas."""
        have = np.sum(replicas * np.nan_to_num(self.params.requests_per_second), axis=1)
        reached = self.capacity >= have[:, None] - 1e-9
        first = np.where(reached.any(axis=1), reached.argmax(axis=1), reached.shape[1] - 1)
        return np.asarray(first, np.int32)


def scaling_order(lowest: Int, highest: Int, price: Float, expansion: Float) -> Int:
    """(N, L, 2) replicas after each step from `lowest` (N, 2) to `highest`, one replica a step, cheapest package next.

    A package costs its replicas times `price` (N, 2). Rows with fewer steps repeat their last. Equal packages go in
    the order of the pools.
    """
    longest = int((highest - lowest).sum(axis=1).max()) + 1
    order = np.empty((len(price), longest, 2), np.int32)
    cases = np.concatenate([lowest, highest, price, expansion[:, None]], axis=1)
    distinct, which = np.unique(cases, axis=0, return_inverse=True)
    for case, row in enumerate(distinct):
        low, high = row[:2].astype(np.int32), row[2:4].astype(np.int32)
        steps = [low]
        for _, pool, size in sorted(_packages(high - low, row[4:6], row[6])):
            steps += [steps[-1] + (k + 1) * (np.arange(2) == pool) for k in range(size)]
        steps += [steps[-1]] * (longest - len(steps))
        order[which.reshape(-1) == case] = np.stack(steps)
    return order


def _packages(room: Int, price: Float, expansion: float) -> list[tuple[float, int, int]]:
    """(cost, pool, replicas) of every package."""
    packages = []
    for pool, left in enumerate(room.tolist()):
        # At 100 % packages would never grow, so the whole pool is one package.
        length = 1.0 if expansion > 1 else float(left)
        while left > 0:
            size = min(left, max(int(length), 1))
            cost = price[pool] * (size if expansion > 1 else 1)
            packages.append((float(cost), pool, size))
            left, length = left - size, length * expansion
    return packages
