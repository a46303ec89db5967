"""The cluster of an end-to-end run: a control plane with a real node, the images on it, and what was there before."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from rlscaler_demo.exceptions import DemoError
from rlscaler_demo.kube import Kube
from rlscaler_devcluster import api, binaries, images
from rlscaler_devcluster.api import ClusterInfo
from rlscaler_devcluster.progress import ConsoleReporter

from .commands import Commands
from .settings import Settings

PROGRAMS = ("helm", "kubectl")
IMAGES = ("rlscaler", "rlscaler-service")
FAKE_GPUS = 16
PASSING = {"events", "componentstatuses"}
"""Kinds that come and go by themselves; metrics, which are readings and no objects, are left out, too."""


class Cluster(AbstractContextManager["Cluster"]):
    """Up while the context lasts, and gone without trace after it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.info: ClusterInfo
        self.kube: Kube
        self.commands: Commands

    def __enter__(self) -> Cluster:
        name = self._settings.cluster_name
        try:
            with ConsoleReporter() as progress:
                archives = [images.archive(image) for image in IMAGES]
                for path in archives:
                    if not path.exists():
                        raise DemoError(f"{path} is not there: make images")
                programs = binaries.provide(PROGRAMS, progress)
                self.info = api.up(
                    name, node="real", real_gpus=FAKE_GPUS, gpu_nodes=0, cpu_nodes=0, adapter=True, progress=progress
                )
                api.load_images(name, *archives)
            self.kube = Kube(self.info.kubeconfig)
            paths = {program: found["path"] for program, found in programs.items()}
            paths["rlscaler"] = str(Path(sys.executable).with_name("rlscaler"))
            self.commands = Commands(self.info, paths, self._settings.out / "transcript.txt")
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        if not self._settings.keep_cluster:
            api.down(self._settings.cluster_name)

    def objects(self) -> set[str]:
        """`kind namespace/name` of everything in the cluster, except what comes and goes by itself."""
        kinds = self.commands.run("kubectl", "api-resources", "--verbs=list", "-o", "name").split()
        listed = [kind for kind in kinds if kind.partition(".")[0] not in PASSING and "metrics.k8s.io" not in kind]
        line = "{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
        found = self.commands.run("kubectl", "get", ",".join(listed), "-A", "-o", f"jsonpath={line}")
        return set(found.splitlines())
