"""The cluster of an end-to-end run: a control plane with a real node, the images on it, and what was there before."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from rlscaler_demo.exceptions import DemoError
from rlscaler_demo.kube import Kube, KubeError
from rlscaler_devcluster import api, binaries, images
from rlscaler_devcluster.api import ClusterInfo
from rlscaler_devcluster.progress import ConsoleReporter

from .commands import Commands
from .settings import Settings

PROGRAMS = ("helm", "kubectl")
IMAGES = ("rlscaler", "rlscaler-service")
FAKE_GPUS = 16
PASSING = {"events", "componentstatuses"}
"""Kinds that come and go by themselves."""


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
        """`kind.group namespace/name` of everything in the cluster, except what comes and goes by itself."""
        found: set[str] = set()
        for kind in self.commands.run("kubectl", "api-resources", "--verbs=list", "-o", "name").split():
            if kind.partition(".")[0] in PASSING or "metrics.k8s.io" in kind:  # readings, no objects
                continue
            path = "{range .items[*]}{.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
            names = self.commands.run("kubectl", "get", kind, "-A", "--ignore-not-found", "-o", f"jsonpath={path}")
            found |= {f"{kind} {name}" for name in names.split()}
        return found

    def deleted(self, path: str) -> bool:
        """Is there no such object any more?"""
        try:
            self.kube.get(path)
        except KubeError as error:
            if error.status == 404:
                return True
            raise
        return False
