"""KEDA from its Go module beside a control plane: certificates, definitions, operator and metrics adapter."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rlscaler_dev.cluster import binaries, pki, processes, state
from rlscaler_dev.cluster.components import Layout
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.launcher import connect, layout_of
from rlscaler_dev.cluster.manifests import Definitions
from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.cluster.readiness import answers, api_available, wait_until
from rlscaler_dev.cluster.state import ClusterState
from rlscaler_dev.cluster.versions import KEDA

EXTERNAL_METRICS = "v1beta1.external.metrics.k8s.io"
PORTS = ("operator-metrics", "operator-health", "operator-grpc", "adapter", "adapter-metrics")
DEFINITIONS = Definitions("keda", KEDA, "config/crd/bases", modules="keda")
PARTS = ("keda-operator", "keda-adapter")
"""KEDA's processes, and the binaries that they are of."""


class Ground(Protocol):
    """A running cluster as KEDA needs it."""

    @property
    def cluster(self) -> ClusterState: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def kube(self) -> KubeClient: ...

    def binary(self, name: str) -> str:
        """Path of a binary, which is built where it is missing."""

    def run(self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
        """Start a process that ends with the cluster."""


class Running:
    """A cluster that `up` has started."""

    def __init__(self, cluster: ClusterState) -> None:
        self.cluster, self.layout, self.kube = cluster, layout_of(cluster), connect(cluster)

    def binary(self, name: str) -> str:
        return binaries.provide([name], ConsoleReporter())[name]["path"]

    def run(self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.cluster.record(processes.spawn(name, argv, self.cluster.directory, environment))


def start(ground: Ground, tuned: bool) -> None:
    """Start operator and adapter, ready to take ScaledObjects. `tuned` lifts the limits that are KEDA's by default."""
    folder = ground.cluster.directory / "keda"
    _certificates(folder)
    ports = dict(zip(PORTS, free_ports(len(PORTS), state.ports_taken()), strict=True))
    _define(ground)
    environment = {
        "KUBECONFIG": str(ground.layout.kubeconfig),
        "POD_NAMESPACE": "keda",
        "KEDA_CLUSTER_OBJECT_NAMESPACE": "keda",
        "WATCH_NAMESPACE": "",
        "KEDA_SCALEDOBJECT_CTRL_MAX_RECONCILES": "20" if tuned else "5",
    }
    limits = [f"--kube-api-qps={1000 if tuned else 20}", f"--kube-api-burst={2000 if tuned else 30}"]
    operator = [
        ground.binary("keda-operator"),
        f"--metrics-bind-address={HOST}:{ports['operator-metrics']}",
        f"--health-probe-bind-address={HOST}:{ports['operator-health']}",
        f"--metrics-service-bind-address={HOST}:{ports['operator-grpc']}",
        f"--cert-dir={folder}",
        "--zap-log-level=error",
        *limits,
    ]
    ground.run("keda-operator", operator, environment)
    health = f"http://{HOST}:{ports['operator-health']}/readyz"
    wait_until(lambda: answers(health), "KEDA's operator", 120)
    kubeconfig = ground.layout.kubeconfig
    adapter = [
        ground.binary("keda-adapter"),
        f"--secure-port={ports['adapter']}",
        f"--bind-address={HOST}",
        f"--port={ports['adapter-metrics']}",
        f"--cert-dir={folder}",
        f"--tls-cert-file={folder / 'tls.crt'}",
        f"--tls-private-key-file={folder / 'tls.key'}",
        f"--metrics-service-address={HOST}:{ports['operator-grpc']}",
        f"--lister-kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--zap-log-level=error",
        *limits,
    ]
    ground.run("keda-adapter", adapter, environment)
    _register(ground, ports["adapter"], (folder / "ca.crt").read_bytes())
    wait_until(lambda: api_available(ground.kube, EXTERNAL_METRICS), "KEDA's adapter", 120)


def _define(ground: Ground) -> None:
    ground.kube.apply_all(DEFINITIONS.manifests(ConsoleReporter()))
    ground.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "keda"}})
    collection = "/apis/keda.sh/v1alpha1/scaledobjects"
    wait_until(lambda: ground.kube.get(collection) is not None, "KEDA's definitions", 60)


def _register(ground: Ground, port: int, authority: bytes) -> None:
    name = "keda-metrics-apiserver"
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    ground.kube.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "keda"}, "spec": service}
    )
    spec = {
        "group": "external.metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "caBundle": base64.b64encode(authority).decode(),
        "service": {"name": name, "namespace": "keda", "port": port},
    }
    kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    ground.kube.apply(kind | {"metadata": {"name": EXTERNAL_METRICS}, "spec": spec})


def _certificates(folder: Path) -> None:
    """Write `ca.crt`, `tls.crt` and `tls.key`: operator and adapter trust each other by one authority."""
    own = pki.create(folder)
    own.admin_cert.replace(folder / "tls.crt")
    own.admin_key.replace(folder / "tls.key")
