"""A fresh control plane for one measurement: the HPA controller apart, and pods whose CPU time one write changes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import psutil
import yaml
from benchmarks.scale.load import NAMESPACE, Load
from benchmarks.scale.objects import APPS, BUSY_MILLICORES, IDLE_MILLICORES, create_all, deployment, names

from rlscaler_dev.cluster import api, binaries, components, processes, state
from rlscaler_dev.cluster.launcher import connect, layout_of
from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.cluster.readiness import wait_until

HPA = "horizontal-pod-autoscaler-controller"
CPU_NODES = 4
USAGE = "bench.rlscaler.io/usage-cpu"
"""Annotation of a node: the CPU time of each of its pods."""

SCRAPE_SECONDS = 2


class Testbed:
    """One cluster with Deployments that are ready and whose load is low."""

    def __init__(self, name: str, services: Sequence[str]) -> None:
        self.services = list(services)
        self.info = api.up(name, gpu_nodes=0, cpu_nodes=CPU_NODES, gateway_api=False, progress=ConsoleReporter())
        cluster = state.load(name)
        assert cluster is not None
        self.cluster, self.layout = cluster, layout_of(cluster)
        self.kube = connect(cluster)
        self.load = Load(self.services)
        self.started: list[str] = []
        """Processes of the contender."""

    def __enter__(self) -> Testbed:
        try:
            self._rearrange()
            self.info.add_scrape_target("bench", self.load.address)
            self.kube.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            create_all(self.kube, APPS, [deployment(name) for name in self.services])
            wait_until(self._ready, "ready Deployments", 600, 1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.load.close()
        api.down(self.cluster.name)

    def _ready(self) -> bool:
        ready = names(self.kube, APPS, lambda body: body.get("status", {}).get("readyReplicas", 0) >= 1)
        return len(ready) == len(self.services)

    def _rearrange(self) -> None:
        """The HPA controller leaves the others' process, and kwok reads the usage of pods from their node."""
        self.cluster.forget("kube-controller-manager")
        command = [*components.command(self.layout, "kube-controller-manager"), f"--controllers=*,-{HPA}"]
        self.cluster.record(processes.spawn("kube-controller-manager", command, self.cluster.directory))
        self.cluster.forget("kwok")
        documents = list(yaml.safe_load_all(self.layout.kwok_config.read_text()))
        for document in documents:
            if document and document["kind"] == "ClusterResourceUsage":
                usage = document["spec"]["usages"][0]["usage"]
                usage["cpu"]["expression"] = (
                    f'"{USAGE}" in node.metadata.annotations '
                    f'? Quantity(node.metadata.annotations["{USAGE}"]) : Quantity("{IDLE_MILLICORES}m")'
                )
        self.layout.kwok_config.write_text(yaml.safe_dump_all(documents, sort_keys=False))
        self.cluster.record(processes.spawn("kwok", components.command(self.layout, "kwok"), self.cluster.directory))

    def run(self, name: str, argv: list[str], environment: Mapping[str, str] | None = None) -> psutil.Process:
        """Start a process of the contender; it ends with the cluster."""
        record = processes.spawn(name, argv, self.cluster.directory, environment)
        self.cluster.record(record)
        self.started.append(name)
        return psutil.Process(record.pid)

    def stop(self, name: str) -> None:
        """Kill one of them."""
        self.cluster.forget(name)
        self.started.remove(name)

    def contender_processes(self) -> dict[str, psutil.Process]:
        """Return the running processes. Raises StartError with the end of its log where one has ended."""
        children = {}
        for name in self.started:
            record = self.cluster.process(name)
            assert record is not None
            record.check()
            children[name] = psutil.Process(record.pid)
        return children

    def run_hpa_controller(self, *options: str) -> None:
        """The HPA controller as a process of its own, with upstream's settings unless `options` say otherwise."""
        (port,) = free_ports(1, state.ports_taken())
        command = [
            self.cluster.binaries["kube-controller-manager"]["path"],
            f"--kubeconfig={self.layout.kubeconfig}",
            f"--controllers={HPA}",
            "--leader-elect=false",
            f"--bind-address={HOST}",
            f"--secure-port={port}",
            "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
            *options,
        ]
        self.run("hpa", command)

    def step(self, load: float, busy: bool) -> float:
        """Every service's load and its pods' CPU time change now; the monotonic time of that."""
        millicores = BUSY_MILLICORES if busy else IDLE_MILLICORES
        at = self.load.step(load)
        for node in self.kube.get("/api/v1/nodes")["items"]:
            body = {"metadata": {"annotations": {USAGE: f"{millicores}m"}}}
            path = f"/api/v1/nodes/{node['metadata']['name']}"
            self.kube.merge(path, body)
        return at

    def api_requests(self) -> float:
        """Requests that the API server has finished so far, watches left out."""
        total = 0.0
        for line in str(self.kube.get("/metrics")).splitlines():
            if line.startswith("apiserver_request_total{") and 'verb="WATCH"' not in line:
                total += float(line.rpartition(" ")[2])
        return total

    def binary(self, name: str) -> str:
        """A benchmark's binary, built the first time."""
        return binaries.provide([name], ConsoleReporter())[name]["path"]


def cluster_name() -> str:
    return f"bench-scale-{os.getpid()}"
