"""A cluster that the user brings: it is only looked at, and Prometheus runs beside it when asked."""

from __future__ import annotations

import time
from pathlib import Path

from rlscaler_dev.cluster import (
    binaries,
    components,
    kubeconfig,
    launcher,
    processes,
    prometheus,
    state,
)
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.readiness import answers, wait_until
from rlscaler_dev.cluster.state import ClusterState
from rlscaler_dev.exceptions import ApiError, DevClusterError


def up(name: str, path: Path, with_prometheus: bool, reporter: Reporter, source: str | None) -> ClusterState:
    """Write down the user's cluster under `name`; raises DevClusterError when it does not answer."""
    path = path.expanduser().absolute()
    kubeconfig.read(path)
    known = state.load(name)
    if known is not None and known.managed and launcher.healthy(known):
        raise DevClusterError(
            f"a cluster of our own runs under the name {name}: `rlscaler cluster down --name {name}` stops it, "
            "or choose another --name"
        )
    with KubeClient.from_kubeconfig(path) as client:
        try:
            version, server = client.get("/version")["gitVersion"], client.server
        except ApiError as error:
            raise DevClusterError(f"the cluster of {path} does not answer: {error.message}") from error
    unchanged = (
        known is not None
        and known.kubeconfig == str(path)
        and (known.process("prometheus") is not None) == with_prometheus
    )
    if known is not None and unchanged and launcher.healthy(known):
        return known
    launcher.clean(name)
    cluster = ClusterState(
        name,
        managed=False,
        server=server,
        server_version=version,
        kubeconfig=str(path),
        started_at=time.time(),
        phase=state.RUNNING,
    )
    if with_prometheus:
        _start_prometheus(cluster, reporter, source)
    cluster.save()
    return cluster


def _start_prometheus(cluster: ClusterState, reporter: Reporter, source: str | None) -> None:
    cluster.binaries = binaries.provide(["prometheus"], reporter, source)
    cluster.draw_ports("prometheus")
    layout = launcher.layout_of(cluster)
    prometheus.write_config(layout.prometheus_config, layout.targets_dir)
    record = processes.spawn("prometheus", components.command(layout, "prometheus"), cluster.directory)
    cluster.record(record)
    try:
        wait_until(
            lambda: launcher.alive(cluster) and answers(layout.prometheus_ready),
            "Prometheus's readiness",
            launcher.START_TIMEOUT_SECONDS,
        )
    except BaseException:
        launcher.clean(cluster.name, keep_logs=True)
        raise
