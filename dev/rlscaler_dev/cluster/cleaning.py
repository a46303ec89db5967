"""Removing what was built."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from rlscaler_dev.cluster import api, builder, paths
from rlscaler_dev.cluster.exceptions import DevClusterError


def clean(go: bool, binaries: bool, images: bool, clusters: bool) -> Iterator[str]:
    """Remove the chosen parts of our cache; yields a line for each.

    Raises DevClusterError when the binaries of a running cluster would go.
    """
    if clusters:
        for name in api.names():
            api.down(name)
            yield f"stopped {name}"
    if binaries and (running := api.names()):
        raise DevClusterError(f"clusters {', '.join(running)} use the binaries: `rlscaler cluster down --all` first")
    parts = [paths.go_dir()] if go else []
    if binaries:
        parts += [paths.bin_dir(), paths.manifests_dir()]
    if images:
        parts.append(paths.images_dir())
    for part in parts:
        if part.is_dir():
            freed = builder.size_mb(part)
            remove(part)
            yield f"removed {part} ({freed} MB)"


def remove(directory: Path) -> None:
    """Delete a tree although Go's module cache marks its folders read-only."""
    for folder, _, _ in os.walk(directory):
        os.chmod(folder, os.stat(folder).st_mode | stat.S_IRWXU)
    shutil.rmtree(directory)
