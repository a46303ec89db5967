"""When each Deployment's `spec.replicas` was patched, from a watch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.scale.objects import APPS

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.watch import Watch

SYNC_SECONDS = 60.0


class Growth:
    """Keeps the monotonic time at which each Deployment was first seen with more replicas than it began with.

    Raises RuntimeError where one has grown before.
    """

    def __init__(self, kube: KubeClient, start: int) -> None:
        self._start = start
        self.grown: dict[str, float] = {}
        self._watch = Watch(kube, APPS, self._take, lambda _, body: self._take([body]))
        self._watch.start()
        if not self._watch.synced.wait(SYNC_SECONDS):
            raise RuntimeError(f"the Deployments cannot be listed: {self._watch.error}")
        if self.grown:
            raise RuntimeError(f"{len(self.grown)} Deployments have grown before the step")

    def _take(self, bodies: list[dict[str, Any]]) -> None:
        seen = time.monotonic()
        for body in bodies:
            if body["spec"].get("replicas", 1) > self._start:
                self.grown.setdefault(body["metadata"]["name"], seen)

    def wait(self, enough: Callable[[], bool], seconds: float) -> bool:
        """Whether `enough` came true within `seconds`. Raises ApiError where the watch is broken at their end."""
        deadline = time.monotonic() + seconds
        pause = threading.Event()
        while time.monotonic() < deadline:
            if enough():
                return True
            pause.wait(0.1)
        if self._watch.error is not None:
            raise self._watch.error
        return False

    def close(self) -> None:
        self._watch.stop()
