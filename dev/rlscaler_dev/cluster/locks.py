"""Locks between processes, which say whom they wait for. The kernel frees them when their holder is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from rlscaler_dev.cluster import paths


@contextmanager
def hold(name: str, say: Callable[[str], None] | None = None, holder: str = "") -> Iterator[None]:
    """Hold the lock `name`; says once that it waits for `holder` when somebody else has it."""
    lock = FileLock(paths.lock_file(name))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if say is not None:
            say(f"waiting for {holder or 'another process'}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
