"""Cgroups of a real node, of either version: the one above all pods, and the limits of one container."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import tenacity

from rlscaler_dev.exceptions import DevClusterError

MOUNT = Path("/sys/fs/cgroup")
REMOVE_SECONDS = 30.0


def name(cluster: str) -> str:
    """Return the name of the node's cgroup, the same in every hierarchy."""
    return f"rlscaler-{cluster}"


def _hierarchies() -> list[Path]:
    """One directory for version 2; one for each controller for version 1."""
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    return sorted(entry for entry in MOUNT.iterdir() if entry.is_dir() and (entry / "cgroup.procs").exists())


def create(cluster: str) -> None:
    """Create the node's cgroup, on the CPUs that the caller may use: `taskset` holds for the pods too."""
    cpus = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))
    for hierarchy in _hierarchies():
        cgroup = hierarchy / name(cluster)
        cgroup.mkdir(exist_ok=True)
        if hierarchy == MOUNT:
            (hierarchy / "cgroup.subtree_control").write_text("+cpuset")
        if (cgroup / "cpuset.cpus").exists():
            if (hierarchy / "cpuset.mems").exists():
                (cgroup / "cpuset.mems").write_text((hierarchy / "cpuset.mems").read_text())
            (cgroup / "cpuset.cpus").write_text(cpus)


def remaining(cluster: str) -> list[Path]:
    """Return the directories of the node's cgroup in all hierarchies."""
    return (
        [each / name(cluster) for each in _hierarchies() if (each / name(cluster)).is_dir()] if MOUNT.is_dir() else []
    )


def remove(cluster: str) -> None:
    """Remove the node's cgroup, which stays busy for a moment after its last process was killed.

    Raises OSError when it remains.
    """
    tenacity.Retrying(
        stop=tenacity.stop_after_delay(REMOVE_SECONDS),
        wait=tenacity.wait_fixed(0.05),
        retry=tenacity.retry_if_exception_type(OSError),
        reraise=True,
    )(_remove_once, cluster)


def _remove_once(cluster: str) -> None:
    for top in remaining(cluster):
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()


FILES = {
    "cpu": ("cpu.weight", "cpu.max", "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "memory": ("memory.max", "memory.current", "memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Controller -> its files, those of version 2 first; a container has those of one version."""

UNLIMITED_BYTES = 2**62
"""Version 1 writes a number above this one where memory has no limit."""


class Amounts(NamedTuple):
    """Limits and memory of a container."""

    weight: int
    """Share of the CPU time where containers compete, which the request sets: `cpu.weight`, or `cpu.shares` of
    version 1."""
    cores: float
    """Most that it may use, by its limit; infinity where it has none."""
    memory: float
    """Bytes, by its limit; infinity where it has none."""
    used: float
    """Bytes of memory that it uses now, page cache included."""


@dataclass(frozen=True, slots=True)
class ContainerCgroup:
    """The files of one container."""

    files: Mapping[str, Path]
    """Name -> path."""

    @classmethod
    def of(cls, cluster: str, container: str) -> ContainerCgroup:
        """Find those of a container by its identity, without `containerd://`. Raises DevClusterError."""
        folders = [folder for top in remaining(cluster) for folder in top.glob(f"**/{container}")]
        names = [name for group in FILES.values() for name in group]
        there = {name: folder / name for folder in folders for name in names if (folder / name).exists()}
        if not {"cpu.max", "memory.max"} <= set(there) and not {"cpu.shares", "memory.limit_in_bytes"} <= set(there):
            raise DevClusterError(f"container {container} of cluster {cluster} has no cgroup: it has ended")
        return cls(there)

    def read(self) -> Amounts:
        """Raises OSError when the container has ended."""
        return amounts({name: path.read_text() for name, path in self.files.items()})


def amounts(texts: Mapping[str, str]) -> Amounts:
    """Read the content of the files, by name, of version 2 or of version 1."""
    if "cpu.max" in texts:
        quota, period = texts["cpu.max"].split()
        cores = math.inf if quota == "max" else int(quota) / int(period)
        limit = texts["memory.max"].strip()
        memory = math.inf if limit == "max" else float(limit)
        return Amounts(int(texts["cpu.weight"]), cores, memory, float(texts["memory.current"]))
    quota_us, period_us = int(texts["cpu.cfs_quota_us"]), int(texts["cpu.cfs_period_us"])
    cores = math.inf if quota_us < 0 else quota_us / period_us
    memory = float(texts["memory.limit_in_bytes"])
    limited = math.inf if memory > UNLIMITED_BYTES else memory
    return Amounts(int(texts["cpu.shares"]), cores, limited, float(texts["memory.usage_in_bytes"]))
