"""Everything a contender meets: the cluster, the service's objects, and the process that answers for its pods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.ports import HOST, pick
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.demo import manifests
from rlscaler_dev.demo.contenders import RLSCALER, answers
from rlscaler_dev.demo.exceptions import DemoError
from rlscaler_dev.demo.kube import Json, Kube, KubeError, wait_until
from rlscaler_dev.demo.processes import Child, Supervisor
from rlscaler_dev.demo.settings import NAMESPACE, SERVICE, Settings

GATEWAY_API = "/apis/gateway.networking.k8s.io/v1"
CLEAR_SECONDS = 120.0
SERVICE_SECONDS = 90.0
OWN_NAMESPACES = (NAMESPACE, manifests.OPERATOR_NAMESPACE)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The demo's own control plane, or the user's cluster."""

    info: ClusterInfo
    kube: Kube
    _settings: Settings

    @classmethod
    @contextmanager
    def up(cls, settings: Settings) -> Iterator[Cluster]:
        """As it was before when the context ends. Raises DemoError."""
        with ExitStack() as stack:
            with ConsoleReporter() as progress:
                own = api.started(
                    settings.cluster_name,
                    keep=settings.keep_cluster,
                    kubeconfig=settings.kubeconfig,
                    progress=progress,
                    adapter=settings.contender == "hpa" and settings.kubeconfig is None,
                )
                info = stack.enter_context(own)
            cluster = cls(info, Kube(info.kubeconfig), settings)
            cluster._clear()
            if settings.kubeconfig and not settings.keep_cluster:
                stack.callback(cluster._clear)
            yield cluster

    def create_workload(self) -> None:
        """The Deployments, Services and the route. Raises DemoError where the cluster lacks the Gateway API."""
        try:
            self.kube.get(GATEWAY_API)
        except KubeError as error:
            if error.status != 404:
                raise
            raise DemoError(
                "the cluster has no Gateway API v1: install its CRDs "
                "(https://gateway-api.sigs.k8s.io/guides/#installing-gateway-api), or leave --kubeconfig out"
            ) from error
        self.kube.apply(manifests.workload(self._settings))

    def _clear(self) -> None:
        """Delete what an earlier demo created. Raises DemoError for a namespace that is not a demo's."""
        ours = [found for name in OWN_NAMESPACES if (found := self._own_namespace(name))]
        if not ours:
            return
        for thing in [*ours, manifests.gateway_class()]:
            self.kube.delete(thing)
        names = " and ".join(thing["metadata"]["name"] for thing in ours)
        wait_until(
            lambda: not any(self.kube.exists(thing) for thing in ours), f"deletion of namespace {names}", CLEAR_SECONDS
        )

    def _own_namespace(self, name: str) -> Json | None:
        wanted = manifests.namespace(name)
        found = self.kube.exists(wanted)
        if found is None:
            return None
        if manifests.PART_OF.items() <= (found["metadata"].get("labels") or {}).items():
            return wanted
        raise DemoError(
            f"the cluster has a namespace {name} already, which is not a demo's: delete it or choose another cluster"
        )


class Service:
    """The emulated inference service in fleet mode, scraped by Prometheus."""

    def __init__(self, settings: Settings, cluster: ClusterInfo, supervisor: Supervisor) -> None:
        self._settings, self._cluster, self._supervisor = settings, cluster, supervisor
        self._port, self._metrics_port = pick(2)
        self._target: Path | None = None
        self._child: Child

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        """Start it; it is usable after `wait`."""
        self._child = self._supervisor.start("service", self._command())

    def wait(self) -> None:
        self._supervisor.wait_until(self._child, lambda: answers(f"{self.url}/v2/health/live"), SERVICE_SECONDS)
        self._target = self._cluster.add_scrape_target("rlscaler-demo", f"{HOST}:{self._metrics_port}")

    def stop(self) -> None:
        if self._target:
            self._target.unlink(missing_ok=True)
        self._supervisor.stop("service")

    def _command(self) -> list[str]:
        settings = self._settings
        return [
            *(*RLSCALER, "service", "fleet", "--kubeconfig", str(self._cluster.kubeconfig), "--namespace", NAMESPACE),
            *("--name", SERVICE, "--http-route", SERVICE),
            *("--gpu-deployment", settings.gpu.deployment, "--cpu-deployment", settings.cpu.deployment),
            *("--gpu-ms", f"{1000 / settings.gpu.requests_per_second:g}"),
            *("--cpu-ms", f"{1000 / settings.cpu.requests_per_second:g}"),
            *("--port", str(self._port), "--metrics-port", str(self._metrics_port)),
            *("--seed", str(settings.seed), "--slo-ms", f"{settings.slo_ms:g}"),
        ]
