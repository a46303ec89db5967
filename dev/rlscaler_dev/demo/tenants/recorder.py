"""GPUs held by each tenant while the demo runs: `replicas.csv`, one row for every change of a tenant."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from rlscaler_dev.cluster.kube import Json, KubeClient, has_condition
from rlscaler_dev.cluster.watch import Watches
from rlscaler_dev.demo.records import CsvWriter
from rlscaler_dev.demo.tenants.plan import TENANTS

COLUMNS = ("spec", "held", "ready", "pending")
Key = tuple[str, str]


class Counts(NamedTuple):
    """A tenant at one moment, in the columns of `replicas.csv`."""

    spec: int
    """`spec.replicas`: the replicas that are desired."""
    held: int
    """Pods that have a node, and so its GPU, until they are gone."""
    ready: int
    pending: int
    """Pods that wait for a node."""


class PodOf(NamedTuple):
    """State of one pod."""

    tenant: Key
    bound: bool
    ready: bool


class Recorder(Watches):
    """Follows Deployments and pods of all tenants by watches. Use it as a context manager."""

    def __init__(self, kube: KubeClient, data: Path) -> None:
        super().__init__(kube)
        self._file = CsvWriter(data / "replicas.csv", ("time", "tenant", *COLUMNS))
        self._tenants = {(tenant.namespace, tenant.name): tenant.name for tenant in TENANTS}
        self._specs: dict[Key, int] = {}
        self._pods: dict[str, PodOf] = {}
        self._written: dict[Key, Counts] = {}
        self._follow("apps/v1", "Deployment", self._deployment, self._specs.clear)
        self._follow("v1", "Pod", self._pod, self._pods.clear)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._file.close()

    @property
    def counts(self) -> dict[str, Counts]:
        """Every tenant that was seen, by name."""
        with self._lock:
            return {self._tenants[key]: counts for key, counts in self._written.items()}

    def _deployment(self, event: str, deployment: Json) -> None:
        key = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
        if key in self._tenants and event != "DELETED":
            self._specs[key] = int(deployment["spec"].get("replicas", 1))

    def _pod(self, event: str, pod: Json) -> None:
        metadata = pod["metadata"]
        tenant = metadata["namespace"], (metadata.get("labels") or {}).get("app", "")
        if tenant not in self._tenants:
            return
        over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        bound = bool(pod["spec"].get("nodeName"))
        if event == "DELETED" or over or (not bound and "deletionTimestamp" in metadata):
            self._pods.pop(metadata["uid"], None)
        else:
            self._pods[metadata["uid"]] = PodOf(tenant, bound, has_condition(pod, "Ready"))

    def _changed(self) -> None:
        now = time.time()
        for key, spec in self._specs.items():
            pods = [pod for pod in self._pods.values() if pod.tenant == key]
            held = sum(pod.bound for pod in pods)
            counts = Counts(spec, held, sum(pod.ready for pod in pods), len(pods) - held)
            if self._written.get(key) != counts:
                self._written[key] = counts
                self._file.row(f"{now:.3f}", self._tenants[key], *counts)
