"""The published algorithm of the VerticalPodAutoscaler for one container of one service.

Source: recommender and updater of kubernetes/autoscaler (vertical-pod-autoscaler/docs, defaults of the flags). CPU: the
90th percentile of a histogram that counts half after a day. Memory: the same of the peaks of each day. 15 % on top. A
request changes where it lies outside of the bounds (50th and 95th percentile, wider the less is known), or after 12
hours where it differs by a tenth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlscaler_dev.demo.records import Float

HALF_LIFE_SECONDS = 24 * 3600.0
MARGIN = 1.15
RATIO = 1.05
LOWER, TARGET, UPPER = 0.5, 0.9, 0.95
PEAK_SECONDS = 24 * 3600.0
OOM_BYTES, OOM_RATIO = 100.0 * 2**20, 1.2
LIFETIME_SECONDS, DIFFERENCE = 12 * 3600.0, 0.1


class Bounds(NamedTuple):
    """Target of a request, and bounds within which it is left alone."""

    lower: float
    target: float
    upper: float


class Histogram:
    """Exponential bins, each 5 % wider than the one before; a weight counts half after a day."""

    def __init__(self, first: float, bins: int) -> None:
        self.weight = np.zeros(bins)
        self.edges = first * (RATIO ** np.arange(1, bins + 1, dtype=np.float64) - 1) / (RATIO - 1)

    def add(self, value: float, weight: float, time: float) -> None:
        """Add a sample; a negative weight takes it back."""
        number = min(int(np.searchsorted(self.edges, value, side="right")), len(self.weight) - 1)
        # Newer samples weigh more, so that older ones need not be scaled down.
        self.weight[number] += weight * 2.0 ** (time / HALF_LIFE_SECONDS)

    def percentile(self, share: float) -> float:
        """Return the upper edge of the percentile's bin; 0 without samples."""
        total = np.cumsum(np.maximum(self.weight, 0.0))
        if not total[-1] > 0:
            return 0.0
        return float(self.edges[min(int(np.searchsorted(total, share * total[-1])), len(self.edges) - 1)])


class Vpa:
    """Requests of the containers of one service, cores and bytes."""

    def __init__(self, request: tuple[float, float]) -> None:
        self.request = request
        self._cpu, self._memory = Histogram(0.01, 200), Histogram(1e7, 230)
        self._samples, self._changed, self._peak_since, self._peak = 0, 0.0, 0.0, 0.0

    def observe(self, time: float, cores: Float, memory: Float, killed: Float) -> None:
        """Add the use of the pods at `time`, and the memory of those that were killed."""
        self._samples += 1
        for value in cores:
            self._cpu.add(float(value), max(self.request[0], 0.1), time)
        wanted = [max(value + OOM_BYTES, value * OOM_RATIO) for value in killed]
        self._see_memory(time, max([float(memory.max()), *wanted]))

    def _see_memory(self, time: float, value: float) -> None:
        if time - self._peak_since >= PEAK_SECONDS:
            self._peak_since, self._peak = time, 0.0
        if value > self._peak:
            if self._peak > 0:
                self._memory.add(self._peak, -1.0, self._peak_since)
            self._memory.add(value, 1.0, self._peak_since)
            self._peak = value

    def bounds(self, time: float, samples_a_day: int) -> tuple[Bounds, Bounds]:
        """Return the bounds of CPU and memory."""
        confidence = max(min(time / 86_400, self._samples / samples_a_day), 1e-9)
        wider, narrower = 1 + 1 / confidence, (1 + 0.001 / confidence) ** -2
        cpu, memory = (
            Bounds(
                MARGIN * histogram.percentile(LOWER) * narrower,
                MARGIN * histogram.percentile(TARGET),
                MARGIN * histogram.percentile(UPPER) * wider,
            )
            for histogram in (self._cpu, self._memory)
        )
        return cpu, memory

    def update(
        self, time: float, least: tuple[float, float], most: tuple[float, float], samples_a_day: int
    ) -> tuple[float, float]:
        """Change the request where the updater would, and return it. `least` and `most` are the policy's bounds."""
        both = list(zip(self.bounds(time, samples_a_day), self.request, least, most, strict=True))
        cpu, memory = (float(np.clip(bounds.target, low, high)) for bounds, _, low, high in both)
        outside = any(not min(b.lower, high) <= now <= max(b.upper, low) for b, now, low, high in both)
        changes = zip((cpu, memory), self.request, strict=True)
        differs = sum(abs(wanted - now) / now for wanted, now in changes) >= DIFFERENCE
        if self._samples and (outside or (time - self._changed >= LIFETIME_SECONDS and differs)):
            self.request, self._changed = (cpu, memory), time
        return self.request
