"""Cost of suggestions: CPU of kube-scheduler and of the suggestion server for each pod, beside no suggestions.

python -m benchmarks.scheduler --nodes 100 --nodes 1000 --pods 300 --rounds 5 --out results/scheduler-cost.json

kube-scheduler alone, with the extender, and rlscaler's build with the plugin (with and without Events on pods), one
after the other in each round, on the same nodes, every node scored. One pod is placed first, so that the starts are not
counted. CPU time is counted beside time, since machines are shared; each row has the load average of the last minute,
the run's own part included. Pods per second are counted from the first that is created to the last that is bound. The
summary has the median over the rounds, the least and the most in brackets; `more_than_alone_ms` is how much more CPU
kube-scheduler needs for a pod than alone in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from rlscaler_dev.benchmark import write
from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.placement import testbed

NAMESPACE = "cost"

SETTLED_SECONDS = 330
"""The longest that `settle` waits: 5,000 nodes need minutes on two cores."""


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def place(kube: KubeClient, indices: range) -> int:
    """Create pods and wait until all are bound, five minutes at most; how many are."""
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    kube.apply_all([testbed.pod(f"p-{i}", NAMESPACE, f"{100 + i % 7 * 50}m", "128Mi") for i in indices])
    end = time.monotonic() + 300
    while (count := len(testbed.bound(kube, NAMESPACE))) < indices.stop and time.monotonic() < end:
        time.sleep(0.5)
    return count


def settle(kube: KubeClient) -> None:
    """Wait until no node has changed for two seconds: new ones become ready, and every scheduler hears of each.

    Raises TimeoutError where nodes still change after `SETTLED_SECONDS`: a measurement would not be of the scheduler
    alone.
    """
    before: list[str] = []
    end = time.monotonic() + SETTLED_SECONDS
    while before != (now := [item["metadata"]["resourceVersion"] for item in kube.get("/api/v1/nodes")["items"]]):
        if time.monotonic() > end:
            raise TimeoutError(f"nodes still change after {SETTLED_SECONDS} s: try fewer, or read kwok's log")
        before = now
        time.sleep(2)


def clear(kube: KubeClient) -> None:
    """Delete the pods and wait until they are gone."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    while items := kube.get(path)["items"]:
        for item in items:
            kube.delete(f"{path}/{item['metadata']['name']}?gracePeriodSeconds=0")


ALONE, EXTENDER, PLUGIN, PLUGIN_EVENTS = "alone", "extender", "plugin", "plugin+events"


def measure(kube: KubeClient, kubeconfig: Path, pods: int, way: str, policy: str, folder: Path) -> dict[str, Any]:
    """Place the pods once."""
    with ExitStack() as stack:
        stack.callback(clear, kube)
        server = None
        if way != ALONE:
            server = testbed.Suggestions(kubeconfig, folder, "--policy", policy)
            stack.callback(server.stop)
            while not server.ready():
                time.sleep(0.2)
        by_plugin = {"plugin": True, "events": way == PLUGIN_EVENTS} if way in (PLUGIN, PLUGIN_EVENTS) else {}
        url = server.url if server else ""
        scheduler = stack.enter_context(
            testbed.second_scheduler(kubeconfig, url, folder, asked=server is not None, timeout_ms=5000, **by_plugin)
        )
        place(kube, range(1))
        processes = [scheduler.process.pid, *([server.process.pid] if server else [])]
        before, began = [cpu_s(pid) for pid in processes], time.monotonic()
        count = place(kube, range(1, pods + 1)) - 1
        took = time.monotonic() - began
        used = [1000 * (cpu_s(pid) - then) / max(count, 1) for pid, then in zip(processes, before, strict=True)]
        figures: dict[str, Any] = {"way": way, "policy": policy, "pods": count, "scheduler_cpu_ms": round(used[0], 2)}
        figures |= {"pods_per_s": round(count / took, 1), "load_average": round(os.getloadavg()[0], 2)}
        if server is not None:
            figures["server_cpu_ms"] = round(used[1], 2)
            verb = "score" if by_plugin else "prioritize"
            inside = p99(server.metrics(), rf'rlscaler_scheduler_call_seconds_bucket{{le="([^"]+)",verb="{verb}"}}')
            figures["answer_p99_at_most_ms"] = inside
        if by_plugin:
            figures["wait_p99_at_most_ms"] = p99(
                scheduler.metrics(), r'rlscaler_plugin_call_seconds_bucket{le="([^"]+)"}'
            )
        return figures


def p99(text: str, bucket: str) -> float | None:
    """Upper bound of the bucket of a histogram that holds its 99th percentile, in milliseconds."""
    counts = re.findall(bucket.replace("{", r"\{", 1).replace("}", r"\}") + r" ([\d.e+]+)", text)
    total = float(counts[-1][1]) if counts else 0.0
    return next((1000 * float(le) for le, n in counts if total and float(n) >= 0.99 * total), None)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each size and way, over its rounds."""
    alone = {(row["nodes"], row["round"]): row["scheduler_cpu_ms"] for row in rows if row["way"] == ALONE}
    means: list[dict[str, Any]] = []
    for nodes, way in dict.fromkeys((row["nodes"], row["way"]) for row in rows):
        of = [row for row in rows if (row["nodes"], row["way"]) == (nodes, way)]
        mean: dict[str, Any] = {"nodes": nodes, "way": way, "rounds": len(of)}
        for name in ("scheduler_cpu_ms", "server_cpu_ms", "pods_per_s"):
            if name in of[0]:
                mean[name] = spread([row[name] for row in of])
        if alone and way != ALONE:
            more = [row["scheduler_cpu_ms"] - alone[nodes, row["round"]] for row in of]
            mean["more_than_alone_ms"] = spread(more)
        for name in ("answer_p99_at_most_ms", "wait_p99_at_most_ms"):
            if known := [row[name] for row in of if row.get(name) is not None]:
                mean[name] = statistics.median(known)
        means.append(mean)
    return means


def spread(values: list[float]) -> str:
    """The median, and the least and the most."""
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, action="append", required=True)
    parser.add_argument("--pods", type=int, default=300)
    parser.add_argument("--policy", default="EE")
    parser.add_argument("--way", action="append", choices=[ALONE, EXTENDER, PLUGIN, PLUGIN_EVENTS])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with (
        api.started("scheduler-cost", prometheus=False, metrics_server=False) as cluster,
        KubeClient.from_kubeconfig(cluster.kubeconfig) as kube,
        tempfile.TemporaryDirectory() as folder,
    ):
        for nodes in sorted(options.nodes):
            kube.apply_all(testbed.nodes(nodes))
            settle(kube)
            for index in range(options.rounds):
                for way in options.way or (ALONE, EXTENDER, PLUGIN, PLUGIN_EVENTS):
                    row = measure(kube, cluster.kubeconfig, options.pods, way, options.policy, Path(folder))
                    rows.append({"nodes": nodes, "round": index, **row})
                    print(json.dumps(rows[-1]), flush=True)
                    write(options.out, {"rows": rows}, indent=1)
    means = summary(rows)
    for row in means:
        print(json.dumps(row))
    write(options.out, {"summary": means, "rows": rows}, indent=1)


if __name__ == "__main__":
    main()
