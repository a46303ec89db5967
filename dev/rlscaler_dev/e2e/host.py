"""What a real node could leave on this machine: processes, mounts, network interfaces, cgroups, files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from rlscaler_dev.cluster.paths import cluster_dir
from rlscaler_dev.cluster.realnode import cgroups


def interfaces() -> frozenset[str]:
    """Names of this machine's network interfaces."""
    return frozenset(psutil.net_if_addrs())


def pid_namespaces(processes: Iterable[int]) -> frozenset[str]:
    """The PID namespaces, other than our own, in which the children of these processes live."""
    found = set()
    for pid in processes:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/pid_for_children"))
        except OSError:
            continue
    return frozenset(found - {os.readlink("/proc/self/ns/pid")})


def left(cluster: str, namespaces: frozenset[str], before: frozenset[str]) -> list[str]:
    """What is left of a cluster that was taken down, one line each.

    namespaces: PID namespaces that it had. before: network interfaces before it was started.
    """
    folder = cluster_dir(cluster)
    mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [
        *(f"process {process.pid} {process.name()}" for process in _processes(str(folder), namespaces)),
        *(f"mount {mount}" for mount in mounts if Path(mount).is_relative_to(folder)),
        *(f"interface {name}" for name in sorted(interfaces() - before)),
        *(f"cgroup {path}" for path in cgroups.remaining(cluster)),
        *([f"folder {folder}"] if folder.exists() else []),
    ]


def _processes(folder: str, namespaces: frozenset[str]) -> list[psutil.Process]:
    """Processes that name the cluster's folder or live in one of its namespaces."""
    found = []
    for process in psutil.process_iter():
        try:
            named = any(folder in argument for argument in process.cmdline())
            if named or os.readlink(f"/proc/{process.pid}/ns/pid") in namespaces:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
