"""The steps of bringing the real node up, which the launcher weaves into the control plane's."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster import components
from rlscaler_dev.cluster.components import Layout
from rlscaler_dev.cluster.kube import KubeClient, has_condition
from rlscaler_dev.cluster.kwok import GPU_RESOURCE
from rlscaler_dev.cluster.network import GATEWAY_CLASS, GATEWAY_METRICS_PORT, GATEWAY_PORT, NODE_IP, NODE_NAME
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.cluster.realnode import daemons, images, namespace, packages
from rlscaler_dev.cluster.realnode.files import node_folder
from rlscaler_dev.cluster.state import ClusterState

KWOK, REAL = "kwok", "real"
CONTAINERD_TIMEOUT_SECONDS = 60.0
DEFAULT_GPUS = 16
GATEWAY_SERVICE, GATEWAY_NAMESPACE = "traefik", "kube-system"
GATEWAY_PORTS = {"web": GATEWAY_PORT, "metrics": GATEWAY_METRICS_PORT}
"""The Service that leads pods to the Gateway's data plane."""


def open_node(cluster: ClusterState, layout: Layout) -> Future[list[str]]:
    """Open the namespace, start containerd and import the images every node has; the import goes on meanwhile.

    The result of the Future, or its DevClusterError, must be awaited before pods can run.
    """
    ports = layout.ports
    forwards = {ports["apiserver"]: ports["apiserver"], ports["prometheus"]: ports["prometheus"]}
    prefix = namespace.open_namespace(cluster, forwards | {ports["gateway"]: GATEWAY_PORT})
    daemons.write_files(cluster.name, layout)
    containerd = components.command(
        replace(layout, binaries={"containerd": packages.needed("containerd")}), "containerd"
    )
    namespace.spawn(cluster, "containerd", containerd)
    with_images = (images.pause(), images.prometheus(Path(layout.binaries["prometheus"])))
    executor = ThreadPoolExecutor(1, thread_name_prefix="images")
    imported = executor.submit(_import, cluster, node_folder(layout.directory) / "images", prefix, with_images)
    executor.shutdown(wait=False)
    return imported


def _import(cluster: ClusterState, folder: Path, prefix: list[str], chosen: tuple[images.Image, ...]) -> list[str]:
    archives = [images.write(image, folder / f"{number}.tar") for number, image in enumerate(chosen)]
    probe = [*prefix, packages.needed("ctr"), "version"]

    def answers() -> bool:
        for record in cluster.processes:
            record.check()
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0

    wait_until(answers, "containerd's readiness", CONTAINERD_TIMEOUT_SECONDS)
    messages = images.load(prefix, archives)
    shutil.rmtree(folder)
    return messages


def join(cluster: ClusterState, layout: Layout) -> None:
    """Start DNS, kube-proxy and the kubelet, which registers the node."""
    for name in ("coredns", "kube-proxy", "kubelet"):
        namespace.spawn(cluster, name, components.command(layout, name))


def add_gpus(client: KubeClient, count: int) -> None:
    """Add GPUs to the registered node, of which only the scheduler knows."""
    resources = {GPU_RESOURCE: str(count)}
    client.merge(f"/api/v1/nodes/{NODE_NAME}/status", {"status": {"capacity": resources, "allocatable": resources}})


def start_gateway(cluster: ClusterState, layout: Layout, client: KubeClient) -> None:
    """Start Traefik and give it its class; the definitions must be served already."""
    environment = {"KUBECONFIG": str(layout.kubeconfig)}
    namespace.spawn(cluster, "traefik", components.command(layout, "traefik"), environment)
    client.apply_all(_gateway_manifests())


def _gateway_manifests() -> list[dict[str, Any]]:
    """GatewayClass, Service and its EndpointSlice: Traefik is a process of the node, so no selector finds it."""
    metadata = {"name": GATEWAY_SERVICE, "namespace": GATEWAY_NAMESPACE}
    ports = [{"name": name, "port": port} for name, port in GATEWAY_PORTS.items()]
    return [
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": GATEWAY_CLASS},
            "spec": {"controllerName": "traefik.io/gateway-controller"},
        },
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata | {"labels": {"kubernetes.io/service-name": GATEWAY_SERVICE}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NODE_IP], "conditions": {"ready": True}}],
            "ports": ports,
        },
    ]


def gateway_accepted(client: KubeClient) -> bool:
    """Whether Traefik has taken up the class, which it does once it watches Gateways and routes."""
    gateway_class = client.get(f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{GATEWAY_CLASS}")
    return has_condition(gateway_class, "Accepted")
