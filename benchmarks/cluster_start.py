"""How long the control plane takes to start from the cache, and how much memory it holds.

    python benchmarks/cluster_start.py [--runs 5] [--out FILE]

Each run times `rlscaler cluster up` as a process of its own, from the command to the first Deployment ready without a
cold start, then `down`. Prints one JSON document; `load_before` tells whether the machine was idle.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import psutil

from rlscaler_devcluster import api
from rlscaler_devcluster.kube import KubeClient, wait_until

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "first"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "first"}},
        "template": {
            "metadata": {"labels": {"app": "first"}},
            "spec": {"nodeSelector": {"pool": "cpu"}, "containers": [{"name": "app", "image": "pause"}]},
        },
    },
}


def rlscaler(*arguments: str) -> None:
    """The command line, as a user calls it."""
    command = "from rlscaler_devcluster.cli import cluster; cluster()"
    subprocess.run([sys.executable, "-c", command, *arguments], check=True, capture_output=True)


def one_run(name: str) -> dict[str, Any]:
    """Seconds of each part, and the components' resident memory in MiB."""
    load = os.getloadavg()[0]
    began = time.monotonic()
    rlscaler("up", "--name", name)
    started = time.monotonic()
    info = api.status(name)
    with KubeClient.from_kubeconfig(info.kubeconfig) as client:
        client.request("POST", DEPLOYMENTS, DEPLOYMENT)
        first = f"{DEPLOYMENTS}/first"
        wait_until(lambda: client.get(first)["status"].get("readyReplicas") == 1, "the Deployment", 30, 0.02)
    ready = time.monotonic()
    memory = {component: psutil.Process(pid).memory_info().rss >> 20 for component, pid in info.processes.items()}
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
@click.option("--out", type=click.Path(path_type=Path), help="Also write the JSON document here.")
def main(runs: int, out: Path | None) -> None:
    """Time several starts."""
    name = f"benchmark-{os.getpid()}"
    try:
        results = [one_run(name) for _ in range(runs)]
    finally:
        api.down(name)
    ready = [run["first_deployment_ready_seconds"] for run in results]
    document = {
        "machine": {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()},
        "first_deployment_ready_seconds": {
            "best": min(ready),
            "median": round(statistics.median(ready), 2),
            "worst": max(ready),
        },
        "resident_mib_total": round(statistics.median(sum(run["resident_mib"].values()) for run in results)),
        "runs": results,
    }
    text = json.dumps(document, indent=2)
    click.echo(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
