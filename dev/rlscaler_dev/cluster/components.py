"""Command lines of the control plane's components. All of them listen on 127.0.0.1 only.

Beside a real node they do so in its private network, where pods reach the API server at the node's address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlscaler_dev.cluster.network import HOST, NODE_IP, POOL, SERVICE_RANGE
from rlscaler_dev.cluster.pki import Pki

PORTS = (
    "apiserver",
    "etcd",
    "etcd-peer",
    "controller-manager",
    "scheduler",
    "kwok",
    "metrics-server",
    "prometheus",
    "prometheus-adapter",
    "gateway",
)
"""One port each; chosen together, so that none is chosen twice."""

KAFKA_PORTS = ("kafka", "kafka-sasl", "kafka-controller", "kafka-metrics")
"""Those of the broker, chosen when it is first started."""

UNLIMITED_QPS = 5000
"""Client-side limits of the cluster's own controllers are lifted: a simulated node pool creates bursts of pods."""

OPEN_PATHS = "/healthz,/readyz,/livez,/metrics"
POD_CIDR = "10.64.0.1/12"


@dataclass(frozen=True)
class Layout:
    """Files of one cluster, ports of its components, and their binaries."""

    directory: Path
    ports: Mapping[str, int]
    binaries: Mapping[str, str]
    """Tool -> path of its binary."""
    real: bool = False
    """Whether a real node is beside the played ones."""

    @property
    def pki(self) -> Pki:
        """The cluster's certificates."""
        return Pki.at(self.directory / "pki")

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{HOST}:{self.ports['apiserver']}"

    @property
    def prometheus_url(self) -> str:
        """URL of Prometheus."""
        return f"http://{HOST}:{self.ports['prometheus']}"

    @property
    def gateway_url(self) -> str:
        """URL of the Gateway's data plane beside a real node."""
        return f"http://{HOST}:{self.ports['gateway']}"

    @property
    def targets_dir(self) -> Path:
        """Prometheus scrapes the targets of every JSON or YAML file in here."""
        return self.directory / "targets"

    @property
    def kwok_config(self) -> Path:
        """Stages, usage and metrics that kwok plays."""
        return self.directory / "kwok.yaml"

    @property
    def prometheus_config(self) -> Path:
        """Prometheus's configuration file."""
        return self.directory / "prometheus.yml"

    @property
    def adapter_rules(self) -> Path:
        """Series that prometheus-adapter serves."""
        return self.directory / "adapter-rules.yaml"


def etcd(layout: Layout) -> list[str]:
    """No fsync: the data is worth nothing after a crash, and disks differ less."""
    client = f"http://{HOST}:{layout.ports['etcd']}"
    peer = f"http://{HOST}:{layout.ports['etcd-peer']}"
    return [
        layout.binaries["etcd"],
        "--name=node0",
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=node0={peer}",
        "--unsafe-no-fsync",
        "--auto-compaction-retention=1",
        f"--quota-backend-bytes={8 * 1024**3}",
        "--log-level=warn",
    ]


def kube_apiserver(layout: Layout) -> list[str]:
    """RBAC and admission as upstream; request limits lifted."""
    pki = layout.pki
    return [
        layout.binaries["kube-apiserver"],
        f"--etcd-servers=http://{HOST}:{layout.ports['etcd']}",
        *_reached(layout),
        f"--secure-port={layout.ports['apiserver']}",
        f"--tls-cert-file={pki.admin_cert}",
        f"--tls-private-key-file={pki.admin_key}",
        f"--client-ca-file={pki.ca_cert}",
        f"--requestheader-client-ca-file={pki.ca_cert}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki.proxy_cert}",
        f"--proxy-client-key-file={pki.proxy_key}",
        f"--service-account-key-file={pki.service_account_key}",
        f"--service-account-signing-key-file={pki.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
        "--enable-priority-and-fairness=false",
    ]


def _reached(layout: Layout) -> list[str]:
    """Options that say where the API server is reached, and how it reaches kubelets.

    Without a real node it has no endpoints of its own: these may not be loopback.
    """
    if not layout.real:
        return [f"--bind-address={HOST}", f"--advertise-address={HOST}", "--endpoint-reconciler-type=none"]
    return [
        "--bind-address=0.0.0.0",
        f"--advertise-address={NODE_IP}",
        f"--kubelet-client-certificate={layout.pki.admin_cert}",
        f"--kubelet-client-key={layout.pki.admin_key}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def kube_controller_manager(layout: Layout) -> list[str]:
    """All default controllers; the HorizontalPodAutoscaler keeps its upstream settings."""
    return [
        layout.binaries["kube-controller-manager"],
        f"--kubeconfig={layout.kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={layout.ports['controller-manager']}",
        f"--authorization-always-allow-paths={OPEN_PATHS}",
        f"--root-ca-file={layout.pki.ca_cert}",
        f"--service-account-private-key-file={layout.pki.service_account_key}",
        "--leader-elect=false",
        f"--kube-api-qps={UNLIMITED_QPS}",
        f"--kube-api-burst={2 * UNLIMITED_QPS}",
    ]


def kube_scheduler(layout: Layout) -> list[str]:
    """The default scheduler."""
    return [
        layout.binaries["kube-scheduler"],
        f"--kubeconfig={layout.kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={layout.ports['scheduler']}",
        f"--authorization-always-allow-paths={OPEN_PATHS}",
        "--leader-elect=false",
        f"--kube-api-qps={UNLIMITED_QPS}",
        f"--kube-api-burst={2 * UNLIMITED_QPS}",
    ]


def kwok(layout: Layout) -> list[str]:
    """Plays every node that no kubelet plays, with its pods, and answers as their kubelet for metrics."""
    played = (
        ["--manage-all-nodes=false", f"--manage-nodes-with-label-selector=pool!={POOL}"]
        if layout.real
        else ["--manage-all-nodes=true"]
    )
    return [
        layout.binaries["kwok"],
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={layout.kwok_config}",
        *played,
        f"--cidr={POD_CIDR}",
        f"--node-ip={HOST}",
        "--node-name=localhost",
        f"--node-port={layout.ports['kwok']}",
        f"--server-address={HOST}:{layout.ports['kwok']}",
        f"--tls-cert-file={layout.pki.admin_cert}",
        f"--tls-private-key-file={layout.pki.admin_key}",
        "--node-lease-duration-seconds=40",
    ]


def metrics_server(layout: Layout) -> list[str]:
    """Reads usage from kwok and the kubelet; the resolution is upstream's."""
    return [
        layout.binaries["metrics-server"],
        "--kubelet-preferred-address-types=InternalIP",
        "--kubelet-use-node-status-port",
        "--kubelet-insecure-tls",
        "--metric-resolution=15s",
        f"--bind-address={HOST}",
        f"--secure-port={layout.ports['metrics-server']}",
        f"--kubeconfig={layout.kubeconfig}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        f"--tls-cert-file={layout.pki.admin_cert}",
        f"--tls-private-key-file={layout.pki.admin_key}",
    ]


def prometheus_adapter(layout: Layout) -> list[str]:
    """Serves custom.metrics.k8s.io and external.metrics.k8s.io from Prometheus."""
    return [
        layout.binaries["prometheus-adapter"],
        f"--prometheus-url={layout.prometheus_url}",
        f"--config={layout.adapter_rules}",
        f"--bind-address={HOST}",
        f"--secure-port={layout.ports['prometheus-adapter']}",
        f"--lister-kubeconfig={layout.kubeconfig}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        f"--tls-cert-file={layout.pki.admin_cert}",
        f"--tls-private-key-file={layout.pki.admin_key}",
        "--metrics-relist-interval=5s",
        "--metrics-max-age=30s",
    ]


def prometheus(layout: Layout) -> list[str]:
    """Keeps one day; reloads on POST /-/reload."""
    return [
        layout.binaries["prometheus"],
        f"--config.file={layout.prometheus_config}",
        f"--storage.tsdb.path={layout.directory / 'prometheus'}",
        "--storage.tsdb.retention.time=1d",
        f"--web.listen-address={HOST}:{layout.ports['prometheus']}",
        "--web.enable-lifecycle",
        "--log.level=warn",
    ]
