"""Lower bound of the machine: patch every Deployment as soon as the load steps, and nothing else.

    python -m benchmarks.scale.bare KUBECONFIG METRICS

No decision, no status, no watch: as many requests at a time as the client keeps connections. The autoscalers' times are
to be read beside its own.
"""

from __future__ import annotations

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
from benchmarks.scale.load import HIGH, LOW
from benchmarks.scale.objects import APPS, MOST, START, names

from rlscaler_dev.cluster.kube import PARALLEL, KubeClient
from rlscaler_operator.actuation.scale import scale_patch
from rlscaler_operator.cluster.kube import JSON_PATCH

POLL_SECONDS = 1.0


def received(metrics: str) -> float:
    """The counter of the first service: all of them count alike."""
    with requests.get(metrics, stream=True, timeout=10) as answer:
        return float(next(answer.iter_lines()).split()[-1])


def wait_for_step(metrics: str) -> None:
    """Until the counter rises faster than before the step."""
    count, at = received(metrics), time.monotonic()
    while True:
        time.sleep(POLL_SECONDS)
        before, since = count, at
        count, at = received(metrics), time.monotonic()
        if (count - before) / (at - since) > (LOW + HIGH) / 20:
            return


def main() -> None:
    kubeconfig, metrics = sys.argv[1:]
    body = scale_patch(START, MOST)
    with KubeClient.from_kubeconfig(Path(kubeconfig)) as kube, ThreadPoolExecutor(PARALLEL) as pool:
        paths = [f"{APPS}/{name}/scale" for name in sorted(names(kube, APPS, lambda _: True))]
        wait_for_step(metrics)
        list(pool.map(lambda path: kube.request("PATCH", path, body, content_type=JSON_PATCH), paths))
    signal.pause()  # it ends with the cluster, as autoscalers do


if __name__ == "__main__":
    main()
