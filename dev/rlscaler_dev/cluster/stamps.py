"""Stamp files: version, flags and source of a binary in our cache, which is made again only when they change."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from rlscaler_dev.cluster import paths
from rlscaler_dev.cluster.versions import Tool, linker_flags, pinned, text


@dataclass(frozen=True)
class Stamp:
    """Beside each binary as NAME.stamp.json."""

    tool: str
    version: str
    key: str
    """Digest of the version and flags that the binary should have."""
    source: str
    """'build' or 'release'."""
    size: int
    """Bytes; a binary of another size was cut short."""


def key(tool: Tool) -> str:
    """Changes with the tool's version, tags or linker flags, and with its source where that is ours."""
    folder = resources.files("rlscaler_dev.cluster").joinpath("tools", tool.modules)
    ours = folder.joinpath("main.go").is_file()
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".go")) if ours else []
    source = "".join(folder.joinpath(name).read_text() for name in files)
    content = json.dumps([tool.package, text(pinned(tool)), tool.tags, linker_flags(tool), source])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def binary(tool: Tool) -> Path:
    """Return the path of the cached binary, which may not exist yet."""
    return paths.bin_dir() / tool.name


def _stamp_path(tool: Tool) -> Path:
    return paths.bin_dir() / f"{tool.name}.stamp.json"


def valid(tool: Tool) -> Stamp | None:
    """The stamp of a cached binary that is complete and current; None otherwise."""
    try:
        stamp = Stamp(**json.loads(_stamp_path(tool).read_text()))
        size = binary(tool).stat().st_size
    except (OSError, ValueError, TypeError):
        return None
    return stamp if stamp.key == key(tool) and stamp.size == size and os.access(binary(tool), os.X_OK) else None


def install(tool: Tool, binary_file: Path, source: str) -> Stamp:
    """Move a finished binary into place, then write its stamp; both atomically and in this order.

    A run killed between the two leaves a binary without a current stamp, which is made again.
    """
    binary_file.chmod(0o755)
    stamp = Stamp(tool.name, text(pinned(tool)), key(tool), source, binary_file.stat().st_size)
    _stamp_path(tool).unlink(missing_ok=True)
    binary_file.replace(binary(tool))
    paths.replace(_stamp_path(tool), json.dumps(asdict(stamp), indent=2) + "\n")
    return stamp
