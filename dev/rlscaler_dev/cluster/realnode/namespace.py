"""Opening the private namespace, and running commands in it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlscaler_dev.cluster import processes
from rlscaler_dev.cluster.processes import ProcessRecord
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.cluster.realnode import cgroups, packages
from rlscaler_dev.cluster.realnode.files import READY, node_folder
from rlscaler_dev.cluster.state import ClusterState
from rlscaler_dev.exceptions import NotRunningError, StartError

NAMESPACE = "namespace"
"""The component that holds all others: `unshare`, whose only child is PID 1."""
FORWARDER = "forwarder"
OPEN_TIMEOUT_SECONDS = 30.0
_MODULE = "rlscaler_dev.cluster.realnode"


def open_namespace(cluster: ClusterState, forwards: Mapping[int, int]) -> list[str]:
    """Start it and the forwarder of host ports to inner ports; return the prefix of a command that runs inside.

    Raises StartError with the end of the log when a mount, interface or sysctl is refused.
    """
    folder = node_folder(cluster.directory)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        cgroups.create(cluster.name)
    except OSError as error:
        raise StartError(f"cannot make the cgroup of the node's pods: {error}") from error
    unshare = [packages.needed("unshare"), "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    init = [sys.executable, "-m", f"{_MODULE}.init", str(cluster.directory)]
    record = processes.spawn(NAMESPACE, [*unshare, *init], cluster.directory)
    cluster.record(record)
    wait_until(
        lambda: _opened(record, folder / READY), "the node's namespace", OPEN_TIMEOUT_SECONDS, interval_seconds=0.02
    )
    forward(cluster, FORWARDER, forwards)
    return prefix(cluster)


def forward(cluster: ClusterState, name: str, forwards: Mapping[int, int]) -> None:
    """Start and record the forwarder of the host's ports to inner ones. Raises NotRunningError."""
    record = cluster.process(NAMESPACE)
    if record is None:
        raise NotRunningError(f"cluster {cluster.name} has no real node: nothing is to be forwarded to it")
    pairs = [f"{outer}:{inner}" for outer, inner in forwards.items()]
    forwarder = [sys.executable, "-m", f"{_MODULE}.forward", str(_first_process(record)), *pairs]
    cluster.record(processes.spawn(name, forwarder, cluster.directory))


def _opened(record: ProcessRecord, ready: Path) -> bool:
    record.check("\nA real node in a container needs --privileged")
    return ready.exists()


def _first_process(record: ProcessRecord) -> int:
    """The host's pid of PID 1."""
    process = record.process()
    children = process.children() if process else []
    if not children:
        raise NotRunningError("the real node's namespace has ended: `rlscaler cluster up --node real` starts it again")
    return int(children[0].pid)


def prefix(cluster: ClusterState) -> list[str]:
    """Return the prefix of a command that runs inside; empty where there is no namespace.

    Raises NotRunningError when the namespace has ended.
    """
    record = cluster.process(NAMESPACE)
    if record is None:
        return []
    target = str(_first_process(record))
    return [packages.needed("nsenter"), "--target", target, "--mount", "--net", "--pid", "--"]


def spawn(
    cluster: ClusterState, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None
) -> ProcessRecord:
    """Start and write down one component, inside the namespace where there is one."""
    inside = prefix(cluster)
    path = {"PATH": packages.search_path()} if inside else {}
    record = processes.spawn(name, [*inside, *argv], cluster.directory, path | dict(environment or {}))
    cluster.record(record)
    return record
