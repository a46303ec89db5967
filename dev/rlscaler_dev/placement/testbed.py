"""A second kube-scheduler and the suggestion server as processes, with nodes of several sizes that kwok plays."""

from __future__ import annotations

import os
import random
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import requests
import yaml

from rlscaler_dev.cluster import binaries
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.network import free_ports
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.versions import SUGGESTED_SCHEDULER
from rlscaler_scheduler.configuration import PROFILE, configuration
from rlscaler_scheduler.objects import LATENCY

Json = dict[str, Any]

UNVERIFIED = ssl.create_default_context()
UNVERIFIED.check_hostname = False
UNVERIFIED.verify_mode = ssl.CERT_NONE

POOL = {"pool": "placement"}
"""Label of the nodes, and selector of the pods, of a placement run."""

SIZES = ((16, 64), (32, 128), (64, 256))
"""Cores and GiB of the nodes, in turn."""


def nodes(count: int, seed: int = 0, gpus: int = 0, latency: bool = True) -> list[Json]:
    """`count` nodes of three sizes, 5 to 100 ms from the users."""
    rng = random.Random(seed)
    milliseconds = [round(rng.uniform(5, 100), 1) for _ in range(count)]
    return [
        node(name, SIZES[index % len(SIZES)], milliseconds[index] if latency else None, gpus)
        for index, name in enumerate(node_names(count))
    ]


def node_names(count: int) -> list[str]:
    """Names of `count` nodes."""
    return [f"place-{index:04d}" for index in range(count)]


def node(name: str, size: tuple[int, int], latency_ms: float | None, gpus: int = 0) -> Json:
    """A node of so many cores and GiB, with its latency where it is known."""
    cores, gib = size
    capacity = {"cpu": str(cores), "memory": f"{gib}Gi", "pods": "110"}
    if gpus:
        capacity |= {"nvidia.com/gpu": str(gpus), "rlscaler.io/gpu-milli": str(1000 * gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **POOL},
            "annotations": {} if latency_ms is None else {LATENCY: str(latency_ms)},
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def pod(
    name: str,
    namespace: str = "default",
    cpu: str = "1",
    memory: str = "1Gi",
    scheduler: str = PROFILE,
    annotations: dict[str, str] | None = None,
    **requests_of: str,
) -> Json:
    """A pod for these nodes; `requests_of` are further resources, by their names."""
    requests = {"cpu": cpu, "memory": memory, **requests_of}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {
            "schedulerName": scheduler,
            "nodeSelector": POOL,
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "played", "resources": {"requests": requests, "limits": requests}}],
        },
    }


class Process:
    """A program with its output in a file."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env={**os.environ, **(environment or {})}, start_new_session=True
            )
        self.log = log

    def send(self, signal_number: int) -> None:
        """SIGKILL, SIGSTOP, SIGCONT."""
        self.process.send_signal(signal_number)
        if signal_number == signal.SIGKILL:
            self.process.wait(10)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to one that does not listen."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


class Suggestions(Process):
    """One `rlscaler scheduler run`."""

    def __init__(self, kubeconfig: Path, folder: Path, *options: str, port: int | None = None) -> None:
        self.port = port if port is not None else free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "rlscaler_live.cli", "scheduler", "run", "--kubeconfig", str(kubeconfig)]
        super().__init__([*command, "--port", str(self.port), *options], folder / "suggestions.log")

    def ready(self) -> bool:
        """Whether it has listed nodes and pods. Raises RuntimeError when the process has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the suggestion server ended: {self.log.read_text()[-2000:]}")
        try:
            return requests.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except requests.RequestException:
            return False

    def get(self, path: str) -> Any:
        """JSON of a path."""
        return requests.get(f"{self.url}{path}", timeout=10).json()

    def metrics(self) -> str:
        """The text of /metrics."""
        return requests.get(f"{self.url}/metrics", timeout=10).text


class SecondScheduler(Process):
    """A kube-scheduler beside the cluster's own."""

    port = 0

    def metrics(self) -> str:
        """The text of /metrics; empty while it does not answer yet."""
        try:
            # It makes its own certificate at each start.
            with urlopen(f"https://127.0.0.1:{self.port}/metrics", timeout=10, context=UNVERIFIED) as answer:
                return str(answer.read().decode())
        except URLError:
            return ""

    def asked(self) -> dict[str, int]:
        """Pods by how the plugin asked the server about them, by the names of its metric's label `result`."""
        counts = re.findall(r'rlscaler_plugin_pods_total\{result="(\w+)"\} (\S+)', self.metrics())
        return {result: int(float(value)) for result, value in counts}


@contextmanager
def second_scheduler(
    kubeconfig: Path, url: str, folder: Path, *, asked: bool = True, plugin: bool = False, **options: Any
) -> Iterator[SecondScheduler]:
    """A second real kube-scheduler, for pods of schedulerName rlscaler; `options` are those of `configuration`.

    asked: whether it asks the server at `url` at all. plugin: whether it is rlscaler's build, which asks by its plugin.
    """
    (port,) = free_ports(1)
    config = folder / "kube-scheduler.yaml"
    told = configuration(url, plugin=plugin, kubeconfig=str(kubeconfig), leader_elect=False, **options)
    if not asked:
        del told["extenders"]
    config.write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
    name = SUGGESTED_SCHEDULER if plugin else "kube-scheduler"
    binary = binaries.provide((name,), Reporter())[name]["path"]
    command = [binary, f"--config={config}", f"--secure-port={port}", "--bind-address=127.0.0.1"]
    process = SecondScheduler([*command, "--authorization-always-allow-paths=/metrics"], folder / "kube-scheduler.log")
    process.port = port
    try:
        yield process
    finally:
        process.stop()


def bound(kube: KubeClient, namespace: str) -> dict[str, str]:
    """Pod -> node of the pods that are bound."""
    items = kube.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {item["metadata"]["name"]: node for item in items if (node := item["spec"].get("nodeName"))}
