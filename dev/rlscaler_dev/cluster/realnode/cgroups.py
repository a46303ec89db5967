"""The cgroup under which the node's pods run, of either version: made before the kubelet, removed with the cluster."""

from __future__ import annotations

import os
from pathlib import Path

import tenacity

MOUNT = Path("/sys/fs/cgroup")
REMOVE_SECONDS = 30.0


def name(cluster: str) -> str:
    """Its name, the same in every hierarchy."""
    return f"rlscaler-{cluster}"


def _hierarchies() -> list[Path]:
    """One directory for version 2; one for each controller for version 1."""
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    return sorted(entry for entry in MOUNT.iterdir() if entry.is_dir() and (entry / "cgroup.procs").exists())


def create(cluster: str) -> None:
    """Make it, on the CPUs that the caller may use: `taskset` holds for the pods too."""
    cpus = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))
    for hierarchy in _hierarchies():
        made = hierarchy / name(cluster)
        made.mkdir(exist_ok=True)
        if hierarchy == MOUNT:
            (hierarchy / "cgroup.subtree_control").write_text("+cpuset")
        if (made / "cpuset.cpus").exists():
            if (hierarchy / "cpuset.mems").exists():
                (made / "cpuset.mems").write_text((hierarchy / "cpuset.mems").read_text())
            (made / "cpuset.cpus").write_text(cpus)


def remaining(cluster: str) -> list[Path]:
    """Its directories in all hierarchies."""
    return (
        [each / name(cluster) for each in _hierarchies() if (each / name(cluster)).is_dir()] if MOUNT.is_dir() else []
    )


def remove(cluster: str) -> None:
    """Remove it; a cgroup stays busy for a moment after its last process was killed. Raises OSError when it remains."""
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
