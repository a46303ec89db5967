"""How long pods wait for a node, seen by a watch: the API server's own times have whole seconds only."""

from __future__ import annotations

import time
from contextlib import suppress

from rlscaler_dev.cluster.kube import Json, KubeClient
from rlscaler_dev.cluster.watch import Watches
from tests.harness.waiting import until


class Delays(Watches):
    """Seconds between the moments at which a watch has shown a pod, and has shown it on a node. A context manager."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        super().__init__(kube)
        self._came: dict[str, float] = {}
        self._bound: dict[str, tuple[float, str]] = {}
        self._follow("v1", "Pod", self._pod, namespace=namespace)

    def __enter__(self) -> Delays:
        super().__enter__()
        until(lambda: self.synced)
        return self

    def wait(self, count: int, seconds: float) -> bool:
        """Wait until so many pods are on nodes; whether they are."""
        with suppress(AssertionError):
            until(lambda: len(self._bound) >= count, seconds)
        return len(self._bound) >= count

    def seconds(self) -> dict[str, float]:
        """By name of the pods that are on nodes."""
        with self._lock:
            return {name: at - self._came[name] for name, (at, _) in self._bound.items()}

    def nodes(self) -> dict[str, str]:
        """Pod -> node."""
        with self._lock:
            return {name: node for name, (_, node) in self._bound.items()}

    def _pod(self, event: str, pod: Json) -> None:
        """Note a pod as it is now, save one that had its node before the watch began."""
        now, name, node = time.monotonic(), pod["metadata"]["name"], pod["spec"].get("nodeName")
        if not node:
            self._came.setdefault(name, now)
        elif name in self._came:
            self._bound.setdefault(name, (now, node))

    def _changed(self) -> None:
        """Do nothing: `_pod` has noted the change."""
