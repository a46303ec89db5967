"""Latencies of nodes while users move: nodes stand on a circle, and the users walk along it and jump."""

from __future__ import annotations

import random
from collections.abc import Sequence

NEAREST_MS, FARTHEST_MS = 6.0, 56.0
"""Round trips of a node where the users are, and of one on the other side. Of three nodes one is always below 30 ms."""

WALK = (0.01, 0.01)
"""Mean and standard deviation of a step of the users, in circles."""
JUMP = 1 / 15
"""Chance that the users jump to another place instead."""
DRIFT = 0.03
"""Standard deviation of the logarithm of a node's own factor, a step."""
MOST_DRIFT = 1.2
"""The factor stays between this and its inverse."""
TOLD = 0.1
"""Share by which a latency has to change before it is written to its node, as the latency app has it."""


class Users:
    """Users of a cluster in one place. Equal seeds give equal walks."""

    def __init__(self, nodes: Sequence[str], seed: int) -> None:
        self._rng = random.Random(seed)
        places = [index / len(nodes) for index in range(len(nodes))]
        self._rng.shuffle(places)
        self._nodes = dict(zip(nodes, places, strict=True))
        self._factor = dict.fromkeys(nodes, 1.0)
        self._place = 0.0
        self.latency_ms = self._measured()
        """Latency of each node as it was written last."""

    def move(self) -> dict[str, float]:
        """Let the users walk or jump and the nodes drift. Return the latencies that have changed enough to be told."""
        rng = self._rng
        self._place = (rng.random() if rng.random() < JUMP else self._place + rng.gauss(*WALK)) % 1.0
        for name, factor in self._factor.items():
            drifted = factor * (1.0 + rng.gauss(0.0, DRIFT))
            self._factor[name] = min(max(drifted, 1 / MOST_DRIFT), MOST_DRIFT)
        changed = {
            name: value
            for name, value in self._measured().items()
            if abs(value - self.latency_ms[name]) > TOLD * self.latency_ms[name]
        }
        self.latency_ms |= changed
        return changed

    def _measured(self) -> dict[str, float]:
        return {
            name: round(self._factor[name] * (NEAREST_MS + 2 * (FARTHEST_MS - NEAREST_MS) * self._apart(place)), 1)
            for name, place in self._nodes.items()
        }

    def _apart(self, place: float) -> float:
        """Circles between a node and the users, at most a half."""
        apart = abs(place - self._place)
        return min(apart, 1.0 - apart)
