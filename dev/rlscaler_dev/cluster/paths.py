"""Directories of the development cluster: binaries, images and the state of running clusters.

Everything lives under one directory, so that removing that directory removes all of it:
`bin/` binaries and stamps, `go/` our own Go caches and toolchain, `manifests/`, `images/`, `kafka/`, `clusters/NAME/`,
`locks/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from rlscaler_dev.exceptions import DevClusterError

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def cache_root() -> Path:
    """$RLSCALER_CACHE, else $XDG_CACHE_HOME/rlscaler, else ~/.cache/rlscaler."""
    if override := os.environ.get("RLSCALER_CACHE"):
        return Path(override).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache").absolute() / "rlscaler"


def bin_dir() -> Path:
    """Binaries we built or downloaded, one stamp file beside each."""
    return cache_root() / "bin"


def go_dir() -> Path:
    """Our own GOCACHE, GOMODCACHE and, where Go was missing, toolchain."""
    return cache_root() / "go"


def manifests_dir() -> Path:
    """Manifests taken from Go modules (Gateway API)."""
    return cache_root() / "manifests"


def kafka_dir() -> Path:
    """Kafka's jars, one folder for each set of versions."""
    return cache_root() / "kafka"


def images_dir() -> Path:
    """Archives of our container images, their SBOMs and sizes, and buildah's storage."""
    return cache_root() / "images"


def lock_file(name: str) -> Path:
    """Lock file for `name`; its directory exists when this returns."""
    directory = cache_root() / "locks"
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{name}.lock"


def clusters_dir() -> Path:
    """One directory for each cluster."""
    return cache_root() / "clusters"


def cluster_dir(name: str) -> Path:
    """State of the cluster `name`; raises DevClusterError when the name is not a DNS label of at most 40 characters."""
    if not _NAME.fullmatch(name):
        raise DevClusterError(
            f"cluster name {name!r} is not valid: use at most 40 lower-case letters, digits and '-', "
            "starting and ending with a letter or digit"
        )
    return clusters_dir() / name


def replace(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write a text file as a whole or not at all; one of another mode is never readable by more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
        file.write(text)
    return temporary.replace(path)


@contextmanager
def hold(name: str, say: Callable[[str], None] | None = None, holder: str = "") -> Iterator[None]:
    """Hold the lock `name` between processes; says once that it waits for `holder` when another process has it.

    The kernel frees the lock when its holder is killed.
    """
    lock = FileLock(lock_file(name))
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
