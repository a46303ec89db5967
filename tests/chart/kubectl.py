"""kubectl on a cluster: the one client that knows every kind."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rlscaler_dev.cluster import binaries
from rlscaler_dev.cluster.progress import ConsoleReporter


class Kubectl:
    def __init__(self, kubeconfig: Path) -> None:
        self._command = [
            binaries.provide(["kubectl"], ConsoleReporter())["kubectl"]["path"],
            "--kubeconfig",
            kubeconfig,
        ]

    def __call__(self, *arguments: str, text: str | None = None) -> tuple[str, str]:
        """Standard output and standard error; fails with the latter."""
        done = subprocess.run(
            [*self._command, *arguments], input=text, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    def labelled(self, selector: str) -> list[str]:
        """Every object of any kind with these labels, as kind/name."""
        kinds, _ = self("api-resources", "--verbs=list", "-o", "name")
        listed = ",".join(kind for kind in kinds.split() if not kind.startswith(("events", "componentstatuses")))
        found, _ = self("get", listed, "--all-namespaces", "-l", selector, "-o", "name", "--ignore-not-found")
        return sorted(found.split())
