"""Lost information: samples that an agent does not get, as when a scrape fails or a node is cut off.

A lost sample is NaN with an age of infinity, as in live sensing; the decision function, its shield and the networks'
masks see no difference. Replicas are known, because the API server has their number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rlscaler_core.decision.types import SIGNALS, Bool, Samples

LOSABLE = tuple(name for name in SIGNALS if name != "replicas")


@dataclass(frozen=True, slots=True)
class Loss:
    """Share of the local information that is lost, drawn anew for every action interval."""

    share: float = 0.0
    """Probability, 0 to 1, that a signal (or all of a tenant's) is lost for an action interval."""
    unit: Literal["signal", "agent"] = "signal"
    """Unit of a loss: one signal of a tenant, or all of them."""


NONE_LOST = Loss()


class LossySensing:
    """Removes lost values from the samples of N tenants."""

    def __init__(self, loss: Loss, n: int, seed: int) -> None:
        self.loss, self._n = loss, n
        self._rng = np.random.default_rng([seed, 11])
        self._lost: Bool = np.zeros((n, len(LOSABLE)), np.bool_)

    def draw(self) -> None:
        """Draw the losses of the next action interval."""
        width = len(LOSABLE) if self.loss.unit == "signal" else 1
        lost = self._rng.random((self._n, width)) < self.loss.share
        self._lost = np.broadcast_to(lost, (self._n, len(LOSABLE)))

    def __call__(self, samples: Samples) -> Samples:
        """Return the samples (N,) without lost values; the argument is not changed."""
        if not self._lost.any():
            return samples
        columns: dict[str, Any] = {}
        ages = samples.age_seconds.copy()
        for number, name in enumerate(LOSABLE):
            lost, column = self._lost[:, number], "p95_ms" if name == "p95_latency" else name
            columns[column] = np.where(lost, np.nan, getattr(samples, column))
            ages[lost, SIGNALS.index(name)] = np.inf
        return replace(samples, age_seconds=ages, **columns)
