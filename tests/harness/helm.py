"""Running Helm: on PATH, or built once like the other tools. It keeps nothing in the user's own folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rlscaler_dev.cluster import binaries, paths
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.exceptions import DevClusterError

HELM = "helm"


class HelmError(DevClusterError):
    """Helm refused; the message is its own."""


class Helm:
    """`helm` for one cluster, or (without a kubeconfig) for charts alone."""

    def __init__(self, kubeconfig: Path | None = None, reporter: Reporter | None = None) -> None:
        """Raises DevClusterError where Helm cannot be had."""
        self.binary = Path(binaries.provide([HELM], reporter or Reporter())[HELM]["path"])
        self._kubeconfig = kubeconfig

    @property
    def environment(self) -> dict[str, str]:
        """Folders of its own, and no setting of the user's."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
        home = paths.cache_root() / HELM
        env |= {f"HELM_{part}_HOME": str(home / part.lower()) for part in ("CACHE", "CONFIG", "DATA")}
        # Without a cluster it must not find the user's either.
        return env | {"KUBECONFIG": str(self._kubeconfig or os.devnull)}

    def run(self, *arguments: str, timeout_seconds: float = 600.0) -> str:
        """Standard output. Raises HelmError with what Helm said."""
        try:
            done = subprocess.run(
                [self.binary, *arguments],
                env=self.environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_seconds,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise HelmError(f"helm {arguments[0]} did not end within {timeout_seconds:.0f} s") from error
        if done.returncode:
            raise HelmError((done.stderr + done.stdout).strip())
        return done.stdout
