"""The cluster of an end-to-end run: a real node with the images, its user's commands, and a check for remains."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from rlscaler_dev.cluster import api, binaries
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.images.make import IMAGES, archive
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.paths import cluster_dir
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.cluster.realnode import cgroups
from rlscaler_dev.e2e.settings import Settings
from rlscaler_dev.exceptions import DemoError

PROGRAMS = ("helm", "kubectl")
FAKE_GPUS = 16
PASSING = {"events", "componentstatuses"}
"""Kinds that come and go by themselves; metrics, which are readings and no objects, are left out, too."""
SHOWN_LINES = 60
"""Most lines of a command's output in the transcript."""


class Commands:
    """Runs kubectl and helm against one cluster.

    programs: name -> path of its binary.
    """

    def __init__(self, cluster: ClusterInfo, programs: Mapping[str, str], transcript: Path) -> None:
        self._programs, self._transcript = programs, transcript
        caches = {name: str(cluster.state_dir / name.lower()) for name in ("KUBECACHEDIR", "HELM_CACHE_HOME")}
        self.environment = {**os.environ, **caches, "KUBECONFIG": str(cluster.kubeconfig)}
        self._began = time.monotonic()

    def run(self, program: str, *arguments: str, timeout_seconds: float = 300.0, check: bool = True) -> str:
        """The output on both streams. Raises DemoError that shows it where the command fails and `check` is set."""
        command = [self._programs.get(program, program), *arguments]
        begin = time.monotonic()
        try:
            done = subprocess.run(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            self._write(program, arguments, str(error.stdout or ""), timeout_seconds, "timeout")
            raise DemoError(f"{shlex.join([program, *arguments])}: no end within {timeout_seconds:.0f} s") from error
        self._write(program, arguments, done.stdout, time.monotonic() - begin, done.returncode)
        if done.returncode and check:
            raise DemoError(f"{shlex.join([program, *arguments])}: exit code {done.returncode}:\n{done.stdout}")
        return done.stdout

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command line of a process that goes on; its environment is `environment`."""
        return [self._programs.get(program, program), *arguments]

    def note(self, text: str) -> None:
        """Something that the transcript's reader should know."""
        with self._transcript.open("a") as file:
            file.write(f"# {time.monotonic() - self._began:.0f} s: {text}\n")

    def _write(self, program: str, arguments: tuple[str, ...], output: str, seconds: float, code: int | str) -> None:
        lines = output.rstrip().splitlines()
        shown = lines[:SHOWN_LINES] + [f"... {len(lines) - SHOWN_LINES} more lines"] * (len(lines) > SHOWN_LINES)
        ended = f"[{seconds:.1f} s{'' if code == 0 else f', exit code {code}'}]"
        with self._transcript.open("a") as file:
            file.write("\n".join([f"$ {shlex.join([program, *arguments])}", *shown, ended, "", ""]))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cluster of a run, and the commands of its user."""

    info: ClusterInfo
    kube: KubeClient
    commands: Commands

    @classmethod
    @contextmanager
    def up(cls, settings: Settings) -> Iterator[Cluster]:
        """Gone without trace when the context ends. Raises DemoError, DevClusterError."""
        with ExitStack() as stack:
            with ConsoleReporter() as progress:
                archives = [archive(image) for image in IMAGES]
                for path in archives:
                    if not path.exists():
                        raise DemoError(f"{path} is not there: make images")
                programs = {name: binary["path"] for name, binary in binaries.provide(PROGRAMS, progress).items()}
                own = api.started(
                    settings.cluster_name,
                    keep=settings.keep_cluster,
                    node="real",
                    real_gpus=FAKE_GPUS,
                    gpu_nodes=0,
                    cpu_nodes=0,
                    gateway_api=settings.loads,
                    adapter=settings.loads,
                    progress=progress,
                )
                info = stack.enter_context(own)
                api.load_images(info.name, *archives)
            programs["rlscaler"] = str(Path(sys.executable).with_name("rlscaler"))
            kube = stack.enter_context(KubeClient.from_kubeconfig(info.kubeconfig))
            yield cls(info, kube, Commands(info, programs, settings.out / "transcript.txt"))

    def objects(self) -> set[str]:
        """`kind namespace/name` of everything in the cluster, except objects that come and go by themselves."""
        kinds = self.commands.run("kubectl", "api-resources", "--verbs=list", "-o", "name").split()
        listed = [kind for kind in kinds if kind.partition(".")[0] not in PASSING and "metrics.k8s.io" not in kind]
        line = "{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
        output = self.commands.run("kubectl", "get", ",".join(listed), "-A", "-o", f"jsonpath={line}")
        return set(output.splitlines())


def interfaces() -> frozenset[str]:
    """Names of this machine's network interfaces."""
    return frozenset(psutil.net_if_addrs())


def pid_namespaces(processes: Iterable[int]) -> frozenset[str]:
    """The PID namespaces, other than our own, in which the children of these processes live."""
    namespaces = set()
    for pid in processes:
        try:
            namespaces.add(os.readlink(f"/proc/{pid}/ns/pid_for_children"))
        except OSError:
            continue
    return frozenset(namespaces - {os.readlink("/proc/self/ns/pid")})


def left_behind(cluster: str, namespaces: frozenset[str], before: frozenset[str]) -> list[str]:
    """Return the remains of a cluster that was taken down, one line each.

    namespaces: PID namespaces that it had. before: network interfaces before it was started.
    """
    folder = cluster_dir(cluster)
    mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [
        *(f"process {process.pid} {process.name()}" for process in _processes_of(str(folder), namespaces)),
        *(f"mount {mount}" for mount in mounts if Path(mount).is_relative_to(folder)),
        *(f"interface {name}" for name in sorted(interfaces() - before)),
        *(f"cgroup {path}" for path in cgroups.remaining(cluster)),
        *([f"folder {folder}"] if folder.exists() else []),
    ]


def _processes_of(folder: str, namespaces: frozenset[str]) -> list[psutil.Process]:
    """Processes that name the cluster's folder or live in one of its namespaces; `e2e` is not in the folder `e2e-2`."""
    mounts, whole = [], re.compile(re.escape(folder) + r"(?![\w.-])")
    for process in psutil.process_iter():
        try:
            named = any(whole.search(argument) for argument in process.cmdline())
            if named or os.readlink(f"/proc/{process.pid}/ns/pid") in namespaces:
                mounts.append(process)
        except (psutil.Error, OSError):
            continue
    return mounts
