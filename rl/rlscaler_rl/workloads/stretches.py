"""Loads for training: stretches of the generative model, and of recorded loads as they are and changed.

A recorded stretch begins anywhere in its piece. Some are replayed faster or slower, some backwards, and some are the
weighted sum of two, so that a handful of recordings is not learned by heart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation.generative import MODEL, LoadModel, Stretches, draw
from rlscaler_rl.workloads.library import recording
from rlscaler_rl.workloads.names import HELD_OUT, TRACES, Part
from rlscaler_rl.workloads.recording import Recording
from rlscaler_rl.workloads.trace_loads import cut, pieces_of

Float32 = NDArray[np.float32]

SPEED = (0.5, 3.0)
"""Log-uniform speed at which `SPEED_SHARE` of the recorded stretches are replayed."""

SPEED_SHARE = 0.4
MIRRORED_SHARE = 0.3
"""Share of the recorded stretches that run backwards: a slow fall becomes a slow rise."""

MIXED_SHARE = 0.25
"""Share of the recorded stretches that are the sum of two, of the same recording or not."""


class StretchLoads:
    """Draws the loads of training episodes: a `randomisation.Loads`.

    `recorded_share` of the stretches come from one part of the `recordings`, each recording as likely as the others;
    the rest is drawn by the generative `model`. Unless `changed`, recordings are played as they are. Raises
    WorkloadError for a recording without that part.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        recorded_share: float,
        model: LoadModel = MODEL,
        *,
        part: Part = Part.TRAIN,
        changed: bool = True,
    ) -> None:
        self.changed = changed
        self.names = [recording.name for recording in recordings]
        self.recorded_share = recorded_share if recordings else 0.0
        self.model = model
        self._pieces = [pieces_of(recording, part) for recording in recordings]
        self._means = np.array([np.concatenate(pieces).mean() for pieces in self._pieces])

    def __call__(self, n: int, seconds: int, rng: np.random.Generator) -> Stretches:
        """N stretches of so many seconds; every draw comes from `rng`."""
        drawn = draw(n, seconds, rng, self.model)
        rows = np.flatnonzero(rng.random(n) < self.recorded_share)
        if rows.size:
            drawn.rate[rows], drawn.daily_mean[rows] = self._recorded(len(rows), seconds, rng)
        return drawn

    def _recorded(self, n: int, seconds: int, rng: np.random.Generator) -> Stretches:
        first = self._plain(n, seconds, rng)
        if not self.changed:
            return first
        other = self._plain(n, seconds, rng)
        share = np.where(rng.random(n) < MIXED_SHARE, rng.uniform(0.2, 0.8, n), 1.0)
        # A weighted sum keeps the mean rate between those of its parts.
        rate = share[:, None] * first.rate + (1 - share)[:, None] * other.rate
        backwards = rng.random(n) < MIRRORED_SHARE
        rate[backwards] = rate[backwards, ::-1]
        return Stretches(rate.astype(np.float32), share * first.daily_mean + (1 - share) * other.daily_mean)

    def _plain(self, n: int, seconds: int, rng: np.random.Generator) -> Stretches:
        rate, which = cut(self._pieces, n, seconds, SPEED, SPEED_SHARE * self.changed, rng)
        return Stretches(rate, self._means[which])


def trained_recordings() -> list[Recording]:
    """The recordings that the bundled network learns from: all but the one that is held out."""
    return [recording(name) for name in TRACES if name != HELD_OUT]
