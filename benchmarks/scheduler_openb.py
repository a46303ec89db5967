"""openb on the real kube-scheduler: whether its pods land where the replay by the same rule puts them.

python -m benchmarks.scheduler_openb --pods 300 --out results/scheduler-openb.json

All 1,523 nodes of the trace, as kwok plays them, and the first pods of a shuffled order. None ends. They are placed by
kube-scheduler with the score plugin and the rule `fragmentation`, and by that rule alone. Pods that name several models
of GPUs choose among nodes by affinity, as kube-scheduler wants it said.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_core.placement.gpus import taken
from rlscaler_core.placement.mask import fits
from rlscaler_core.placement.policies import choose
from rlscaler_core.placement.rules import RULES
from rlscaler_core.placement.types import WHOLE_GPU, Int, Nodes, Pods
from rlscaler_dev.benchmark import write
from rlscaler_dev.cluster import api, objects
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.placement import testbed
from rlscaler_rl.placement.openb import ALL_NODES, Cluster, inflated, load
from rlscaler_scheduler.objects import GPU_MODEL

NAMESPACE, RULE, SEED = "openb", "fragmentation", 42
MOST_PODS = 1000
"""Pods that a node takes at most. No node gets so many, so the number of pods never decides where one lands."""
PATIENCE_S = 300.0


def one(pods: Pods, index: int) -> Pods:
    """One pod, without leading dimensions."""
    return Pods._make(column[index] for column in pods)


def by_rule(cluster: Cluster, order: Int) -> Iterator[int]:
    """The node of each pod of the order by the rule alone; -1 where none takes it."""
    nodes = Nodes._make(column.copy() for column in cluster.nodes)
    for index in order:
        pod = one(cluster.pods, index)
        at = int(choose(RULES[RULE](nodes, pod), nodes, pod, fits(nodes, pod)))
        if at >= 0:
            nodes.gpu_free[at] -= taken(nodes.one(at), pod)[0]
            nodes.requested[at] += pod.requests
            nodes.pods[at] += 1
        yield at


def node_objects(nodes: Nodes) -> list[dict[str, Any]]:
    """The nodes for the API server; names have the order of the arrays."""
    made = testbed.nodes(len(nodes.gpus), latency=False)
    for index, body in enumerate(made):
        cpu, memory = nodes.allocatable[index]
        gpus = int(nodes.gpus[index])
        has = {"cpu": f"{cpu:.0f}m", "memory": f"{memory:.0f}Mi", "pods": str(MOST_PODS)}
        if gpus:
            has |= {"nvidia.com/gpu": str(gpus), "rlscaler.io/gpu-milli": str(WHOLE_GPU * gpus)}
            body["metadata"]["labels"][GPU_MODEL] = str(nodes.gpu_model[index])
        body["status"] = {"capacity": has, "allocatable": has}
    return made


def pod_object(name: str, pod: Pods, models: list[int]) -> dict[str, Any]:
    """The pod for the API server."""
    cpu, memory = pod.requests
    asked: dict[str, str] = {}
    if pod.gpus:
        milli = int(pod.gpus * pod.gpu_milli)
        asked["rlscaler.io/gpu-milli"] = str(milli)
        if pod.gpu_milli == WHOLE_GPU:
            asked["nvidia.com/gpu"] = f"{pod.gpus:.0f}"
    body = testbed.pod(name, NAMESPACE, f"{cpu:.0f}m", f"{memory:.0f}Mi", **asked)
    # Nodes are tainted until kwok has made them ready, and where it is late with their leases.
    body["spec"]["tolerations"] = [{"operator": "Exists"}]
    if pod.gpu_models:
        wanted = [str(model) for model in models if model & int(pod.gpu_models)]
        term = {"matchExpressions": [{"key": GPU_MODEL, "operator": "In", "values": wanted}]}
        body["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        }
    return body


def wait(kube: KubeClient, count: int) -> dict[str, str]:
    """Pod -> node, once so many are bound or the time is up."""
    end = time.monotonic() + PATIENCE_S
    while len(found := testbed.bound(kube, NAMESPACE)) < count and time.monotonic() < end:
        time.sleep(0.5)
    return found


def by_cluster(kube: KubeClient, kubeconfig: Path, cluster: Cluster, order: Int, folder: Path) -> list[str]:
    """The node of each pod by kube-scheduler; empty where it has none after a while."""
    models = sorted({int(model) for model in cluster.nodes.gpu_model if model})
    server = testbed.Suggestions(kubeconfig, folder, "--policy", "GPU")
    try:
        while not server.ready():
            time.sleep(0.2)
        with testbed.second_scheduler(kubeconfig, server.url, folder, plugin=True, timeout_ms=5000):
            # The first pod alone: those that wait when kube-scheduler starts come to it in any order.
            for numbers in (range(1), range(1, len(order))):
                for number in numbers:
                    kube.create(pod_object(f"p-{number:05d}", one(cluster.pods, order[number]), models))
                found = wait(kube, numbers.stop)
    finally:
        server.stop()
    return [found.get(f"p-{number:05d}", "") for number in range(len(order))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=300)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cluster = load(node_list=ALL_NODES)
    gpus = float(cluster.nodes.gpus.sum())
    order = inflated(cluster.pods, gpus, 1.3, np.random.default_rng(SEED))[: options.pods]
    made = node_objects(cluster.nodes)
    names = [body["metadata"]["name"] for body in made]
    expected = [names[at] if at >= 0 else "" for at in by_rule(cluster, order)]
    with (
        api.started("scheduler-openb", prometheus=False, metrics_server=False) as running,
        KubeClient.from_kubeconfig(running.kubeconfig) as kube,
        tempfile.TemporaryDirectory() as folder,
    ):
        kube.apply_all([objects.namespace(NAMESPACE), *made])
        found = by_cluster(kube, running.kubeconfig, cluster, order, Path(folder))
    apart = [number for number, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b]
    row = {"nodes": len(names), "pods": len(order), "bound": sum(map(bool, found)), "same": len(order) - len(apart)}
    row["apart"] = [{"pod": number, "rule": expected[number], "cluster": found[number]} for number in apart[:20]]
    print(json.dumps(row), flush=True)
    write(options.out, row, indent=1)


if __name__ == "__main__":
    main()
