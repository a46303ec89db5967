"""Actors that stand in for the trained network; everything around them is the code that runs live.

They are controls: if the trained policy does not beat them visibly, the shield did the work and the comparison says
nothing about the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rlscaler_rl.decision.types import Float32, Placement

HEADS = (5, 5, 3)
"""GPU -2..2, CPU -2..2, placement."""


class ActorLike(Protocol):
    """`decision.actor.Actor` and whatever stands in for it."""

    manifest: Any

    def probabilities(self, stacked: Float32) -> Float32:
        """(N, 10 k) float32 -> (N, 13) probabilities, 5 + 5 + 3."""
        ...


class RandomActor:
    """A uniform draw per head at every interval."""

    def __init__(self, manifest: Any, seed: int) -> None:
        self.manifest, self.generator = manifest, np.random.default_rng(seed)

    def probabilities(self, stacked: Float32) -> Float32:
        return one_hot(np.stack([self.generator.integers(0, size, len(stacked)) for size in HEADS], axis=1))


class FrozenActor:
    """Always (0, 0, balanced): what is left is the shield."""

    def __init__(self, manifest: Any) -> None:
        self.manifest = manifest

    def probabilities(self, stacked: Float32) -> Float32:
        return one_hot(np.tile([2, 2, int(Placement.BALANCED)], (len(stacked), 1)))


class UntrainedActor:
    """A 64x64 tanh network with the initial weights of stable-baselines3 (orthogonal, last layer x 0.01)."""

    def __init__(self, manifest: Any, seed: int) -> None:
        self.manifest = manifest
        generator = np.random.default_rng(seed)
        sizes = (10 * manifest.stack_size, 64, 64, sum(HEADS))
        gains = (np.sqrt(2), np.sqrt(2), 0.01)
        shapes = zip(sizes[:-1], sizes[1:], gains, strict=True)
        self.layers = [gain * _orthogonal(generator, rows, columns) for rows, columns, gain in shapes]

    def probabilities(self, stacked: Float32) -> Float32:
        first, second, last = self.layers
        logits = np.tanh(np.tanh(stacked @ first) @ second) @ last
        parts = [_softmax(part) for part in np.split(logits, np.cumsum(HEADS)[:-1], axis=1)]
        return np.concatenate(parts, axis=1).astype(np.float32)


def one_hot(choice: np.ndarray) -> Float32:
    """(N, 3) indices per head -> (N, 13) probabilities of 0 and 1."""
    rows = [np.eye(size, dtype=np.float32)[choice[:, head]] for head, size in enumerate(HEADS)]
    return np.concatenate(rows, axis=1)


def _orthogonal(generator: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    wide = generator.standard_normal((max(rows, columns), min(rows, columns)))
    basis, triangle = np.linalg.qr(wide)
    basis = basis * np.sign(np.diag(triangle))
    return basis if rows >= columns else basis.T


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponent = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponent / exponent.sum(axis=1, keepdims=True))
