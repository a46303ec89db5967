"""How long pods wait for a node while the suggestion server is killed, late or silent or hangs up, and in a burst.

python -m benchmarks.scheduler_faults --nodes 100 --pods 100 --burst 1000 --out results/scheduler-faults.json

kube-scheduler alone, with the extender, and rlscaler's build with the plugin, on the same nodes in one run. Without a
burst the pods come 20 a second, one after the other, and have a hard latency that a quarter of the nodes keep; the
table counts those that are above it. A delay is from the moment at which a watch shows the pod to the moment at which
it shows it on a node, both seen by one thread. Each row has the load average of the last minute.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.scheduler import ALONE, EXTENDER, NAMESPACE, PLUGIN, clear

from rlscaler_dev.benchmark import write
from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.placement import testbed
from rlscaler_dev.placement.delays import Delays
from rlscaler_dev.placement.faulty import Fault, faulty_server
from rlscaler_scheduler.objects import LATENCY

HEALTHY, KILLED, BURST = "healthy", "killed", "burst"
CASES = (HEALTHY, KILLED, *Fault, BURST)
EVERY_SECONDS = 0.05
LONGEST_SECONDS = 180.0


@contextmanager
def server_of(case: str, kubeconfig: Path, folder: Path) -> Iterator[str]:
    """The URL of the suggestion server of a case; a killed one is gone when it is yielded."""
    if case in tuple(Fault):
        with faulty_server(Fault(case)) as url:
            yield url
        return
    made = testbed.Suggestions(kubeconfig, folder, "--policy", "EE")
    try:
        while not made.ready():
            time.sleep(0.2)
        if case == KILLED:
            made.send(signal.SIGKILL)
        yield made.url
    finally:
        made.stop()


def create(kube: KubeClient, case: str, pods: int, hard: float) -> None:
    """All at once in a burst, else one after the other and with a hard latency."""
    annotations = {} if case == BURST else {"rlscaler.io/latency-hard-ms": str(hard)}
    made = [testbed.pod(f"p-{i}", NAMESPACE, "10m", "8Mi", annotations=annotations) for i in range(pods)]
    if case == BURST:
        kube.apply_all(made)
        return
    for one in made:
        kube.create(one)
        time.sleep(EVERY_SECONDS)


def start(kube: KubeClient) -> None:
    """Wait until a first pod is placed, so that the scheduler's start is not counted.

    kube-scheduler does not ask for scores where only one node fits.
    """
    first = testbed.pod("first", NAMESPACE, "10m", "8Mi")
    first["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "place-0000"}
    kube.create(first)
    while not testbed.bound(kube, NAMESPACE):
        time.sleep(0.2)


def measure(kube: KubeClient, kubeconfig: Path, case: str, way: str, pods: int, timeout_ms: int) -> dict[str, Any]:
    """Play one case once."""
    items = kube.get("/api/v1/nodes")["items"]
    latency = {
        item["metadata"]["name"]: float(item["metadata"].get("annotations", {}).get(LATENCY, "nan")) for item in items
    }
    hard = float(np.nanquantile(list(latency.values()), 0.25))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(clear, kube)
        url = stack.enter_context(server_of(case, kubeconfig, folder)) if way != ALONE else ""
        options = {"asked": way != ALONE, "plugin": way == PLUGIN, "timeout_ms": timeout_ms}
        scheduler = stack.enter_context(testbed.second_scheduler(kubeconfig, url, folder, **options))
        start(kube)
        delays = stack.enter_context(Delays(kube, NAMESPACE))
        create(kube, case, pods, hard)
        delays.wait(pods, LONGEST_SECONDS)
        found = 1000 * np.array(list(delays.seconds().values()))
        row: dict[str, Any] = {"case": case, "way": way, "pods": pods, "placed": len(found)}
        if len(found):
            p50, p99, most = np.percentile(found, [50, 99, 100]).round().tolist()
            row |= {"p50_ms": p50, "p99_ms": p99, "max_ms": most}
        if case != BURST:
            row["above_hard"] = sum(latency[node] > hard for node in delays.nodes().values())
        if way == PLUGIN:
            row["asked"] = scheduler.asked()
        return row | {"load_average": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=100, help="Pods of each case but the burst.")
    parser.add_argument("--burst", type=int, default=1000)
    parser.add_argument("--timeout-ms", type=int, default=100)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--way", action="append", choices=[ALONE, EXTENDER, PLUGIN])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    with (
        api.started("scheduler-faults", prometheus=False, metrics_server=False) as cluster,
        KubeClient.from_kubeconfig(cluster.kubeconfig) as kube,
    ):
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        kube.apply_all(testbed.nodes(options.nodes))
        for case in options.case or CASES:
            pods = options.burst if case == BURST else options.pods
            for way in options.way or (ALONE, EXTENDER, PLUGIN):
                if way == ALONE and case not in (HEALTHY, BURST):
                    continue  # it asks no server
                rows.append(measure(kube, cluster.kubeconfig, case, way, pods, options.timeout_ms))
                print(json.dumps(rows[-1]), flush=True)
    write(options.out, rows, indent=1)


if __name__ == "__main__":
    main()
