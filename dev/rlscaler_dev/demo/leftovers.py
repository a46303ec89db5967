"""One demo of a name at a time, and cleaning up after a demo that was killed.

A file lock, which the kernel releases however its holder ends, tells a running demo from a dead one's remains. Every
process of a demo carries the path of its journal in its environment, which its own children inherit, so none is missed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from rlscaler_dev.cluster import api, processes
from rlscaler_dev.cluster.paths import cache_root
from rlscaler_dev.exceptions import DemoError


def journal_of(name: str) -> Path:
    """Return the file that a demo leaves behind when it is killed, and whose path marks its processes."""
    return cache_root() / "demo" / f"{name}.pid"


@contextmanager
def alone(name: str, say: Callable[[str], None]) -> Iterator[Path]:
    """Be the only demo of this name until the context ends, after removing the remains of one that was killed.

    Yields the journal; no process that it marks is left at the end. Raises DemoError where such a demo runs.
    """
    journal = journal_of(name)
    journal.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(journal.with_suffix(".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        holder = journal.read_text() if journal.exists() else "unknown"
        raise DemoError(
            f"a demo named '{name}' is running already (process {holder}): stop it with Ctrl-C, "
            "or give this one another --cluster-name"
        ) from None
    try:
        if ended := processes.stop([], journal):
            say(f"ended {ended} processes of a demo that was killed")
        if journal.exists():
            say("removing the cluster of a demo that was killed")
            api.down(name)
        journal.write_text(str(os.getpid()))
        try:
            yield journal
        finally:
            processes.stop([], journal)
            journal.unlink()
    finally:
        # Removed while it is held: a process that waits for this file notices that it is gone, and makes a new one.
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
