"""Everything a contender meets: the cluster, the service's objects, and the process that answers for its pods."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import Json, KubeClient, path_of
from rlscaler_dev.cluster.network import HOST, free_ports
from rlscaler_dev.cluster.processes import MARKER
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.cluster.prometheus import SCRAPE_INTERVAL_SECONDS
from rlscaler_dev.cluster.readiness import answers, wait_until
from rlscaler_dev.demo import manifests
from rlscaler_dev.demo.leftovers import alone
from rlscaler_dev.demo.operator import RLSCALER
from rlscaler_dev.demo.processes import Child, Supervisor
from rlscaler_dev.demo.settings import CLIENT_TIMEOUT_MS, COPIES, CPU_POOL, GPU_POOL, NAMESPACE, SERVICE, Pool, Settings
from rlscaler_dev.exceptions import DemoError

GATEWAY_API = "/apis/gateway.networking.k8s.io/v1"
CLEAR_SECONDS = 120.0
SERVICE_SECONDS = 90.0
OWN_NAMESPACES = (NAMESPACE, *COPIES.values(), manifests.OPERATOR_NAMESPACE)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The demo's own control plane, or the user's cluster."""

    info: ClusterInfo
    kube: KubeClient

    @classmethod
    @contextmanager
    def up(cls, settings: Settings) -> Iterator[Cluster]:
        """A cluster that is as it was before when the context ends. Raises DemoError."""
        with ExitStack() as stack:
            with ConsoleReporter() as progress:
                own = api.started(
                    settings.cluster_name,
                    keep=settings.keep_cluster,
                    kubeconfig=settings.kubeconfig,
                    progress=progress,
                    gpu_nodes=settings.gpu_nodes,
                    adapter=settings.gpu_autoscalers and settings.kubeconfig is None,
                    kafka=settings.kafka,
                )
                info = stack.enter_context(own)
            kube = stack.enter_context(KubeClient.from_kubeconfig(info.kubeconfig))
            cluster = cls(info, kube)
            cluster._clear()
            if settings.kubeconfig and not settings.keep_cluster:
                stack.callback(cluster._clear)
            yield cluster

    def create_workload(self, settings: Settings) -> None:
        """Create the objects of one copy of the service. Raises DemoError where the cluster lacks the Gateway API."""
        if self.kube.find(GATEWAY_API) is None:
            raise DemoError(
                "the cluster has no Gateway API v1: install its CRDs "
                "(https://gateway-api.sigs.k8s.io/guides/#installing-gateway-api), or leave --kubeconfig out"
            )
        for manifest in manifests.workload(settings):
            self.kube.apply(manifest)

    def _clear(self) -> None:
        """Delete the objects of an earlier demo. Raises DemoError for a namespace that is not a demo's."""
        ours = [own for name in OWN_NAMESPACES if (own := self._own_namespace(name))]
        if not ours:
            return
        for thing in [*ours, manifests.gateway_class()]:
            self.kube.delete(path_of(thing))
        names = " and ".join(thing["metadata"]["name"] for thing in ours)
        paths = [path_of(thing) for thing in ours]
        wait_until(lambda: not any(map(self.kube.find, paths)), f"deletion of namespace {names}", CLEAR_SECONDS)

    def _own_namespace(self, name: str) -> Json | None:
        wanted = manifests.namespace(name)
        present = self.kube.find(path_of(wanted))
        if present is None:
            return None
        if manifests.PART_OF.items() <= (present["metadata"].get("labels") or {}).items():
            return wanted
        raise DemoError(
            f"the cluster has a namespace {name} already, which is not a demo's: delete it or choose another cluster"
        )


@contextmanager
def session(
    settings: Settings, logs: Path, prepare: Callable[[], None], say: Callable[[str], None]
) -> Iterator[tuple[Cluster, Supervisor]]:
    """A cluster of its own and a supervisor of children, which all end with the context, also after an error.

    Remains of an earlier session of this name that was killed are removed first; then `prepare` makes room for
    results, with a folder `logs`. Raises DemoError.
    """
    with ExitStack() as stack:
        journal = stack.enter_context(alone(settings.cluster_name, say))
        prepare()
        supervisor = Supervisor(logs, {MARKER: str(journal)})
        cluster = stack.enter_context(Cluster.up(settings))
        stack.callback(supervisor.stop_all)
        yield cluster, supervisor


class Service:
    """An emulated inference service in fleet mode, scraped by Prometheus."""

    def __init__(
        self, cluster: ClusterInfo, supervisor: Supervisor, options: Sequence[str], name: str = "service"
    ) -> None:
        """`options` are those of `rlscaler service fleet` besides addresses; `name` is that of its process."""
        self._cluster, self._supervisor, self._options, self._name = cluster, supervisor, options, name
        self._port, self._metrics_port = free_ports(2)
        self._target: Path | None = None
        self._child: Child

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Start it; it is usable after `wait`."""
        self._child = self._supervisor.start(self._name, self._command())

    def wait(self) -> None:
        self._supervisor.wait_until(self._child, lambda: answers(f"{self.url}/v2/health/live"), SERVICE_SECONDS)
        self._target = self._cluster.add_scrape_target(f"rlscaler-demo-{self._name}", f"{HOST}:{self._metrics_port}")

    def stop(self) -> None:
        if self._target:
            self._target.unlink(missing_ok=True)
        self._supervisor.stop(self._name)

    def _command(self) -> list[str]:
        return [
            *(*RLSCALER, "service", "fleet", "--kubeconfig", str(self._cluster.kubeconfig), *self._options),
            *("--port", str(self._port), "--metrics-port", str(self._metrics_port)),
        ]


def fleet_options(name: str, namespace: str, pools: Sequence[Pool], seed: int, slo_ms: float) -> list[str]:
    """Options of `rlscaler service fleet` for a service of this name and these pools."""
    of_pools = [
        option
        for pool in pools
        for option in (
            *(f"--{pool.name}-deployment", pool.deployment),
            *(f"--{pool.name}-ms", f"{1000 / pool.requests_per_second:g}"),
        )
    ]
    return ["--name", name, "--namespace", namespace, *of_pools, "--seed", str(seed), "--slo-ms", f"{slo_ms:g}"]


def demo_service(settings: Settings, cluster: ClusterInfo, supervisor: Supervisor, name: str = "service") -> Service:
    """The service of the demo: two pools and the HTTPRoute between them; `name` is that of its process."""
    options = fleet_options(SERVICE, settings.namespace, settings.pools, settings.seed, settings.slo_ms)
    if settings.capacity_error:
        slowdown = 1 / (1 + settings.capacity_error / 100)
        options += ["--slowdown", f"{slowdown:.4f}", "--slowdown-after", f"{settings.capacity_error_after:g}"]
    return Service(cluster, supervisor, [*options, "--http-route", SERVICE], name)


@contextmanager
def local_testbed(
    folder: Path,
    *,
    seed: int = 1,
    name: str | None = None,
    gpu_cold_start: tuple[float, float] = GPU_POOL.cold_start_seconds,
    cpu_cold_start: tuple[float, float] = CPU_POOL.cold_start_seconds,
    say: Callable[[str], None] = print,
) -> Iterator[dict[str, Any]]:
    """A cluster with the service for a live environment, where the user names none: its `environment` configuration.

    It lives as long as the context. Contender and load are the environment's own. The entry point group
    `rlscaler.testbeds` names this function, since the product does not know the development tools.

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
    with ExitStack() as stack:
        prepare = partial(logs.mkdir, parents=True, exist_ok=True)
        cluster, supervisor = stack.enter_context(session(settings, logs, prepare, say))
        cluster.create_workload(settings)
        service = demo_service(settings, cluster.info, supervisor)
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
