"""How much memory the operator needs where the cluster is full of pods that no policy is about.

    python benchmarks/foreign_pods.py [--pods 10000] [--limit-mib 512] [--seconds 60] [--out FILE]

Starts a control plane, creates pods of other teams' Deployments as large as those of a real cluster (some 8 KiB of
JSON each), and starts the operator as a process of its own. Prints one JSON document with the highest and the last
resident memory in MiB; exits with 1 where the highest is above the limit, which is by default the chart's. Creating
10,000 pods takes a few minutes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import psutil
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.kube import KubeClient

REPOSITORY = Path(__file__).parents[1]
PODS_OF_A_SET = 100
WRITERS = 8


def chart_limit_mib() -> int:
    """Memory limit of the chart's container."""
    values = yaml.safe_load((REPOSITORY / "helm" / "rlscaler" / "values.yaml").read_text())
    return int(values["resources"]["limits"]["memory"].removesuffix("Mi"))


def replica_set(name: str, template: str) -> dict[str, Any]:
    """An owner that makes no pods itself: the garbage collector deletes pods whose owner does not exist."""
    labels = {"made-by": name}
    container = {"name": "app", "image": "app"}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}}
    spec["template"] = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {"metadata": {"name": f"{name}-{template}"}, "spec": spec}


def container(name: str, number: int) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3}
    return {
        "name": name,
        "image": f"registry.example.com/team/{name}@sha256:{number:064x}",
        "env": [{"name": f"SETTING_{i:02}", "value": f"{number:08x}-{i:016x}"} for i in range(20)],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "securityContext": {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
    }


def pod(number: int, owner: dict[str, Any], template: str) -> dict[str, Any]:
    """A pod that no scheduler places, so that nothing else of the control plane works on it."""
    labels = {"app": owner["name"], "pod-template-hash": template}
    metadata = {
        "name": f"{owner['name']}-{number:05}",
        "labels": labels | {f"example.com/label-{i}": f"{number:012x}" for i in range(5)},
        "annotations": {f"example.com/annotation-{i}": f"{number:030x}" for i in range(5)},
        "ownerReferences": [owner],
    }
    spec = {
        "schedulerName": "none",
        "containers": [container(name, number) for name in ("app", "proxy")],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }
    return {"metadata": metadata, "spec": spec}


def fill(kube: KubeClient, kubeconfig: Path, number: int) -> float:
    """Create so many pods; the mean size of one in KiB."""
    template = "6b7f9c5d4"
    owners = []
    for i in range(-(-number // PODS_OF_A_SET)):
        made = kube.request("POST", "/apis/apps/v1/namespaces/default/replicasets", replica_set(f"team-{i}", template))
        metadata = made["metadata"]
        owners.append({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": metadata["name"], "uid": metadata["uid"]})

    def create(numbers: range) -> None:
        with KubeClient.from_kubeconfig(kubeconfig) as client:
            for i in numbers:
                body = pod(i, owners[i // PODS_OF_A_SET], template)
                client.request("POST", "/api/v1/namespaces/default/pods", body)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(create, [range(i, number, WRITERS) for i in range(WRITERS)]))
    page = kube.get("/api/v1/namespaces/default/pods?limit=100")["items"]
    return len(json.dumps(page, separators=(",", ":"))) / len(page) / 1024


def watched(process: psutil.Process, seconds: float) -> Iterator[float]:
    """Resident memory in MiB, ten times a second."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        yield process.memory_info().rss / 2**20
        time.sleep(0.1)


def pods_listed(kube: KubeClient) -> float:
    """Requests so far that list pods of the whole cluster: each page is one."""
    total = 0.0
    for family in text_string_to_metric_families(kube.open("GET", "/metrics").text):
        for one in family.samples if family.name == "apiserver_request" else ():
            labels = one.labels
            if (labels.get("resource"), labels.get("verb"), labels.get("scope")) == ("pods", "LIST", "cluster"):
                total += one.value
    return total


def measure(info: api.ClusterInfo, kube: KubeClient, seconds: float) -> dict[str, Any]:
    before = pods_listed(kube)
    command = [sys.executable, "-m", "rlscaler_live.cli", "operator", "run", "--kubeconfig", str(info.kubeconfig)]
    command += ["--prometheus-url", str(info.prometheus_url)]
    with (info.state_dir / "foreign-pods.log").open("wb") as log:
        operator = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        resident = list(watched(psutil.Process(operator.pid), seconds))
    finally:
        operator.send_signal(signal.SIGTERM)
        operator.wait(30)
    return {
        "resident_mib_max": round(max(resident), 1),
        "resident_mib_last": round(resident[-1], 1),
        "pages": pods_listed(kube) - before,
    }


def run(name: str, pods: int, seconds: float) -> dict[str, Any]:
    info = api.up(name)
    with KubeClient.from_kubeconfig(info.kubeconfig) as kube:
        kube.apply(yaml.safe_load((REPOSITORY / "crds" / "rlscalingpolicies.yaml").read_text()))
        without = measure(info, kube, seconds)
        began = time.monotonic()
        size = fill(kube, info.kubeconfig, pods)
        took = time.monotonic() - began
        return {
            "without_pods": without,
            "with_pods": measure(info, kube, seconds),
            "pod_kib": round(size, 1),
            "creating_seconds": round(took),
        }


@click.command()
@click.option("--pods", default=10_000, show_default=True)
@click.option("--limit-mib", type=int, help="Most resident memory; default: the chart's limit.")
@click.option("--seconds", default=60.0, show_default=True, help="How long each operator runs.")
@out_option
def main(pods: int, limit_mib: int | None, seconds: float, out: Path | None) -> None:
    name = f"bench-pods-{os.getpid()}"
    limit = chart_limit_mib() if limit_mib is None else limit_mib
    try:
        figures = run(name, pods, seconds)
    finally:
        api.down(name)
    result = {"benchmark": "foreign_pods", "pods": pods, "limit_mib": limit, **figures, "machine": machine()}
    click.echo(json.dumps(result, indent=2))
    write(out, result)
    if figures["with_pods"]["resident_mib_max"] > limit:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
