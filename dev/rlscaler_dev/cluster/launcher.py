"""Starting, stopping and repairing a cluster.

The components are started directly rather than by kwokctl: see docs/decisions/ for why.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster import (
    components,
    kubeconfig,
    kwok,
    manifests,
    paths,
    pki,
    processes,
    prometheus,
    state,
)
from rlscaler_dev.cluster.components import Layout
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.network import API_SERVICE_IP, NODE_IP, NODE_NAME
from rlscaler_dev.cluster.readiness import (
    answers,
    api_available,
    nodes_schedulable,
    ready_api,
    settled,
    wait_until,
)
from rlscaler_dev.cluster.realnode import cgroups, namespace
from rlscaler_dev.cluster.realnode import node as real_node
from rlscaler_dev.cluster.state import ClusterState
from rlscaler_dev.cluster.versions import ADAPTER
from rlscaler_dev.exceptions import DevClusterError, StartError

START_TIMEOUT_SECONDS = 240.0
ATTEMPTS = 3
"""A port may be taken by another process between choice and use; then everything starts again on other ports."""
ADAPTER_APIS = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """Nodes, APIs and components of a cluster."""

    gpu_nodes: int = 2
    gpus_per_node: int = 8
    cpu_nodes: int = 2
    cold_start_seconds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Flavour -> range; missing flavours keep their default (kwok.COLD_START_SECONDS)."""
    metrics_server: bool = True
    gateway_api: bool = True
    """Serve the Gateway API's kinds; beside a real node also its data plane, which takes long to build."""
    node: str = real_node.KWOK
    """'real' for a kubelet with containers beside the nodes that kwok plays."""
    real_gpus: int = real_node.DEFAULT_GPUS
    """GPUs that the real node pretends to have."""

    def pools(self) -> list[dict[str, Any]]:
        """The nodes that kwok plays."""
        return kwok.nodes(self.gpu_nodes, self.gpus_per_node, self.cpu_nodes, self.node == real_node.REAL)


def layout_of(cluster: ClusterState) -> Layout:
    """The layout that a state file describes."""
    binaries = {tool: binary["path"] for tool, binary in cluster.binaries.items()}
    return Layout(cluster.directory, cluster.ports, binaries, cluster.options.get("node") == real_node.REAL)


def connect(cluster: ClusterState) -> KubeClient:
    """A client of the cluster; for one of our own without reading its kubeconfig."""
    if not cluster.managed:
        return KubeClient.from_kubeconfig(Path(cluster.kubeconfig))
    pki = layout_of(cluster).pki
    return KubeClient.with_certificate(cluster.server, pki.ca_cert, pki.admin_cert, pki.admin_key)


def healthy(cluster: ClusterState | None) -> bool:
    """Whether every recorded component lives and the API server answers."""
    if cluster is None or cluster.phase != state.RUNNING or cluster.dead():
        return False
    try:
        with connect(cluster) as client:
            client.timeout_seconds = 3.0
            return ready_api(client)
    except DevClusterError:
        return False


def clean(name: str, keep_logs: bool = False) -> int:
    """Kill the processes of a cluster and remove its files; return the number of processes killed."""
    directory = paths.cluster_dir(name)
    known = state.load(name)
    killed = processes.stop(known.processes if known else [], directory)
    cgroups.remove(name)
    if keep_logs:
        for entry in directory.iterdir() if directory.is_dir() else ():
            if entry.is_dir() and entry.name != "logs":
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.is_file():
                entry.unlink(missing_ok=True)
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return killed


def start(
    name: str,
    options: Options,
    binaries: Mapping[str, Mapping[str, str]],
    gateway_manifests: list[dict[str, Any]],
    say: Say,
    attempts: int = ATTEMPTS,
) -> ClusterState:
    """Start a fresh cluster; on failure everything is stopped again and only the logs stay.

    Raises StartError with the end of the log of the component that failed.
    """
    try:
        return _start_once(name, options, binaries, gateway_manifests, say)
    except BaseException as error:
        clean(name, keep_logs=True)
        if not isinstance(error, StartError) or "address already in use" not in error.message or attempts == 1:
            raise
    say("a port was taken meanwhile, trying others")
    return start(name, options, binaries, gateway_manifests, say, attempts - 1)


def _start_once(
    name: str,
    options: Options,
    binaries: Mapping[str, Mapping[str, str]],
    gateway_manifests: list[dict[str, Any]],
    say: Say,
) -> ClusterState:
    began = time.monotonic()
    cluster = ClusterState(name, options=asdict(options), started_at=time.time())
    cluster.binaries = {tool: dict(binary) for tool, binary in binaries.items()}
    cluster.draw_ports(*components.PORTS)
    layout = layout_of(cluster)
    cluster.kubeconfig, cluster.server = str(layout.kubeconfig), layout.server
    _write_files(name, layout, options)
    imported = None
    if layout.real:
        say("opening the real node's namespace and importing its images")
        imported = real_node.open_node(cluster, layout)

    def run(component: str) -> None:
        namespace.spawn(cluster, component, components.command(layout, component))

    say("starting etcd, the API server and Prometheus")
    run("etcd")
    run("kube-apiserver")
    run("prometheus")
    with connect(cluster) as client:
        wait_until(lambda: alive(cluster) and ready_api(client), "the API server's readiness", START_TIMEOUT_SECONDS)
        say("starting controllers, scheduler, kwok and metrics-server")
        run("kube-controller-manager")
        run("kube-scheduler")
        run("kwok")
        if layout.real:
            real_node.join(cluster, layout)
        expected = options.pools()
        for manifest in expected:
            client.create(manifest)
        if options.metrics_server:
            run("metrics-server")
            client.apply_all(manifests.documents("metrics-server.yaml", cluster.ports["metrics-server"]))
        if options.gateway_api:
            client.apply_all(gateway_manifests)
        say("waiting for nodes and controllers")
        for condition, what in (
            (lambda: nodes_schedulable(client, len(expected) + layout.real), "ready nodes"),
            (lambda: settled(client), "the controllers' first pass"),
            (lambda: answers(layout.prometheus_ready), "Prometheus's readiness"),
        ):
            wait_until(lambda check=condition: alive(cluster) and check(), what, START_TIMEOUT_SECONDS)  # type: ignore[misc]
        if imported is not None:
            _finish_real(cluster, layout, options, client)
            imported.result(START_TIMEOUT_SECONDS)
        cluster.server_version = client.get("/version")["gitVersion"]
    cluster.phase = state.RUNNING
    cluster.start_seconds = time.monotonic() - began
    cluster.save()
    return cluster


def _finish_real(cluster: ClusterState, layout: Layout, options: Options, client: KubeClient) -> None:
    """Start the components that need the registered node and the Gateway API's served definitions."""
    real_node.add_gpus(client, options.real_gpus)
    if options.gateway_api:
        real_node.start_gateway(cluster, layout, client)
        wait_until(
            lambda: alive(cluster) and real_node.gateway_accepted(client), "Traefik's readiness", START_TIMEOUT_SECONDS
        )


def alive(cluster: ClusterState) -> bool:
    """True; raises StartError with the end of its log when a component has ended."""
    for record in cluster.processes:
        record.check()
    return True


def start_adapter(cluster: ClusterState, binary: Mapping[str, Mapping[str, str]], say: Say) -> None:
    """Start prometheus-adapter beside a running cluster and register the APIs it serves."""
    say("starting prometheus-adapter")
    cluster.binaries |= {tool: dict(content) for tool, content in binary.items()}
    layout = layout_of(cluster)
    layout.adapter_rules.write_text(manifests.text("adapter-rules.yaml"))
    namespace.spawn(cluster, ADAPTER, components.command(layout, ADAPTER))
    try:
        _register_adapter(cluster, layout)
    except BaseException:
        cluster.forget(ADAPTER)
        with connect(cluster) as client:
            for name in ADAPTER_APIS:
                client.delete(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")
        raise


def _register_adapter(cluster: ClusterState, layout: Layout) -> None:
    with connect(cluster) as client:
        client.apply_all(manifests.documents("adapter.yaml", cluster.ports[ADAPTER]))
        wait_until(
            lambda: alive(cluster) and all(api_available(client, name) for name in ADAPTER_APIS),
            "prometheus-adapter's readiness",
            START_TIMEOUT_SECONDS,
        )


def reconcile(cluster: ClusterState, options: Options, say: Say) -> None:
    """Add the nodes that a running cluster lacks. Nodes are never taken away: pods may run on them."""
    expected = options.pools()
    with connect(cluster) as client:
        present = {node["metadata"]["name"] for node in client.get("/api/v1/nodes")["items"]}
        missing = [manifest for manifest in expected if manifest["metadata"]["name"] not in present]
        for manifest in missing:
            client.create(manifest)
        if missing:
            say(f"added {len(missing)} nodes to the running cluster {cluster.name}")
            wait_until(
                lambda: nodes_schedulable(client, len(present) + len(missing)), "ready nodes", START_TIMEOUT_SECONDS
            )


def _write_files(name: str, layout: Layout, options: Options) -> None:
    """Certificates and configuration files."""
    if layout.real:
        pki.create(layout.directory / "pki", NODE_NAME, (NODE_IP, API_SERVICE_IP))
    else:
        pki.create(layout.directory / "pki")
    kubeconfig.write(layout.kubeconfig, kubeconfig.admin(name, layout.server, layout.pki))
    kwok.write_config(layout.kwok_config, dict(options.cold_start_seconds))
    discovered = layout.kubeconfig if layout.real else None
    prometheus.write_config(layout.prometheus_config, layout.targets_dir, discovered)
