"""Memory and CPU time of the operator with some policies on a real control plane.

    python benchmarks/operator_memory.py [--policies 10] [--seconds 90] [--out FILE]

Starts a control plane, one Deployment pair and one Auto policy (interval 10 s, sensing every second) per service, an
exporter with a moving load for all of them, and the operator as a process of its own. Prints one JSON document; `ready`
counts policies whose metrics and model were in order, so that a figure for an idle operator is seen as such.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import psutil
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.kube import KubeClient

REPOSITORY = Path(__file__).parents[1]
POOLS = {"gpu": 20.0, "cpu": 4.0}
NAMESPACE = "default"
POLICIES = f"/apis/rlscaler.io/v1alpha1/namespaces/{NAMESPACE}/rlscalingpolicies"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
LABELS = ("namespace", "service", "pool")


class Service:
    """The metrics of all services, under a load that swings between 5 and 60 requests/s."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.registry, self._at = names, CollectorRegistry(), time.monotonic()
        self._received = Counter("inference_requests_received", "Arrived.", LABELS, registry=self.registry)
        self._duration = Histogram("inference_request_duration_seconds", "Latency.", LABELS, registry=self.registry)
        self._gpu = Gauge("DCGM_FI_DEV_GPU_UTIL", "%", ("namespace", "pod", "gpu"), registry=self.registry)

    def step(self) -> None:
        now = time.monotonic()
        rate = 32.5 + 27.5 * math.sin(now / 15)
        for name in self.names:
            for pool in POOLS:
                self._received.labels(NAMESPACE, name, pool).inc(rate / 2 * (now - self._at))
                self._duration.labels(NAMESPACE, name, pool).observe(0.2)
            self._gpu.labels(NAMESPACE, f"{name}-gpu-6b7f-abcde", "0").set(rate)
        self._at = now


def deployment(name: str, pool: str) -> dict[str, Any]:
    pod = {
        "nodeSelector": {"pool": pool},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [{"name": "app", "image": "app"}],
    }
    template = {"metadata": {"labels": {"app": name, "rlscaler.io/flavour": pool}}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def policy(name: str) -> dict[str, Any]:
    targets = {
        pool: {"deployment": f"{name}-{pool}", "maxReplicas": 10, "requestsPerSecond": rps}
        for pool, rps in POOLS.items()
    }
    for pool, seconds in (("gpu", 45), ("cpu", 8)):
        targets[pool]["coldStartSeconds"] = seconds
    spec = {"mode": "Auto", "intervalSeconds": 10, "senseSeconds": 1, "targets": targets}
    kind = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingPolicy"}
    return kind | {"metadata": {"name": name}, "spec": spec | {"slo": {"latencyMilliseconds": 1000}}}


def measure(process: psutil.Process, service: Service, seconds: float) -> dict[str, Any]:
    """Resident memory in MiB and CPU time of the process under load."""
    resident, began = [], time.monotonic()
    while time.monotonic() - began < seconds:
        service.step()
        resident.append(process.memory_info().rss / 2**20)
        time.sleep(0.5)
    cpu = process.cpu_times()
    late = resident[len(resident) // 2 :]
    return {
        "resident_mib_max": round(max(resident), 1),
        "resident_mib_last_half": [round(min(late), 1), round(max(late), 1)],
        "cpu_share": round((cpu.user + cpu.system) / seconds, 4),
    }


def run(name: str, policies: int, seconds: float) -> dict[str, Any]:
    info = api.up(name, cold_start_seconds={"gpu": (1, 2), "cpu": (0.2, 0.8)})
    names = [f"chat-{i}" for i in range(policies)]
    service = Service(names)
    server, thread = start_http_server(0, "127.0.0.1", service.registry)
    info.add_scrape_target("benchmark", f"127.0.0.1:{server.server_port}")
    with KubeClient.from_kubeconfig(info.kubeconfig) as kube:
        kube.apply(yaml.safe_load((REPOSITORY / "crds" / "rlscalingpolicies.yaml").read_text()))
        for policy_name in names:
            for pool in POOLS:
                kube.request("POST", DEPLOYMENTS, deployment(f"{policy_name}-{pool}", pool))
        command = [sys.executable, "-m", "rlscaler_live.cli", "operator", "run", "--kubeconfig"]
        command += [str(info.kubeconfig), "--prometheus-url", info.prometheus_url, "--scrape-interval", "2"]
        with (info.state_dir / "operator-benchmark.log").open("wb") as log:
            operator = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for policy_name in names:
                kube.request("POST", POLICIES, policy(policy_name))
            figures = measure(psutil.Process(operator.pid), service, seconds)
            items = kube.request("GET", POLICIES)["items"]
        finally:
            operator.send_signal(signal.SIGTERM)
            operator.wait(20)
            server.shutdown()
            thread.join()
    statuses = [item.get("status", {}) for item in items]
    conditions = [{c["type"]: c["status"] for c in status.get("conditions", [])} for status in statuses]
    return figures | {"ready": sum(c.get("Ready") == "True" for c in conditions)}


@click.command()
@click.option("--policies", default=10, show_default=True)
@click.option("--seconds", default=90.0, show_default=True)
@out_option
def main(policies: int, seconds: float, out: Path | None) -> None:
    name = f"bench-operator-{os.getpid()}"
    load = os.getloadavg()[0]
    try:
        figures = run(name, policies, seconds)
    finally:
        api.down(name)
    result = {
        "benchmark": "operator_memory",
        "policies": policies,
        **figures,
        "load_before": load,
        "machine": machine(),
    }
    click.echo(json.dumps(result, indent=2))
    write(out, result)


if __name__ == "__main__":
    main()
