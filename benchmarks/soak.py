"""Does anything of the operator grow while it runs: memory, threads, open files, sockets, writes to the API server?

    python -m benchmarks.soak [--minutes 60] [--policies 20] [--seed 1] [--still] [--out FILE]

Starts a control plane, a Deployment pair and an Auto policy per service, an exporter with a load that swings every 90
seconds (a day in the time of a minute and a half), and the operator as a process of its own. All the time something
happens to the policies: they are edited, paused, deleted and made again; autoscalers come and go; other writers set
replicas; Deployments roll out, pods are deleted, and so is the Lease. Every ten seconds the process is measured. With
`--still` nothing happens but the load.

Prints one JSON document and exits with 1 where the last third is above the first third after a fifth of the time for
warming up: memory by more than 10 MiB and 5 %, threads by 2, open files or sockets by 8, writes by a third.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
import psutil
import requests
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.exceptions import ApiError

REPOSITORY = Path(__file__).parents[1]
POOLS = {"gpu": 20.0, "cpu": 4.0}
NAMESPACE = "default"
POLICIES = f"/apis/rlscaler.io/v1alpha1/namespaces/{NAMESPACE}/rlscalingpolicies"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
LABELS = ("namespace", "service", "pool")
SAMPLE_SECONDS = 10.0
EVENT_SECONDS = 2.0
WARM_UP_SHARE = 0.2
HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/rlscaler"
GROWTH = {"resident_mib": (10.0, 0.05), "threads": (2.0, 0.0), "files": (8.0, 0.0), "sockets": (8.0, 0.0)}
"""Most growth, as a number and as a share: the larger one counts."""
WRITES_SHARE = 1 / 3


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


class Churn:
    """Changes of the objects: one every two seconds, drawn at random."""

    def __init__(self, kube: KubeClient, names: list[str], seed: int) -> None:
        self._kube, self._names, self._draw = kube, names, random.Random(seed)
        self.done: dict[str, int] = {}
        self._events: tuple[Callable[[str], None], ...] = (
            self._edit,
            self._pause,
            self._resume,
            self._made_again,
            self._autoscaler,
            self._no_autoscaler,
            self._foreign,
            self._rolled,
            self._pods,
            self._lease,
        )

    def step(self) -> None:
        event, name = self._draw.choice(self._events), self._draw.choice(self._names)
        try:
            event(name)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        called = event.__name__.strip("_")
        self.done[called] = self.done.get(called, 0) + 1

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        self._kube.merge(path, body)

    def _edit(self, name: str) -> None:
        most = {"maxReplicas": self._draw.randint(5, 15)}
        self._patch(f"{POLICIES}/{name}", {"spec": {"targets": dict.fromkeys(POOLS, most)}})

    def _pause(self, name: str) -> None:
        self._patch(f"{POLICIES}/{name}", {"metadata": {"annotations": {"rlscaler.io/paused": "true"}}})

    def _resume(self, name: str) -> None:
        self._patch(f"{POLICIES}/{name}", {"metadata": {"annotations": {"rlscaler.io/paused": None}}})

    def _made_again(self, name: str) -> None:
        self._kube.delete(f"{POLICIES}/{name}")
        self._kube.request("POST", POLICIES, policy(name))

    def _autoscaler(self, name: str) -> None:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{name}-cpu"}
        spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4}
        self._kube.request("POST", HPAS, {"metadata": {"name": name}, "spec": spec})

    def _no_autoscaler(self, name: str) -> None:
        self._kube.delete(f"{HPAS}/{name}")

    def _foreign(self, name: str) -> None:
        path = f"{DEPLOYMENTS}/{name}-gpu?fieldManager=argocd-controller"
        self._patch(path, {"spec": {"replicas": self._draw.randint(1, 4)}})

    def _rolled(self, name: str) -> None:
        stamp = {"metadata": {"annotations": {"example.com/at": str(self._draw.random())}}}
        self._patch(f"{DEPLOYMENTS}/{name}-cpu", {"spec": {"template": stamp}})

    def _pods(self, name: str) -> None:
        self._kube.request("DELETE", f"{PODS}?labelSelector=app%3D{name}-gpu&gracePeriodSeconds=0")

    def _lease(self, name: str) -> None:
        if self._draw.random() < 0.1:
            self._kube.delete(LEASE)


def writes(kube: KubeClient) -> float:
    """Writes so far that only the operator does: patches of policies' statuses and of scale subresources."""
    total = 0.0
    for family in text_string_to_metric_families(kube.open("GET", "/metrics").text):
        if family.name == "apiserver_request":
            for sample in family.samples:
                labels = sample.labels
                status = (labels.get("resource"), labels.get("subresource")) == ("rlscalingpolicies", "status")
                ours = labels.get("verb") == "PATCH" and (status or labels.get("subresource") == "scale")
                total += sample.value if ours else 0.0
    return total


def sample(process: psutil.Process, kube: KubeClient, url: str) -> dict[str, float]:
    return {
        "resident_mib": process.memory_info().rss / 2**20,
        "threads": process.num_threads(),
        "files": process.num_fds(),
        "sockets": len(process.net_connections("all")),
        "series": len(requests.get(f"{url}/metrics", timeout=30).text.splitlines()),
        "writes": writes(kube),
    }


def soak(
    process: psutil.Process, kube: KubeClient, url: str, names: list[str], seed: int, seconds: float, still: bool
) -> Any:
    """Samples, and how often each thing happened."""
    churn, samples, began = Churn(kube, names, seed), [], time.monotonic()
    due = 0.0
    while (elapsed := time.monotonic() - began) < seconds:
        if elapsed >= due:
            samples.append({"at": round(elapsed, 1), **sample(process, kube, url)})
            due += SAMPLE_SECONDS
        if not still:
            churn.step()
        time.sleep(EVENT_SECONDS)
    return samples, churn.done


def judged(samples: list[dict[str, float]]) -> tuple[dict[str, Any], list[str]]:
    """Return medians of the first and the last third, and the figures that have grown."""
    warm = samples[round(WARM_UP_SHARE * len(samples)) :]
    third = max(2, len(warm) // 3)
    first, last = warm[:third], warm[-third:]
    figures: dict[str, Any] = {}
    grown = []
    for name, (number, share) in GROWTH.items():
        a, b = (median(row[name] for row in rows) for rows in (first, last))
        figures[name] = [round(a, 1), round(b, 1)]
        if b - a > max(number, share * a):
            grown.append(name)
    rates = [(rows[-1]["writes"] - rows[0]["writes"]) / (rows[-1]["at"] - rows[0]["at"]) for rows in (first, last)]
    figures["writes_per_second"] = [round(rate, 2) for rate in rates]
    if rates[1] > rates[0] * (1 + WRITES_SHARE):
        grown.append("writes_per_second")
    figures["series"] = [first[0]["series"], last[-1]["series"]]
    return figures, grown


def run(name: str, policies: int, seconds: float, seed: int, still: bool) -> dict[str, Any]:
    info = api.up(name, cold_start_seconds={"gpu": (1, 2), "cpu": (0.2, 0.8)})
    names = [f"chat-{i}" for i in range(policies)]
    service, over = Service(names), threading.Event()
    server, thread = start_http_server(0, "127.0.0.1", service.registry)
    info.add_scrape_target("benchmark", f"127.0.0.1:{server.server_port}")

    def load() -> None:
        while not over.wait(0.5):
            service.step()

    stepping = threading.Thread(target=load)
    stepping.start()
    try:
        with KubeClient.from_kubeconfig(info.kubeconfig) as kube:
            kube.apply(yaml.safe_load((REPOSITORY / "crds" / "rlscalingpolicies.yaml").read_text()))
            for policy_name in names:
                for pool in POOLS:
                    kube.request("POST", DEPLOYMENTS, deployment(f"{policy_name}-{pool}", pool))
            return _run(info, kube, names, seconds, seed, still)
    finally:
        over.set()
        stepping.join()
        server.shutdown()
        thread.join()


def _run(
    info: api.ClusterInfo, kube: KubeClient, names: list[str], seconds: float, seed: int, still: bool
) -> dict[str, Any]:
    port = 20000 + os.getpid() % 20000
    command = [sys.executable, "-m", "rlscaler_live.cli", "operator", "run", "--kubeconfig", str(info.kubeconfig)]
    command += ["--prometheus-url", str(info.prometheus_url), "--scrape-interval", "2", "--metrics-port", str(port)]
    command += ["--lease-namespace", NAMESPACE, "--audit-log", str(info.state_dir / "soak.jsonl")]
    with (info.state_dir / "soak.log").open("wb") as log:
        operator = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        for policy_name in names:
            kube.request("POST", POLICIES, policy(policy_name))
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, operator)
        samples, done = soak(psutil.Process(operator.pid), kube, url, names, seed, seconds, still)
        code = operator.poll()
    finally:
        if operator.poll() is None:
            operator.send_signal(signal.SIGTERM)
            operator.wait(30)
    errors = [line for line in (info.state_dir / "soak.log").read_text().splitlines() if "Traceback" in line]
    figures, grown = judged(samples)
    ended = [] if code is None else [f"the operator ended with {code}"]
    return {
        "first_and_last_third": figures,
        "grown": grown + ended + [f"{len(errors)} tracebacks"] * bool(errors),
        "happened": done,
        "samples": samples,
    }


def _wait_until_ready(url: str, operator: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and operator.poll() is None:
        try:
            if requests.get(f"{url}/readyz", timeout=5).ok:
                return
        except requests.ConnectionError:
            pass
        time.sleep(0.5)
    raise click.ClickException("the operator was not ready within 60 s")


@click.command()
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--policies", default=20, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--still", is_flag=True, help="Leave the objects alone.")
@out_option
def main(minutes: float, policies: int, seed: int, still: bool, out: Path | None) -> None:
    name = f"bench-soak-{os.getpid()}"
    try:
        figures = run(name, policies, 60 * minutes, seed, still)
    finally:
        api.down(name)
    result = {"benchmark": "soak", "minutes": minutes, "policies": policies, **figures, "machine": machine()}
    shown = {key: value for key, value in result.items() if key != "samples"}
    click.echo(json.dumps(shown, indent=2))
    write(out, result)
    if figures["grown"]:
        raise click.ClickException(f"grown: {', '.join(figures['grown'])}")


if __name__ == "__main__":
    main()
