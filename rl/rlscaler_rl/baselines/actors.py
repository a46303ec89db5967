"""Actors around and in place of the trained network; everything around them is the code that runs live.

All but `Configured` are controls: if the trained policy does not beat them visibly, the shield did the work and the
comparison says nothing about the policy.
"""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.action import HEADS, from_indices, head_probabilities, one_hot
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.spec import SpecSettings
from rlscaler_core.decision.types import OBSERVATIONS, Float, Float32, Placement


class Configured:
    """A network under a spec of its own, as a user would tune it; it acts outside its envelope too."""

    def __init__(self, actor: ActorLike, spec: SpecSettings) -> None:
        self.manifest = actor.manifest.model_copy(update={"envelope": None})
        self.probabilities = actor.probabilities
        self.spec = spec


class RandomActor:
    """A uniform draw per head at every interval."""

    def __init__(self, manifest: Manifest, seed: int) -> None:
        self.manifest, self.generator = manifest, np.random.default_rng(seed)

    def probabilities(self, stacked: Float32) -> Float32:
        drawn = [self.generator.integers(0, size, len(stacked)) for size in HEADS]
        return one_hot(from_indices(np.stack(drawn, axis=1)))


class FrozenActor:
    """Always (0, 0, balanced): only the shield acts."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def probabilities(self, stacked: Float32) -> Float32:
        return one_hot(np.tile([0, 0, Placement.BALANCED], (len(stacked), 1)).astype(np.int32))


class UntrainedActor:
    """A 64x64 tanh network with the initial weights of stable-baselines3 (orthogonal, last layer x 0.01)."""

    def __init__(self, manifest: Manifest, seed: int) -> None:
        self.manifest = manifest
        generator = np.random.default_rng(seed)
        sizes = (len(OBSERVATIONS) * manifest.stack_size, 64, 64, sum(HEADS))
        gains = (np.sqrt(2), np.sqrt(2), 0.01)
        shapes = zip(sizes[:-1], sizes[1:], gains, strict=True)
        self.layers = [gain * _orthogonal(generator, rows, columns) for rows, columns, gain in shapes]

    def probabilities(self, stacked: Float32) -> Float32:
        first, second, last = self.layers
        logits = np.tanh(np.tanh(stacked @ first) @ second) @ last
        return head_probabilities(logits.astype(np.float32))


def _orthogonal(generator: np.random.Generator, rows: int, columns: int) -> Float:
    wide = generator.standard_normal((max(rows, columns), min(rows, columns)))
    basis, triangle = np.linalg.qr(wide)
    basis = basis * np.sign(np.diag(triangle))
    return np.asarray(basis if rows >= columns else basis.T)
