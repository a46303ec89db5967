"""GPUs held by each tenant while the demo runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.demo.pods import PodRecorder, PodState
from rlscaler_dev.demo.tenants.plan import TENANTS


class Counts(NamedTuple):
    """A tenant at one moment, in the columns of `replicas.csv`."""

    spec: int
    """`spec.replicas`: the replicas that are desired."""
    held: int
    """Pods that have a node, and so its GPU, until they are gone."""
    ready: int
    pending: int
    """Pods that wait for a node."""

    @classmethod
    def of(cls, spec: int, pods: Sequence[PodState]) -> Counts:
        waiting = sum(not pod.bound and not pod.terminating for pod in pods)
        return cls(spec, sum(pod.bound for pod in pods), sum(pod.ready for pod in pods), waiting)


Recorder = PodRecorder[Counts]


def recorder(kube: KubeClient, data: Path) -> Recorder:
    """Return the recorder of all tenants."""
    names = {(tenant.namespace, tenant.name): tenant.name for tenant in TENANTS}
    return PodRecorder(kube, data / "replicas.csv", ("tenant", *Counts._fields), Counts.of, names)
