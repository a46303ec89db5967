"""How long the control plane takes to start from the cache, and how much memory it holds.

    python benchmarks/cluster_start.py [--runs 5] [--node real] [--pods 20] [--out FILE]

Each run times `rlscaler cluster up` as a process of its own, from the command to the first Deployment ready without a
cold start, then `down`. With `--node real` (root) the Deployment's pods are containers. Prints one JSON document;
`load_before` tells whether the machine was idle.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import psutil

from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.cluster.realnode import images
from rlscaler_dev.cluster.realnode.node import KWOK, REAL

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(pods: int, node: str) -> dict[str, Any]:
    """Pods that do nothing, on played nodes or on the real one."""
    pool, image = ("real", images.PAUSE) if node == REAL else ("cpu", "pause")
    container = {"name": "app", "image": image, "imagePullPolicy": "Never"}
    return {
        "metadata": {"name": "first"},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": "first"}},
            "template": {
                "metadata": {"labels": {"app": "first"}},
                "spec": {"nodeSelector": {"pool": pool}, "containers": [container]},
            },
        },
    }


def resident_mib(pid: int) -> int:
    """Memory of a component; inside the real node's namespace it is a child of the process that entered."""
    process = psutil.Process(pid)
    return int(sum(each.memory_info().rss for each in (process, *process.children(recursive=True))) >> 20)


def rlscaler(*arguments: str) -> None:
    """The command line, as a user calls it."""
    command = "from rlscaler_dev.cluster.cli import cluster; cluster()"
    subprocess.run([sys.executable, "-c", command, *arguments], check=True, capture_output=True)


def one_run(name: str, node: str, pods: int) -> dict[str, Any]:
    """Seconds of each part, and the components' resident memory in MiB."""
    load = os.getloadavg()[0]
    began = time.monotonic()
    rlscaler("up", "--name", name, "--node", node)
    started = time.monotonic()
    info = api.status(name)
    with KubeClient.from_kubeconfig(info.kubeconfig) as client:
        client.request("POST", DEPLOYMENTS, deployment(pods, node))
        first = f"{DEPLOYMENTS}/first"
        wait_until(lambda: client.get(first)["status"].get("readyReplicas") == pods, "the Deployment", 120, 0.02)
    ready = time.monotonic()
    memory = {component: resident_mib(pid) for component, pid in info.processes.items()}
    rlscaler("down", "--name", name)
    return {
        "load_before": round(load, 2),
        "up_seconds": round(started - began, 2),
        "first_deployment_ready_seconds": round(ready - began, 2),
        "down_seconds": round(time.monotonic() - ready, 2),
        "resident_mib": memory,
    }


@click.command()
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True)
@click.option("--node", type=click.Choice([KWOK, REAL]), default=KWOK, show_default=True)
@click.option("--pods", type=click.IntRange(1, 200), default=1, show_default=True, help="Replicas of the Deployment.")
@out_option
def main(runs: int, node: str, pods: int, out: Path | None) -> None:
    """Time several starts."""
    name = f"benchmark-{os.getpid()}"
    try:
        results = [one_run(name, node, pods) for _ in range(runs)]
    finally:
        api.down(name)
    ready = [run["first_deployment_ready_seconds"] for run in results]
    document = {
        "machine": machine(),
        "node": node,
        "pods": pods,
        "first_deployment_ready_seconds": {
            "best": min(ready),
            "median": round(statistics.median(ready), 2),
            "worst": max(ready),
        },
        "resident_mib_total": round(statistics.median(sum(run["resident_mib"].values()) for run in results)),
        "runs": results,
    }
    click.echo(json.dumps(document, indent=2))
    write(out, document)


if __name__ == "__main__":
    main()
