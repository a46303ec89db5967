"""The cluster of an end-to-end run: a control plane with a real node, the images on it, and what was there before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlscaler_dev.cluster import api, binaries, images
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.demo.exceptions import DemoError
from rlscaler_dev.demo.kube import Kube
from rlscaler_dev.e2e.commands import Commands
from rlscaler_dev.e2e.settings import Settings

PROGRAMS = ("helm", "kubectl")
IMAGES = ("rlscaler", "rlscaler-service")
FAKE_GPUS = 16
PASSING = {"events", "componentstatuses"}
"""Kinds that come and go by themselves; metrics, which are readings and no objects, are left out, too."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a run takes place on, and the commands of its user."""

    info: ClusterInfo
    kube: Kube
    commands: Commands

    @classmethod
    @contextmanager
    def up(cls, settings: Settings) -> Iterator[Cluster]:
        """Gone without trace when the context ends. Raises DemoError, DevClusterError."""
        with ExitStack() as stack:
            with ConsoleReporter() as progress:
                archives = [images.archive(image) for image in IMAGES]
                for path in archives:
                    if not path.exists():
                        raise DemoError(f"{path} is not there: make images")
                programs = {name: found["path"] for name, found in binaries.provide(PROGRAMS, progress).items()}
                own = api.started(
                    settings.cluster_name,
                    keep=settings.keep_cluster,
                    node="real",
                    real_gpus=FAKE_GPUS,
                    gpu_nodes=0,
                    cpu_nodes=0,
                    adapter=True,
                    progress=progress,
                )
                info = stack.enter_context(own)
                api.load_images(info.name, *archives)
            programs["rlscaler"] = str(Path(sys.executable).with_name("rlscaler"))
            yield cls(info, Kube(info.kubeconfig), Commands(info, programs, settings.out / "transcript.txt"))

    def objects(self) -> set[str]:
        """`kind namespace/name` of everything in the cluster, except what comes and goes by itself."""
        kinds = self.commands.run("kubectl", "api-resources", "--verbs=list", "-o", "name").split()
        listed = [kind for kind in kinds if kind.partition(".")[0] not in PASSING and "metrics.k8s.io" not in kind]
        line = "{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
        found = self.commands.run("kubectl", "get", ",".join(listed), "-A", "-o", f"jsonpath={line}")
        return set(found.splitlines())
