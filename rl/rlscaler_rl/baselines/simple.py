"""Contenders that need no feedback loop: constant replicas, the recent maximum, and perfect foresight."""

from __future__ import annotations

from collections import deque

import numpy as np

from rlscaler_rl.baselines.contender import Periodic
from rlscaler_rl.baselines.sizing import cheapest_mix
from rlscaler_rl.decision.types import CPU, GPU, Float, Int, Params, Samples, State


class Static(Periodic):
    """The same replicas, asked for in the first second and kept to the last."""

    def __init__(self, fraction: float) -> None:
        """`fraction` of the way from minReplicas (0) to maxReplicas (1)."""
        self.fraction = fraction

    def size(self, samples: Samples, state: State) -> Int:
        low, high = self.params.min_replicas, self.params.max_replicas
        return np.ceil(low + self.fraction * (high - low)).astype(np.int32)


class Unscaled(Periodic):
    """Nobody scales: the replicas that the episode began with."""

    def size(self, samples: Samples, state: State) -> Int:
        return samples.spec_replicas


class StaticForPeak(Periodic):
    """The cheapest constant replicas for the highest rate of the episode: what a user who knows the peak provisions."""

    def __init__(self, rate: Float, target: float = 0.8) -> None:
        """`rate` (N, T): the mean arrivals of every second of the episodes that it will play."""
        self.peak, self.target = rate.max(axis=1), target

    def size(self, samples: Samples, state: State) -> Int:
        return cheapest_mix(self.params, self.peak / self.target)


class MaxOfRecent(Periodic):
    """The cheapest replicas for the highest sensed rate of the last `window_seconds`."""

    def __init__(self, window_seconds: float = 300.0, target: float = 0.8) -> None:
        self.window_seconds, self.target = window_seconds, target

    def reset(self, params: Params) -> None:
        super().reset(params)
        self.seen: deque[tuple[float, Float]] = deque()

    def watch(self, samples: Samples) -> None:
        now = float(samples.time[0])
        self.seen.append((now, np.array(samples.arrival_rate)))
        while self.seen[0][0] <= now - self.window_seconds:
            self.seen.popleft()

    def size(self, samples: Samples, state: State) -> Int:
        peak = np.fmax.reduce([rate for _, rate in self.seen])
        mix = cheapest_mix(self.params, np.nan_to_num(peak) / self.target)
        return np.where(np.isfinite(peak)[:, None], mix, samples.spec_replicas).astype(np.int32)


class Hindsight(Periodic):
    """Knows the true rate of every second to come and orders each pool one cold start ahead.

    A reference for what foresight is worth, not a bound: it sizes by a rule and does not optimise.
    """

    period_seconds = 5.0

    def __init__(self, rate: Float, target: float = 0.85) -> None:
        """`rate` (N, T): the mean arrivals of every second of the episodes that it will play."""
        self.rate, self.target = rate, target

    def reset(self, params: Params) -> None:
        super().reset(params)
        self.cold: Int = np.ceil(1.25 * np.nan_to_num(params.cold_start_seconds)).astype(np.int32)

    def size(self, samples: Samples, state: State) -> Int:
        """GPU replicas for the highest rate until a GPU ordered now is ready; CPU replicas for the rest.

        A GPU replica goes only when the CPU replicas that take over are ready.
        """
        now, ready = int(samples.time[0]), samples.ready_replicas
        lead = self.cold + int(self.timer.period_seconds)
        far = cheapest_mix(self.params, self._peak(now, lead[:, GPU]) / self.target)[:, GPU]
        need = self._peak(now, lead[:, CPU]) / self.target
        held = self.params.copy()
        held.min_replicas[:, GPU] = held.max_replicas[:, GPU] = np.minimum(far, ready[:, GPU])
        cpu = cheapest_mix(held, need)[:, CPU]
        rps = np.where(self.params.present, self.params.requests_per_second, np.inf)
        uncovered = need - np.minimum(cpu, ready[:, CPU]) * np.where(np.isfinite(rps), rps, 0.0)[:, CPU]
        bridging = np.minimum(np.ceil(uncovered / rps[:, GPU]), ready[:, GPU]).astype(np.int32)
        return np.stack([np.maximum(far, bridging), cpu], axis=1)

    def _peak(self, now: int, lead: Int) -> Float:
        """(N,) highest rate in [now, now + lead)."""
        seconds = np.arange(self.rate.shape[1])[None, :]
        window = (seconds >= min(now, self.rate.shape[1] - 1)) & (seconds < np.maximum(now + lead, now + 1)[:, None])
        return np.asarray(np.where(window, self.rate, 0.0).max(axis=1))
