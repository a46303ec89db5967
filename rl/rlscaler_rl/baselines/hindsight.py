"""Perfect foresight, sized by a rule: the reference below the contenders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import CPU, GPU, Float, Float32, Int, Params, Placement, Samples, State
from rlscaler_rl.baselines.contender import PeriodicContender, Value, cheapest_mix, rows


@dataclass(frozen=True, slots=True)
class HindsightSettings:
    """Distance between replicas and the load to come."""

    target: Value = 0.85
    """Fraction of the capacity that is to be used."""

    lead: Value = 1.25
    """Cold starts that a replica is ordered ahead."""

    smooth_seconds: Value = 1.0
    """The load is averaged over so many seconds, centred: shorter peaks wait in the queue."""

    placement: Value = Placement.BALANCED


class Hindsight(PeriodicContender):
    """Orders each pool one cold start ahead by the true rate of every second to come.

    A reference for the value of foresight, not a bound: it sizes by a rule and does not optimise.
    """

    period_seconds = 5.0
    knows_capacity = True
    """The simulator writes the present capacity of a replica into `params`, instead of the declared one."""

    def __init__(self, rate: Float, settings: HindsightSettings | None = None) -> None:
        """`rate` (N, T): the mean arrivals of every second of the episodes that it will play."""
        self.rate, self.settings = rate, settings or HindsightSettings()
        self.split = self.settings.placement

    def reset(self, params: Params) -> None:
        super().reset(params.copy())
        need = np.asarray(self.load(len(params)) / rows(self.settings.target, len(params))[:, None], np.float32)
        ahead = self.seconds_ahead(params)
        self.peaks = [highest_ahead(need, ahead[:, pool]) for pool in (GPU, CPU)]

    def load(self, n: int) -> Float32:
        """(N, T) load that replicas are sized for in every second."""
        return _smoothed(np.asarray(self.rate, np.float32), rows(self.settings.smooth_seconds, n))

    def seconds_ahead(self, params: Params) -> Int:
        """(N, 2) seconds that each pool looks ahead: until a replica ordered in the next period is ready."""
        cold = np.ceil(rows(self.settings.lead, len(params))[:, None] * np.nan_to_num(params.cold_start_seconds))
        return np.asarray(cold + self.period_seconds, np.int32)

    def size(self, samples: Samples, state: State) -> Int:
        """The replicas of `sized_ahead` for the highest rates until a replica that is ordered now is ready."""
        now = min(int(samples.time[0]), self.rate.shape[1] - 1)
        far, near = (self.peaks[pool][:, now].astype(np.float64) for pool in (GPU, CPU))
        return sized_ahead(self.params, samples.ready_replicas, far, near)


def sized_ahead(params: Params, ready: Int, far: Float, near: Float) -> Int:
    """(N, 2) GPU replicas for the rate `far` (N,) that comes within their cold start; CPU replicas for the part of
    `near` (N,) that the ready GPU replicas do not carry.

    A GPU replica goes only when the CPU replicas that take over are ready.
    """
    gpu = cheapest_mix(params, far)[:, GPU]
    held = params.copy()
    held.min_replicas[:, GPU] = held.max_replicas[:, GPU] = np.minimum(gpu, ready[:, GPU])
    cpu = cheapest_mix(held, near)[:, CPU]
    rps = np.where(params.present, params.requests_per_second, np.inf)
    uncovered = near - np.minimum(cpu, ready[:, CPU]) * np.where(np.isfinite(rps), rps, 0.0)[:, CPU]
    # A GPU replica that leaves before the CPU replicas are ready would leave load uncovered.
    bridging = np.minimum(np.ceil(uncovered / rps[:, GPU]), ready[:, GPU]).astype(np.int32)
    return np.stack([np.maximum(gpu, bridging), cpu], axis=1)


def highest_ahead(rate: Float32, lead: Int) -> Float32:
    """(N, T) the highest of each row's next `lead` (N,) seconds, the present one included; nothing after the end.

    By doubling: the highest over a window is that of the two overlapping windows of a power of two that cover it.
    """
    lead = np.clip(lead, 1, rate.shape[1])
    result, level, length = np.zeros_like(rate), rate, 1
    while True:
        here = np.flatnonzero((lead >= length) & (lead < 2 * length))
        for width in np.unique(lead[here]):
            chosen = here[lead[here] == width]
            result[chosen] = np.maximum(level[chosen], _later(level[chosen], int(width) - length))
        if (lead < 2 * length).all():
            return result
        level, length = np.maximum(level, _later(level, length)), 2 * length


def _later(rate: Float32, seconds: int) -> Float32:
    """Moved `seconds` towards the present; zero after the end."""
    moved = np.zeros_like(rate)
    moved[:, : rate.shape[1] - seconds] = rate[:, seconds:]
    return moved


def _smoothed(rate: Float32, seconds: Float) -> Float32:
    """Centred moving average over each row's own number of seconds; the ends repeat."""
    result = rate.copy()
    for width in np.unique(seconds[seconds > 1]):
        chosen, half = seconds == width, int(width) // 2
        padded = np.pad(rate[chosen], ((0, 0), (half + 1, half)), mode="edge").astype(np.float64)
        total = np.cumsum(padded, axis=1)
        result[chosen] = (total[:, 2 * half + 1 :] - total[:, : -2 * half - 1]) / (2 * half + 1)
    return result
