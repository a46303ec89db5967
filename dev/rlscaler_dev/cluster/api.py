"""The development cluster for other packages and tests: `up`, `down`, `status`.

info = up("mine")
... info.kubeconfig, info.prometheus_url, info.prometheus_targets_dir ...
down("mine")
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster import attach, binaries, launcher, manifests, paths, state
from rlscaler_dev.cluster.components import Layout
from rlscaler_dev.cluster.kafka import component
from rlscaler_dev.cluster.kafka.broker import Broker
from rlscaler_dev.cluster.kafka.component import KAFKA
from rlscaler_dev.cluster.kafka.jars import Jars, java
from rlscaler_dev.cluster.kafka.jars import provide as provide_jars
from rlscaler_dev.cluster.launcher import Options, healthy, layout_of
from rlscaler_dev.cluster.processes import supported
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.realnode import images, namespace, packages
from rlscaler_dev.cluster.realnode.files import node_folder
from rlscaler_dev.cluster.realnode.node import KWOK, REAL
from rlscaler_dev.cluster.state import ClusterState
from rlscaler_dev.cluster.versions import ADAPTER, CONTROL_PLANE, GATEWAY, REAL_NODE
from rlscaler_dev.exceptions import DevClusterError, NotRunningError

DEFAULT_NAME = "rlscaler"


@dataclass(frozen=True)
class ClusterInfo:
    """A running cluster."""

    name: str
    kubeconfig: Path
    """Kubeconfig of an administrator (system:masters, so neither RBAC nor fairness applies to it)."""
    server: str
    server_version: str
    prometheus_url: str | None
    """None on a cluster of the user's without our Prometheus."""
    prometheus_targets_dir: Path | None
    """Drop a file_sd JSON file in here and its targets are scraped every 2 s."""
    state_dir: Path
    managed: bool
    """False for a cluster of the user's: it is neither changed nor stopped."""
    adapter: bool
    """Whether custom.metrics.k8s.io and external.metrics.k8s.io are served from Prometheus."""
    processes: dict[str, int]
    """Component -> pid."""
    start_seconds: float
    """Seconds from the command to a cluster that was ready."""
    node: str = KWOK
    """'real' where containers run beside the pods that kwok plays."""
    gateway_url: str | None = None
    """Beside a real node: where the Gateway API's data plane takes requests."""
    kafka: str | None = None
    """host:port of the Kafka broker, for clients without a credential; None without one."""
    kafka_for_pods: str | None = None
    """host:port for clients without a credential in the pods of a real node; None without one."""
    kafka_protected: str | None = None
    """host:port for clients with TLS (the cluster's own authority) and the password of the user `rlscaler`."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        values = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        return values | {"start_seconds": round(self.start_seconds, 2)}

    def add_scrape_target(self, job: str, *addresses: str, labels: Mapping[str, str] | None = None) -> Path:
        """Have Prometheus scrape `host:port` addresses under the job name `job`; the file to delete to stop it."""
        if self.prometheus_targets_dir is None:
            raise DevClusterError(f"cluster {self.name} runs without our Prometheus: start it with --prometheus")
        content = [{"targets": list(addresses), "labels": {"job": job, **(labels or {})}}]
        return paths.replace(self.prometheus_targets_dir / f"{job}.json", json.dumps(content))


def up(
    name: str = DEFAULT_NAME,
    kubeconfig: Path | str | None = None,
    progress: Reporter | None = None,
    *,
    adapter: bool = False,
    prometheus: bool = True,
    source: str | None = None,
    node: str | None = None,
    kafka: bool = False,
    **options: Any,
) -> ClusterInfo:
    """Start the cluster, or return it when it runs already. Remains of a killed run are cleaned first.

    kubeconfig: a cluster of the user's; then nothing is started except Prometheus beside it (`prometheus`).
    adapter: serve GPU utilization from Prometheus to HorizontalPodAutoscalers (built at its first use).
    source: 'release' or 'build' instead of the usual order ('auto').
    node: 'real' runs containers on a node `real-1` beside the nodes that kwok plays (Linux, root and
    `make e2e-packages`); None: the node of the running cluster, else 'kwok'.
    kafka: a Kafka broker beside it (Java, and Maven the first time); one that has ended is started again on its topics.
    options: further fields of `launcher.Options`.
    Raises DevClusterError with a remedy.
    """
    reporter = progress or Reporter()
    if kubeconfig is not None and (adapter or node or kafka):
        raise DevClusterError(
            "--adapter, --node and --kafka change a cluster: they are not done to one that you bring with --kubeconfig"
        )
    with paths.hold(f"cluster-{name}", reporter.say, f"another process that starts or stops {name}"):
        if kubeconfig is not None:
            return _info(attach.up(name, Path(kubeconfig), prometheus, reporter, source))
        if not supported():
            raise DevClusterError(
                "the control plane starts on Linux only; elsewhere bring a cluster (kind, minikube) with --kubeconfig"
            )
        chosen = node or _node_of(state.load(name))
        wanted = Options(node=chosen, **options)
        jars = _kafka_jars(reporter) if kafka else None
        _revive_kafka(name, reporter)
        cluster = _running(name, wanted, reporter)
        if cluster is None:
            if chosen == REAL:
                packages.require_node()
                node_folder(paths.cluster_dir(name))
            real = [tool for tool in REAL_NODE if wanted.gateway_api or tool != GATEWAY] if chosen == REAL else []
            # All that is missing is built under one progress bar, before anything runs beside the compiler.
            provided = binaries.provide((*CONTROL_PLANE, *real, *([ADAPTER] if adapter else [])), reporter, source)
            definitions = manifests.GATEWAY.manifests(reporter) if wanted.gateway_api else []
            cluster = launcher.start(name, wanted, provided, definitions, reporter.say)
        if adapter and cluster.process(ADAPTER) is None:
            launcher.start_adapter(cluster, binaries.provide([ADAPTER], reporter, source), reporter.say)
        if jars is not None and cluster.process(KAFKA) is None:
            component.start(cluster, partial(layout_of, cluster), jars, reporter.say)
        return _info(cluster)


def _kafka_jars(reporter: Reporter) -> Jars:
    """Return Kafka's jars. Raises ToolchainError without Java or Maven, before anything is started."""
    java()
    return provide_jars(reporter)


def _revive_kafka(name: str, reporter: Reporter) -> None:
    """Start a broker that has ended again on its topics, where every other component still runs."""
    cluster = state.load(name)
    if cluster is None or cluster.phase != state.RUNNING or [record.name for record in cluster.dead()] != [KAFKA]:
        return
    component.start_again(cluster, Broker(layout_of(cluster)), _kafka_jars(reporter), reporter.say)


def _running(name: str, options: Options, reporter: Reporter) -> ClusterState | None:
    """Return the healthy cluster of that name; None after removing the remains of an unhealthy one."""
    cluster = state.load(name)
    if cluster is not None and cluster.managed and healthy(cluster):
        if _node_of(cluster) != options.node:
            raise DevClusterError(
                f"cluster {name} runs with --node {_node_of(cluster)}: `rlscaler cluster down --name {name}` first, "
                "or choose another --name"
            )
        launcher.reconcile(cluster, options, reporter.say)
        return cluster
    if cluster is not None and not cluster.managed:
        raise DevClusterError(
            f"{name} names a cluster brought with --kubeconfig: `rlscaler cluster down --name {name}` releases it"
        )
    killed = launcher.clean(name)
    if killed:
        reporter.say(f"cleaned {killed} processes that an earlier run of {name} left behind")
    return None


def _node_of(cluster: ClusterState | None) -> str:
    return str(cluster.options.get("node", KWOK)) if cluster else KWOK


def down(name: str = DEFAULT_NAME) -> bool:
    """Stop the cluster and delete its files; False when there was nothing to stop."""
    with paths.hold(f"cluster-{name}"):
        known = paths.cluster_dir(name).exists()
        return launcher.clean(name) > 0 or known


@contextmanager
def started(name: str, *, keep: bool = False, **options: Any) -> Iterator[ClusterInfo]:
    """`up` with these options; `down` when the context ends, or when it could not begin. `keep`: without `down`."""
    try:
        yield up(name, **options)
    finally:
        if not keep:
            down(name)


def status(name: str = DEFAULT_NAME) -> ClusterInfo:
    """Return the running cluster. Raises NotRunningError that names the cause."""
    cluster = state.load(name)
    if cluster is None:
        raise NotRunningError(f"cluster {name} is not running: `rlscaler cluster up --name {name}` starts it")
    if not healthy(cluster):
        ended = ", ".join(record.name for record in cluster.dead()) or "the API server does not answer"
        raise NotRunningError(
            f"cluster {name} is not healthy ({ended}): `rlscaler cluster up --name {name}` cleans and starts it again"
        )
    return _info(cluster)


def inside(name: str, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in the network, mounts and processes of the cluster's real node.

    Raises NotRunningError, or DevClusterError for a cluster without a real node.
    """
    cluster = state.load(name)
    if cluster is None or _node_of(cluster) != REAL:
        status(name)
        raise DevClusterError(f"cluster {name} has no real node: start it with --node real")
    return [*namespace.prefix(cluster), *command]


def load_images(name: str, *archives: Path | str) -> list[str]:
    """Import image archives (OCI or Docker, plain tar) into the real node; return containerd's message for each.

    Pods name the image as the archive does, with imagePullPolicy IfNotPresent. Raises DevClusterError.
    """
    return images.load(inside(name, ()), [Path(archive) for archive in archives])


def names() -> list[str]:
    """Clusters that left a directory, running or not."""
    return state.names()


def _info(cluster: ClusterState) -> ClusterInfo:
    layout: Layout = layout_of(cluster)
    with_prometheus = cluster.process("prometheus") is not None
    broker = Broker(layout) if cluster.process(KAFKA) is not None else None
    return ClusterInfo(
        cluster.name,
        Path(cluster.kubeconfig),
        cluster.server,
        cluster.server_version,
        layout.prometheus_url if with_prometheus else None,
        layout.targets_dir if with_prometheus else None,
        cluster.directory,
        cluster.managed,
        cluster.process(ADAPTER) is not None,
        {record.name: record.pid for record in cluster.processes},
        cluster.start_seconds,
        _node_of(cluster),
        layout.gateway_url if cluster.process("traefik") else None,
        broker.bootstrap_servers if broker else None,
        broker.for_pods if broker else None,
        broker.protected if broker else None,
    )
