"""KEDA from its Go module beside a control plane: certificates, definitions, operator and metrics adapter."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import requests
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rlscaler_dev.cluster import binaries, processes, state, toolchain
from rlscaler_dev.cluster.builder import module_source
from rlscaler_dev.cluster.components import Layout
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.launcher import connect, layout_of
from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.cluster.readiness import api_available, wait_until
from rlscaler_dev.cluster.state import ClusterState
from rlscaler_dev.cluster.versions import KEDA

EXTERNAL_METRICS = "v1beta1.external.metrics.k8s.io"
PORTS = ("operator-metrics", "operator-health", "operator-grpc", "adapter", "adapter-metrics")
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
    certificates(folder)
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
    wait_until(lambda: requests.get(health, timeout=5).ok, "KEDA's operator", 120)
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
    bases = module_source(KEDA, "keda", toolchain.find(ConsoleReporter(), "keda")) / "config" / "crd" / "bases"
    for file in sorted(bases.glob("*.yaml")):
        ground.kube.apply(yaml.safe_load(file.read_text()))
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


def certificates(folder: Path) -> None:
    """`ca.crt`, `tls.crt` and `tls.key`: operator and adapter trust each other by one authority."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench-ca")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "keda")])
    now = datetime.datetime.now(datetime.UTC)

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(authority_name).public_key(public)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(
            now + datetime.timedelta(days=7)
        )

    authority = builder(authority_name, authority_key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(HOST))]
    hosts = ("localhost", "keda-metrics-apiserver.keda.svc", "keda-operator.keda.svc")
    names += [x509.DNSName(host) for host in hosts]
    own = builder(name, key.public_key()).add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(authority.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    (folder / "tls.crt").write_bytes(own.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "tls.key").touch(mode=0o600)
    (folder / "tls.key").write_bytes(private)
