"""Pods of Deployments over time: `replicas.csv`, with a row for every change of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from rlscaler_dev.cluster.kube import Json, KubeClient, has_condition
from rlscaler_dev.cluster.watch import Watches
from rlscaler_dev.demo.records import CsvWriter


class PodState(NamedTuple):
    ready: bool
    terminating: bool
    bound: bool
    """Whether it has a node."""


@dataclass(slots=True)
class PoolBook:
    """The pods of one Deployment and its spec.replicas. A pod exists, and is billed, until it is gone."""

    spec: int | None = None
    pods: dict[str, PodState] = field(default_factory=dict)

    def scale(self, deployment: Json) -> None:
        self.spec = int(deployment["spec"].get("replicas", 1))

    def pod(self, kind: str, pod: Json) -> None:
        """Take one watch event."""
        uid = pod["metadata"]["uid"]
        if kind == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            self.pods.pop(uid, None)
        else:
            terminating, bound = "deletionTimestamp" in pod["metadata"], bool(pod["spec"].get("nodeName"))
            self.pods[uid] = PodState(has_condition(pod, "Ready"), terminating, bound)


class Replicas(NamedTuple):
    """A pool at one moment, in the columns of `replicas.csv`."""

    spec: int
    existing: int
    ready: int
    starting: int
    """Pods that are neither ready nor terminating, pending ones included."""

    @classmethod
    def of(cls, spec: int, pods: Sequence[PodState]) -> Replicas:
        staying = [pod for pod in pods if not pod.terminating]
        ready = sum(pod.ready for pod in staying)
        return cls(spec, len(pods), ready, len(staying) - ready)


Counts = TypeVar("Counts", bound=tuple[int, ...])


class PodRecorder(Watches, Generic[Counts]):
    """Follows Deployments and their pods by watches. Use it as a context manager."""

    def __init__(
        self,
        kube: KubeClient,
        path: Path,
        columns: Sequence[str],
        count: Callable[[int, Sequence[PodState]], Counts],
        names: Mapping[tuple[str, str], str],
        namespace: str | None = None,
    ) -> None:
        """`columns` are those of a name and of the counts by `count`; `names` are by namespace and Deployment."""
        super().__init__(kube)
        self._file = CsvWriter(path, ("time", *columns))
        self._count, self._names = count, names
        self._books = {name: PoolBook() for name in names.values()}
        self.counts: dict[str, Counts] = {}
        """Present counts by name, of the Deployments that were seen."""
        self._follow("apps/v1", "Deployment", self._deployment, namespace=namespace)
        self._follow("v1", "Pod", self._pod, self._forget_pods, namespace)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._file.close()

    def _deployment(self, event: str, deployment: Json) -> None:
        name = self._names.get((deployment["metadata"]["namespace"], deployment["metadata"]["name"]))
        if name and event != "DELETED":
            self._books[name].scale(deployment)

    def _pod(self, event: str, pod: Json) -> None:
        labels = pod["metadata"].get("labels") or {}
        if name := self._names.get((pod["metadata"]["namespace"], labels.get("app", ""))):
            self._books[name].pod(event, pod)

    def _forget_pods(self) -> None:
        for book in self._books.values():
            book.pods.clear()

    def _changed(self) -> None:
        now = time.time()
        for name, book in self._books.items():
            if book.spec is None:
                continue
            counts, before = self._count(book.spec, list(book.pods.values())), self.counts.get(name)
            if counts != before:
                self.counts = {**self.counts, name: counts}
                self._file.row(f"{now:.3f}", name, *counts)
                self._counted(name, before, counts, now)

    def _counted(self, name: str, before: Counts | None, counts: Counts, now: float) -> None:
        """Called under the lock after each change of a Deployment's counts."""
