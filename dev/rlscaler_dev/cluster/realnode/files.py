"""Where the node keeps its files, all of them under the cluster's directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlscaler_dev.exceptions import StartError

HIDDEN = (Path("/run"), Path("/var"))
"""The namespace has its own; nothing that both sides need can be there."""


@dataclass(frozen=True)
class NodeFiles:
    """Paths under CLUSTER/node."""

    directory: Path

    @classmethod
    def of(cls, cluster_dir: Path) -> NodeFiles:
        """The files of the cluster in `cluster_dir`; raises StartError where the namespace could not see them."""
        for hidden in HIDDEN:
            if cluster_dir.is_relative_to(hidden):
                raise StartError(
                    f"{cluster_dir} is under {hidden}, which the real node replaces by its own: "
                    "set RLSCALER_CACHE to a directory elsewhere"
                )
        return cls(cluster_dir / "node")

    @property
    def ready(self) -> Path:
        """Exists once the namespace has its filesystems and network."""
        return self.directory / "ready"

    @property
    def var_upper(self) -> Path:
        """Directory that the namespace sees as /var."""
        return self.directory / "var"

    @property
    def var_work(self) -> Path:
        """The overlay filesystem's scratch directory."""
        return self.directory / "var.work"

    @property
    def cni_dir(self) -> Path:
        """The pod network's definition."""
        return self.directory / "cni"

    @property
    def images_dir(self) -> Path:
        """Archives of the images that every node starts with, until they are imported."""
        return self.directory / "images"
