"""Where the node keeps its files: under the directory of its cluster."""

from __future__ import annotations

from pathlib import Path

from rlscaler_dev.exceptions import StartError

HIDDEN = (Path("/run"), Path("/var"))
"""The namespace has its own; nothing that both sides need can be there."""

READY = "ready"
"""A file that exists once the namespace has its filesystems and network."""


def node_folder(cluster_dir: Path) -> Path:
    """Return the folder of the node's files; raises StartError where the namespace could not see it."""
    for hidden in HIDDEN:
        if cluster_dir.is_relative_to(hidden):
            raise StartError(
                f"{cluster_dir} is under {hidden}, which the real node replaces by its own: "
                "set RLSCALER_CACHE to a directory elsewhere"
            )
    return cluster_dir / "node"
