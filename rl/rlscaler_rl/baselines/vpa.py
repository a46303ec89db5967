"""The VerticalPodAutoscaler's published algorithm, for one container of one service, as its documentation has it.

Source: the recommender and updater of kubernetes/autoscaler (vertical-pod-autoscaler/docs, with the defaults of its
flags). CPU: the 90th percentile of a histogram that counts half after a day; memory: the same of the peaks of each day;
15 % on top. A pod is changed where its request lies outside of the bounds (50th and 95th percentile, wider the less is
known), or where it is older than 12 hours and its request differs by a tenth. `InPlaceOrRecreate` is taken to find room
always, so that changes cost nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.types import Float

HALF_LIFE_SECONDS = 24 * 3600.0
MARGIN = 1.15
RATIO = 1.05
LOWER, TARGET, UPPER = 0.5, 0.9, 0.95
PEAK_SECONDS = 24 * 3600.0
OOM_BYTES, OOM_RATIO = 100.0 * 2**20, 1.2
LIFETIME_SECONDS, DIFFERENCE = 12 * 3600.0, 0.1


class Bounds(NamedTuple):
    """Request of a container: the target, and the bounds within which its present request stays."""

    lower: float
    target: float
    upper: float


@dataclass(slots=True)
class Histogram:
    """A histogram of exponential bins, each 5 % wider than the one before, that forgets by half in a day."""

    first: float
    """Width of the first bin."""
    bins: int
    weight: Float = field(init=False)
    edges: Float = field(init=False)
    reference: float = 0.0
    """Seconds against which samples are weighted: newer ones weigh more, so that nothing has to be scaled down."""

    def __post_init__(self) -> None:
        self.weight = np.zeros(self.bins)
        self.edges = self.first * (RATIO ** np.arange(1, self.bins + 1, dtype=np.float64) - 1) / (RATIO - 1)

    def add(self, value: float, weight: float, time: float) -> None:
        """Take in a sample of `weight`; a negative one takes it back."""
        if time - self.reference > 100 * HALF_LIFE_SECONDS:
            self.weight *= 0.5 ** ((time - self.reference) / HALF_LIFE_SECONDS)
            self.reference = time
        number = min(int(np.searchsorted(self.edges, value, side="right")), self.bins - 1)
        self.weight[number] += weight * 2.0 ** ((time - self.reference) / HALF_LIFE_SECONDS)

    def percentile(self, share: float) -> float:
        """Return the upper edge of the bin in which the percentile lies; 0 for an empty histogram."""
        total = np.cumsum(np.maximum(self.weight, 0.0))
        if not total[-1] > 0:
            return 0.0
        return float(self.edges[min(int(np.searchsorted(total, share * total[-1])), self.bins - 1)])


class Vpa:
    """Recommends the requests of the containers of one service, in cores and bytes."""

    def __init__(self, request: tuple[float, float], begin: float = 0.0) -> None:
        """`request` is the initial one in cores and bytes, at the time `begin` in seconds."""
        self.request = request
        self._cpu, self._memory = Histogram(0.01, 200), Histogram(1e7, 230)
        self._begin, self._samples, self._changed = begin, 0, begin
        self._peak_since, self._peak = begin, 0.0

    def observe(self, time: float, cores: Float, memory: Float) -> None:
        """Add the use of the pods (N,) at `time`."""
        self._samples += 1
        for value in cores:
            self._cpu.add(float(value), max(self.request[0], 0.1), time)
        if len(memory):
            self._see_memory(time, float(memory.max()))

    def killed(self, time: float, memory: float) -> None:
        """A container was killed at so many bytes: it would have used more."""
        self._see_memory(time, max(memory + OOM_BYTES, memory * OOM_RATIO))

    def _see_memory(self, time: float, value: float) -> None:
        if time - self._peak_since >= PEAK_SECONDS:
            self._peak_since, self._peak = time, 0.0
        if value > self._peak:
            if self._peak > 0:
                self._memory.add(self._peak, -1.0, self._peak_since)
            self._memory.add(value, 1.0, self._peak_since)
            self._peak = value

    def bounds(self, time: float) -> tuple[Bounds, Bounds]:
        """Return the bounds of CPU and memory."""
        confidence = max(min((time - self._begin) / 86400, self._samples / 1440), 1e-9)
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

    def update(self, time: float, least: tuple[float, float], most: tuple[float, float]) -> tuple[float, float]:
        """Change the request where the updater would, and give it. `least` and `most` are the policy's bounds."""
        bounds = self.bounds(time)
        target = tuple(
            float(np.clip(bound.target, low, high)) for bound, low, high in zip(bounds, least, most, strict=True)
        )
        outside = any(
            not min(bound.lower, high) <= now <= max(bound.upper, low)
            for bound, now, low, high in zip(bounds, self.request, least, most, strict=True)
        )
        differs = sum(abs(wanted - now) / now for wanted, now in zip(target, self.request, strict=True)) >= DIFFERENCE
        if self._samples and (outside or (time - self._changed >= LIFETIME_SECONDS and differs)):
            self.request, self._changed = (target[0], target[1]), time
        return self.request
