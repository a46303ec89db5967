"""A cluster, the emulated service and Prometheus for an environment to learn in, where the user names none.

Found through the entry point group `rlscaler.stages`. It is the demo's own stage without a contender and without load:
both belong to the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster.prometheus import SCRAPE_INTERVAL_SECONDS
from rlscaler_dev.demo.exceptions import DemoError
from rlscaler_dev.demo.leftovers import Journal, end_processes
from rlscaler_dev.demo.processes import GRACE_SECONDS, Supervisor
from rlscaler_dev.demo.settings import CLIENT_TIMEOUT_MS, CPU_POOL, GPU_POOL, NAMESPACE, SERVICE, Pool, Settings
from rlscaler_dev.demo.stage import Cluster, Service

Say = Callable[[str], None]


@contextmanager
def stage(
    folder: Path,
    *,
    seed: int = 1,
    name: str | None = None,
    gpu_cold_start: tuple[float, float] = GPU_POOL.cold_start_seconds,
    cpu_cold_start: tuple[float, float] = CPU_POOL.cold_start_seconds,
    say: Say = print,
) -> Iterator[dict[str, Any]]:
    """The `environment` part of a configuration for a stage that lives as long as the context.

    folder: for logs and the load's records. seed: of the service times. Cold starts: shortest and longest, seconds.
    Raises DemoError.
    """
    settings = Settings(
        out=folder.absolute(),
        seed=seed,
        gpu=replace(GPU_POOL, cold_start_seconds=gpu_cold_start),
        cpu=replace(CPU_POOL, cold_start_seconds=cpu_cold_start),
        cluster_name=name or f"environment-{os.getpid()}",
    )
    logs = settings.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        journal = Journal(settings.cluster_name)
        stack.callback(journal.discard)
        stack.enter_context(journal)
        journal.clean_up(GRACE_SECONDS, say)
        journal.begin(own_cluster=True)
        stack.callback(journal.end)
        supervisor = Supervisor(logs, journal.mark)
        cluster = stack.enter_context(Cluster.up(settings))
        stack.callback(lambda: end_processes(journal.leftover_processes(), GRACE_SECONDS))
        stack.callback(supervisor.stop_all)
        cluster.create_workload()
        service = Service(settings, cluster.info, supervisor)
        service.start()
        service.wait()
        stack.callback(service.stop)
        say(f"cluster {cluster.info.name}: Kubernetes {cluster.info.server_version} at {cluster.info.server}")
        say(f"emulated service at {service.url}, scraped by {cluster.info.prometheus_url}")
        yield _environment(settings, cluster, service)


def _environment(settings: Settings, cluster: Cluster, service: Service) -> dict[str, Any]:
    if cluster.info.prometheus_url is None:
        raise DemoError(f"cluster {cluster.info.name} runs without Prometheus: start it with one")
    return {
        "kubeconfig": str(cluster.info.kubeconfig),
        "namespace": NAMESPACE,
        "prometheus_url": cluster.info.prometheus_url,
        "service_url": service.url,
        "service": SERVICE,
        "http_route": SERVICE,
        "slo_ms": round(settings.slo_ms),
        "client_timeout_ms": CLIENT_TIMEOUT_MS,
        "scrape_interval_seconds": float(SCRAPE_INTERVAL_SECONDS),
        "gpu": _pool(settings.gpu),
        "cpu": _pool(settings.cpu),
        "results": str(settings.out / "load"),
    }


def _pool(pool: Pool) -> dict[str, Any]:
    return {
        "deployment": pool.deployment,
        "requests_per_second": pool.requests_per_second,
        "cost_per_hour": pool.cost_per_hour,
        "cold_start_seconds": pool.mean_cold_start_seconds,
        "start_replicas": pool.min_replicas,
    }
