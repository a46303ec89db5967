"""What an actor's observations are like where it was trained: the measure of what is out of distribution."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.training_distribution import TrainingDistribution
from rlscaler_core.decision.types import OBSERVATIONS, Float32
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import Ranges
from rlscaler_rl.training.config import EnvironmentConfig

EPISODES, SECONDS, SEED = 128, 600, 97
"""Of every interval; drawn as training draws them, by a seed that no training uses."""

MARGIN = 1.5
"""How much further than the furthest observation here is still familiar: training sees millions."""


def familiar(actor: ActorLike, ranges: Ranges, episodes: int = EPISODES) -> TrainingDistribution:
    """What the actor meets on random episodes of its training distribution, `episodes` of every interval."""
    recording = _Recording(actor)
    rng = np.random.default_rng(SEED)
    for interval in ranges.intervals:
        run(randomised(episodes, rng, float(interval), SECONDS, ranges), recording)
    return TrainingDistribution.of(np.concatenate(recording.seen).astype(np.float64), MARGIN)


def with_familiar(actor: ActorLike, episodes: int = EPISODES) -> Manifest:
    """The manifest of a network of general training, with what its observations are like; some ten seconds."""
    manifest = actor.manifest
    if manifest.envelope is None:
        return manifest
    environment = EnvironmentConfig.model_validate(manifest.training.hyperparameters["environment"])
    measured = familiar(actor, environment.ranges(), episodes)
    return manifest.model_copy(update={"envelope": manifest.envelope.model_copy(update={"observation": measured})})


class _Recording:
    """An actor that remembers what it was shown, and acts everywhere."""

    def __init__(self, actor: ActorLike) -> None:
        self._actor = actor
        self.manifest = actor.manifest.model_copy(update={"envelope": None})
        self.seen: list[Float32] = []

    def probabilities(self, stacked: Float32) -> Float32:
        """The newest observation is the last of the stack."""
        self.seen.append(stacked[:, -len(OBSERVATIONS) :].copy())
        return self._actor.probabilities(stacked)
