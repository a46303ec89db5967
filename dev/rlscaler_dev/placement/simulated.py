"""Nodes of a churn test in this process: rules and networks place pods as the suggestion server does, at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.mask import fits
from rlscaler_core.placement.policies import Policy, allowed, by_rule, choose
from rlscaler_core.placement.types import Bool, Float, Nodes, Pods, empty_nodes, pod
from rlscaler_dev.placement.churn import CPU_MILLI, HARD_MS, MEMORY_MIB, SIZE, SOFT_MS, Bed
from rlscaler_dev.placement.contenders import Contender
from rlscaler_dev.placement.testbed import node_names

Scores = Callable[[Nodes, Pods, Bool], Float]
"""Takes nodes (N,), a pod and the nodes (N,) that it may go to; returns scores (N,)."""


class Simulated(Bed):
    """Equal nodes with a clock of their own. kube-scheduler's default is its score LeastAllocated alone."""

    def __init__(self, count: int) -> None:
        self.names = node_names(count)
        self._clock = 0.0

    @contextmanager
    def placing(self, contender: Contender, folder: Path) -> Iterator[None]:
        size = np.array([1000.0 * SIZE[0], 1024.0 * SIZE[1]])
        self._nodes, self._index = empty_nodes(np.tile(size, (len(self.names), 1))), dict[str, int | None]()
        self._scores = _scores(contender)
        el = contender.policy is Policy.EL
        limits = (SOFT_MS, HARD_MS) if el else (np.nan, np.nan)
        self._pod = pod(CPU_MILLI, MEMORY_MIB, soft_ms=limits[0], hard_ms=limits[1])
        yield

    def tell(self, latency_ms: Mapping[str, float]) -> None:
        number = {name: index for index, name in enumerate(self.names)}
        for name, value in latency_ms.items():
            self._nodes.latency_ms[number[name]] = value
        # kube-scheduler tries refused pods again when a node changes.
        for name in [name for name, index in self._index.items() if index is None]:
            self._place(name)

    def create(self, name: str, contender: Contender) -> None:
        self._place(name)

    def delete(self, name: str) -> None:
        index = self._index.pop(name)
        if index is not None:
            self._count(index, -1)

    def pods(self) -> dict[str, str | None]:
        return {name: None if index is None else self.names[index] for name, index in self._index.items()}

    def seconds(self) -> float:
        return self._clock

    def pause(self, seconds: float) -> None:
        self._clock += seconds

    def _place(self, name: str) -> None:
        among = allowed(self._nodes, self._pod, fits(self._nodes, self._pod))
        index = int(choose(self._scores(self._nodes, self._pod, among), self._nodes, self._pod, among))
        self._index[name] = index if index >= 0 else None
        if index >= 0:
            self._count(index, 1)

    def _count(self, index: int, change: int) -> None:
        nodes = self._nodes
        nodes.requested[index] += change * self._pod.requests
        nodes.pods[index] += change
        # The pods of the thesis state no lifetime, so the time until a node is empty is unknown.
        nodes.empty_in_s[index] = np.nan if nodes.pods[index] else 0.0


def _scores(contender: Contender) -> Scores:
    """Return the scores of a contender. Raises ModelError for a network that cannot be loaded."""
    policy, rule, models = contender.policy, contender.rule, contender.models
    if policy is None:
        rng = np.random.default_rng(0)
        # kube-scheduler draws among equals, which differ by less than this from any other node.
        return lambda nodes, pods, among: by_rule("least-allocated", nodes, pods) + 1e-9 * rng.random(len(among))
    if rule is not None:
        return lambda nodes, pods, among: by_rule(rule, nodes, pods)
    assert models is not None
    actor = PlacementActor.load(models, policy)
    return lambda nodes, pods, among: actor.values(actor.seen(nodes, pods, among))
