"""Command lines of the node's daemons."""

from __future__ import annotations

from rlscaler_dev.cluster.components import Layout
from rlscaler_dev.cluster.realnode import packages
from rlscaler_dev.cluster.realnode.files import NodeFiles
from rlscaler_dev.cluster.realnode.network import GATEWAY_METRICS_PORT, GATEWAY_PORT, NODE_IP, NODE_NAME, POOL

LABELS = f"pool={POOL},nvidia.com/gpu.present=true"


def containerd(layout: Layout) -> list[str]:
    """The distribution's."""
    return [
        packages.needed("containerd"),
        f"--config={NodeFiles.of(layout.directory).containerd_config}",
        "--log-level=warn",
    ]


def kubelet(layout: Layout) -> list[str]:
    """Registers itself as an ordinary node without taints."""
    files = NodeFiles.of(layout.directory)
    return [
        layout.binaries["kubelet"],
        f"--config={files.kubelet_config}",
        f"--kubeconfig={files.kubelet_kubeconfig}",
        "--root-dir=/var/lib/kubelet",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_IP}",
        f"--node-labels={LABELS}",
        "--v=1",
    ]


def kube_proxy(layout: Layout) -> list[str]:
    """Services and their endpoints as rules of the namespace."""
    return [layout.binaries["kube-proxy"], f"--config={NodeFiles.of(layout.directory).proxy_config}", "--v=1"]


def coredns(layout: Layout) -> list[str]:
    """The cluster's DNS, on the node's address."""
    return [layout.binaries["coredns"], f"-conf={NodeFiles.of(layout.directory).corefile}"]


def traefik(layout: Layout) -> list[str]:
    """The Gateway API's data plane; KUBECONFIG tells it where the API server is."""
    return [
        layout.binaries["traefik"],
        "--global.checknewversion=false",
        "--global.sendanonymoususage=false",
        "--log.level=WARN",
        "--providers.kubernetesgateway=true",
        f"--providers.kubernetesgateway.statusaddress.ip={NODE_IP}",
        f"--entrypoints.web.address=:{GATEWAY_PORT}",
        f"--entrypoints.metrics.address=:{GATEWAY_METRICS_PORT}",
        "--metrics.prometheus=true",
        "--metrics.prometheus.entrypoint=metrics",
        "--metrics.prometheus.addrouterslabels=true",
    ]
