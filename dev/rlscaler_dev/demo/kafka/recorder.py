"""The consumers while the demo goes on: `replicas.csv`, one row for every change."""

from __future__ import annotations

import time
from pathlib import Path

from rlscaler_dev.cluster.kube import Json, KubeClient
from rlscaler_dev.cluster.watch import Watches
from rlscaler_dev.demo.recorder import PoolBook, Replicas
from rlscaler_dev.demo.records import REPLICA_COLUMNS, CsvWriter
from rlscaler_dev.demo.settings import NAMESPACE


class Recorder(Watches):
    """Follows the Deployment and its pods by watches. Use it as a context manager."""

    def __init__(self, kube: KubeClient, deployment: str, data: Path, namespace: str = NAMESPACE) -> None:
        super().__init__(kube)
        self._deployment_name = deployment
        self._book = PoolBook()
        self._file = CsvWriter(data / "replicas.csv", ("time", *REPLICA_COLUMNS))
        self._written: Replicas | None = None
        self._follow("apps/v1", "Deployment", self._deployment, namespace=namespace)
        self._follow("v1", "Pod", self._pod, self._book.pods.clear, namespace)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._file.close()

    @property
    def replicas(self) -> Replicas | None:
        """None until the Deployment was seen."""
        with self._lock:
            return self._book.replicas

    def _deployment(self, event: str, deployment: Json) -> None:
        if deployment["metadata"]["name"] == self._deployment_name and event != "DELETED":
            self._book.scale(deployment)

    def _pod(self, event: str, pod: Json) -> None:
        if pod["metadata"].get("labels", {}).get("app") == self._deployment_name:
            self._book.pod(event, pod)

    def _changed(self) -> None:
        replicas = self._book.replicas
        if replicas and replicas != self._written:
            self._written = replicas
            self._file.row(f"{time.time():.3f}", *replicas)
