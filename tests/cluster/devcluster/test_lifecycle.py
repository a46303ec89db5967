"""Starting, crashing and stopping a second cluster beside the session's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from click.testing import CliRunner

from rlscaler_dev.cluster import api, paths, processes, state
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.cli import cluster as command
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.exceptions import NotRunningError


@pytest.fixture
def name() -> Iterator[str]:
    chosen = f"pytest-{os.getpid()}-second"
    yield chosen
    api.down(chosen)


def started(name: str) -> list[int]:
    """Pids that the state file of a starting cluster has so far."""
    known = state.load(name)
    return [record.pid for record in known.processes] if known and known.phase == state.STARTING else []


def test_a_start_killed_half_way_is_cleaned_by_the_next_up(cluster: ClusterInfo, name: str) -> None:
    first = api.status(cluster.name)
    up = "from rlscaler_dev.cluster import api; import sys; api.up(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", up, name]) as killed:
        wait_until(lambda: len(started(name)) >= 2, "a half-started cluster", 60, interval_seconds=0.01)
        killed.send_signal(signal.SIGKILL)
    orphans = [psutil.Process(pid) for pid in started(name)]
    assert orphans
    with pytest.raises(NotRunningError, match="cleans and starts it again"):
        api.status(name)

    second = api.up(name)
    assert not any(process.is_running() for process in orphans)
    assert len(processes.strays(second.state_dir)) == len(second.processes)

    # Two clusters side by side share nothing.
    assert api.status(cluster.name) == first
    assert not set(second.processes.values()) & set(first.processes.values())
    ports = [set(known.ports.values()) for each in (name, cluster.name) if (known := state.load(each))]
    assert not ports[0] & ports[1]
    for info in (second, first):
        with KubeClient.from_kubeconfig(info.kubeconfig) as client:
            assert len(client.get("/api/v1/nodes")["items"]) == 4

    # More nodes on request, none taken away.
    assert api.up(name, cpu_nodes=3) == second
    with KubeClient.from_kubeconfig(second.kubeconfig) as client:
        assert len(client.get("/api/v1/nodes")["items"]) == 5

    # A component that is killed makes the cluster unhealthy, and `up` replaces it.
    apiserver = psutil.Process(second.processes["kube-apiserver"])
    apiserver.kill()
    apiserver.wait(30)
    with pytest.raises(NotRunningError, match="kube-apiserver"):
        api.status(name)
    third = api.up(name, metrics_server=False, gateway_api=False)
    assert "metrics-server" not in third.processes
    assert not set(third.processes.values()) & set(second.processes.values())

    # Down leaves neither a process nor a file, and says so the second time.
    runner = CliRunner()
    assert runner.invoke(command, ["down", "--name", name]).output == f"{name} stopped\n"
    assert processes.strays(third.state_dir) == []
    assert not any(psutil.pid_exists(pid) for pid in third.processes.values())
    assert not paths.cluster_dir(name).exists()
    assert runner.invoke(command, ["down", "--name", name]).output == f"{name} was not running\n"


def test_status_on_the_command_line(cluster: ClusterInfo, name: str) -> None:
    runner = CliRunner()
    running = runner.invoke(command, ["status", "--name", cluster.name, "-o", "json"])
    assert running.exit_code == 0
    assert f'"server": "{cluster.server}"' in running.output
    missing = runner.invoke(command, ["status", "--name", name])
    assert missing.exit_code == 1
    assert f"rlscaler cluster up --name {name}" in missing.output
