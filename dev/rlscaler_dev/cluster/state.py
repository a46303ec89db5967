"""State of a cluster: one JSON file, replaced atomically."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster import paths
from rlscaler_dev.cluster.network import free_ports
from rlscaler_dev.cluster.processes import ProcessRecord

STARTING, RUNNING = "starting", "running"


@dataclass
class ClusterState:
    """The state file of one cluster."""

    name: str
    phase: str = STARTING
    managed: bool = True
    """False when the user brought the cluster and we start at most Prometheus beside it."""
    server: str = ""
    server_version: str = ""
    kubeconfig: str = ""
    ports: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    binaries: dict[str, dict[str, str]] = field(default_factory=dict)
    """Tool -> path, version and source."""
    processes: list[ProcessRecord] = field(default_factory=list)
    started_at: float = 0.0
    """Seconds since the epoch."""
    start_seconds: float = 0.0
    """Duration of `up`."""

    @property
    def directory(self) -> Path:
        """Folder of the cluster's files."""
        return paths.cluster_dir(self.name)

    def save(self) -> None:
        """Replace the state file."""
        paths.replace(self.directory / "state.json", json.dumps(asdict(self), indent=2) + "\n")

    def draw_ports(self, *names: str) -> None:
        """Choose a free port for each name that has none, which no cluster has written down."""
        with paths.hold("ports"):
            missing = [name for name in names if name not in self.ports]
            self.ports |= dict(zip(missing, free_ports(len(missing), ports_taken()), strict=True))
            self.save()

    def record(self, process: ProcessRecord) -> None:
        """Write down a process as soon as it was started."""
        self.processes = [known for known in self.processes if known.name != process.name]
        self.processes.append(process)
        self.save()

    def forget(self, name: str) -> None:
        """Kill one component and strike it from the records."""
        if (known := self.process(name)) is None:
            return
        if process := known.process():
            # Inside a namespace the component is a child of the process that entered it.
            for each in (*process.children(recursive=True), process):
                each.kill()
            process.wait(timeout=10)
        self.processes = [record for record in self.processes if record.name != name]
        self.save()

    def process(self, name: str) -> ProcessRecord | None:
        """The record of the component `name`."""
        return next((known for known in self.processes if known.name == name), None)

    def dead(self) -> list[ProcessRecord]:
        """Components that have ended."""
        return [record for record in self.processes if record.process() is None]


def load(name: str) -> ClusterState | None:
    """The state of `name`; None when there is none, or when it was written by an incompatible version or cut short."""
    try:
        content = json.loads((paths.cluster_dir(name) / "state.json").read_text())
        known = {item.name for item in fields(ClusterState)}
        state = ClusterState(**{key: value for key, value in content.items() if key in known})
        state.processes = [ProcessRecord(**record) for record in content.get("processes", [])]
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return state


def names() -> list[str]:
    """Clusters that have a directory."""
    directory = paths.clusters_dir()
    return sorted(entry.name for entry in directory.iterdir() if entry.is_dir()) if directory.is_dir() else []


def ports_taken() -> set[int]:
    """Ports that clusters have written down."""
    return {port for name in names() if (state := load(name)) for port in state.ports.values()}
