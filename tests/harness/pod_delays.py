"""How long pods wait for a node, seen by a watch: the API server's own times have whole seconds only."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.exceptions import ApiError


class Delays:
    """Seconds between the moments at which a watch has shown a pod, and has shown it on a node. A context manager."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._changed = threading.Condition()
        self._came: dict[str, float] = {}
        self._bound: dict[str, tuple[float, str]] = {}
        self._ended = threading.Event()

    def __enter__(self) -> Delays:
        version = self._kube.get(self._path)["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._watch, args=(version,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def wait(self, count: int, seconds: float) -> bool:
        """Wait until so many pods are on nodes; whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._bound) >= count, seconds)

    def seconds(self) -> dict[str, float]:
        """By name of the pods that are on nodes."""
        with self._changed:
            return {name: at - self._came[name] for name, (at, _) in self._bound.items()}

    def nodes(self) -> dict[str, str]:
        """Pod -> node."""
        with self._changed:
            return {name: node for name, (_, node) in self._bound.items()}

    def _watch(self, version: str) -> None:
        while not self._ended.is_set():
            parameters = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "60"}
            try:
                with self._kube.open("GET", self._path, params=parameters, stream=True, timeout=90) as answer:
                    for line in answer.iter_lines(chunk_size=None):
                        version = self._note(json.loads(line)["object"])
            except (ApiError, OSError, ValueError, KeyError):  # cut off, or the server says why it ended the watch
                self._ended.wait(0.1)

    def _note(self, pod: dict[str, Any]) -> str:
        """Note a pod as it is now, save one that had its node before the watch began; its resourceVersion."""
        now, metadata = time.monotonic(), pod["metadata"]
        name, node = metadata["name"], pod["spec"].get("nodeName")
        with self._changed:
            if not node:
                self._came.setdefault(name, now)
            elif name in self._came:
                self._bound.setdefault(name, (now, node))
                self._changed.notify_all()
        return str(metadata["resourceVersion"])
