"""Every value of `spec.replicas` that the Deployments of a namespace ever had, by watching the API server directly."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rlscaler_dev.cluster.kube import Json, KubeClient, collection
from rlscaler_dev.cluster.watch import Watch
from tests.harness.load import RPS


@dataclass(frozen=True, slots=True)
class Change:
    """One value of one Deployment."""

    time: float
    """Monotonic, when it was seen."""
    name: str
    replicas: int


class Replicas:
    """A watch that survives restarts of the API server: it goes on from where it was."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._kube = KubeClient.from_kubeconfig(kubeconfig)
        self._changes: list[Change] = []
        path = collection("apps/v1", "Deployment", namespace)
        self._watch = Watch(self._kube, path, self._listed, self._changed)
        self._watch.start()

    def close(self) -> None:
        self._watch.stop()
        self._kube.close()

    def _listed(self, bodies: list[Json]) -> None:
        for body in bodies:
            self._changed("ADDED", body)

    def _changed(self, kind: str, body: Json) -> None:
        if kind != "DELETED":
            self._changes.append(Change(time.monotonic(), body["metadata"]["name"], body["spec"]["replicas"]))

    def of(self, service: str, since: float) -> list[tuple[int, int]]:
        """(GPU, CPU) after each change from `since` on, the value in force then included."""
        now = {"gpu": 0, "cpu": 0}
        seen: list[tuple[int, int]] = []
        begun = False
        for change in list(self._changes):
            pool = change.name.removeprefix(f"{service}-")
            if pool not in now or change.name == pool:
                continue
            if change.time >= since and not begun:
                seen.append((now["gpu"], now["cpu"]))
                begun = True
            now[pool] = change.replicas
            if begun:
                seen.append((now["gpu"], now["cpu"]))
        return seen or [(now["gpu"], now["cpu"])]

    def now(self, service: str) -> tuple[int, int]:
        """(GPU, CPU) as seen last."""
        return self.of(service, float("inf"))[-1]

    def lowest(self, service: str, since: float) -> tuple[int, int]:
        """The fewest replicas of each pool from `since` on."""
        seen = self.of(service, since)
        return min(gpu for gpu, _ in seen), min(cpu for _, cpu in seen)

    def weakest(self, service: str, since: float) -> tuple[int, int]:
        """(GPU, CPU) when both pools together could do least, from `since` on."""
        return min(self.of(service, since), key=capacity)


def described(replicas: tuple[int, int]) -> str:
    """Replicas in the words of a report: both pools, and what they can do together."""
    return f"{replicas[0]}+{replicas[1]} ({capacity(replicas):g} req/s)"


def capacity(replicas: tuple[int, int]) -> float:
    """Requests per second that so many replicas answer."""
    return replicas[0] * RPS["gpu"] + replicas[1] * RPS["cpu"]
