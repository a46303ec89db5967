"""Cleaning up after a demo that was killed: its lock, its journal and the mark that its processes carry.

A file lock, which the kernel releases however its holder ends, tells a running demo from a dead one's remains. Every
process of a demo carries a mark in its environment, which its own children inherit, so none is missed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from filelock import FileLock, Timeout

from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.paths import cache_root
from rlscaler_dev.cluster.processes import marked
from rlscaler_dev.exceptions import DemoError

MARK = "DEMO_OF_RLSCALER"
"""Not RLSCALER_…: those are settings, which children may drop."""


class Journal:
    """Record of a demo that runs; held by one demo of this name at a time.

    Use as a context manager. Entering raises DemoError when another demo holds it.
    """

    def __init__(self, name: str, directory: Path | None = None) -> None:
        folder = directory or cache_root() / "demo"
        self._name = name
        self._path = folder / f"{name}.json"
        self._lock = FileLock(folder / f"{name}.lock")

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            holder = self._read().get("pid", "unknown")
            raise DemoError(
                f"a demo named '{self._name}' is running already (process {holder}): stop it with Ctrl-C, "
                f"or give this one another --cluster-name"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Removed while it is held: a process that waits for this file notices that it is gone, and makes a new one.
        Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()

    @property
    def mark(self) -> dict[str, str]:
        """The environment variable that marks this demo's processes."""
        return {MARK: str(self._path)}

    def leftover_processes(self) -> list[psutil.Process]:
        """Processes that carry the mark: those of a demo that was killed, as long as this one has started none."""
        return marked(MARK, str(self._path))

    @property
    def leftover_cluster(self) -> bool:
        """Had a demo that was killed a cluster of its own, which it would have taken down?"""
        return bool(self._read().get("cluster"))

    def clean_up(self, grace_seconds: float, say: Callable[[str], None]) -> None:
        """End the processes of a demo that was killed, as `end_processes` does, and take down its cluster."""
        remains = self.leftover_processes()
        if remains:
            say(f"ending {len(remains)} processes of a demo that was killed")
            end_processes(remains, grace_seconds)
        if self.leftover_cluster:
            say("removing the cluster of a demo that was killed")
            api.down(self._name)

    def begin(self, own_cluster: bool) -> None:
        """Write the journal, which a killed demo leaves behind."""
        draft = self._path.with_suffix(".tmp")
        draft.write_text(json.dumps({"pid": os.getpid(), "cluster": own_cluster}))
        draft.replace(self._path)

    def end(self) -> None:
        """Nothing is left running."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


def end_processes(processes: list[psutil.Process], grace_seconds: float) -> None:
    """SIGTERM, then SIGKILL after the grace period; returns when none of them runs."""
    for process in processes:
        _signal(process.terminate)
    _, alive = psutil.wait_procs(processes, timeout=grace_seconds)
    for process in alive:
        _signal(process.kill)
    psutil.wait_procs(alive)


def _signal(send: Any) -> None:
    try:
        send()
    except psutil.NoSuchProcess:
        return
