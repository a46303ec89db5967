"""What the kubelet and kube-state-metrics say of a pod, measured at the processes that stand for its container.

The pods of the test's cluster are played, and the servers are processes beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import psutil

from rlscaler_dev.exposition import ExpositionServer

REQUESTS = {"cpu": 1.0, "memory": 2.0**33}
"""What each container asks for: cores, and bytes."""


@contextmanager
def kubelet(pods: Mapping[str, tuple[str, int]], namespace: str) -> Iterator[str]:
    """The address that serves the series of `pods`: by the pod's name its container, and the process of that."""
    exposition = ExpositionServer(lambda: "".join(_of(pod, *one, namespace) for pod, one in pods.items()))
    try:
        yield exposition.address
    finally:
        exposition.close()


def _of(pod: str, container: str, pid: int, namespace: str) -> str:
    of_pod = f'namespace="{namespace}",pod="{pod}"'
    of_container = f'{of_pod},container="{container}"'
    cpu, memory = _used(pid)
    requests = [
        f'kube_pod_container_resource_requests{{{of_container},resource="{name}"}} {amount}'
        for name, amount in REQUESTS.items()
    ]
    lines = [
        f"container_cpu_usage_seconds_total{{{of_container}}} {cpu}",
        f"container_memory_working_set_bytes{{{of_container}}} {memory}",
        f'kube_pod_status_ready{{{of_pod},condition="true"}} 1',
        *requests,
    ]
    return "\n".join(lines) + "\n"


def _used(pid: int) -> tuple[float, int]:
    """Seconds of CPU and bytes of memory of a process and all that it has started; what has ended is left out."""
    cpu, memory = 0.0, 0
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                cpu += times.user + times.system
                memory += process.memory_info().rss
    return cpu, memory
