"""A development cluster of the test run's own: started, and its components killed, started again and paused."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.processes import spawn
from rlscaler_dev.cluster.progress import ConsoleReporter
from tests.harness.waiting import until


@contextmanager
def own_cluster(*suffix: str, **options: Any) -> Iterator[ClusterInfo]:
    """`pytest-PID[-suffix]`, with the options of `api.up`; taken down whatever happens, a start that failed too."""
    with api.started("-".join(("pytest", str(os.getpid()), *suffix)), progress=ConsoleReporter(), **options) as started:
        yield started


class ControlPlane:
    """The processes of one cluster by component."""

    def __init__(self, cluster: ClusterInfo) -> None:
        self._cluster = cluster
        self._pids = dict(cluster.processes)

    @contextmanager
    def killed(self, component: str) -> Iterator[None]:
        """kill -9 at once; started again, with the same arguments, when the block ends."""
        process = psutil.Process(self._pids[component])
        command = process.cmdline()
        process.kill()
        until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
        try:
            yield
        finally:
            self._pids[component] = spawn(component, command, self._cluster.state_dir).pid

    @contextmanager
    def paused(self, component: str) -> Iterator[None]:
        """SIGSTOP until the block ends."""
        with stopped(self._pids[component]):
            yield


@contextmanager
def stopped(process: int | subprocess.Popen[bytes]) -> Iterator[None]:
    """SIGSTOP a process until the block ends."""
    pid = process if isinstance(process, int) else process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
