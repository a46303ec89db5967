"""What the kernel holds a container of the real node to, read from the cgroup file system of either version."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rlscaler_dev.cluster.realnode import cgroups
from rlscaler_dev.exceptions import DevClusterError

FILES = {
    "cpu": ("cpu.weight", "cpu.max", "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "memory": ("memory.max", "memory.current", "memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Controller -> its files, those of version 2 first; a container has those of one version."""

UNLIMITED_BYTES = 2**62
"""Version 1 writes a number above this one where memory has no limit."""


class Amounts(NamedTuple):
    """What a container may use."""

    weight: int
    """Its part of the CPU time where containers compete, which its request sets: `cpu.weight`, or `cpu.shares` of
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
        folders = [found for top in cgroups.remaining(cluster) for found in top.glob(f"**/{container}")]
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
