"""One process stands for all consumers of a Deployment: as many members of a group as it has ready pods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry

from rlscaler_loadgen.service.annotations import UsageAnnotations
from rlscaler_loadgen.service.app import listen_on, stop_on_signals, until_stopped
from rlscaler_loadgen.service.fleet import connect, pods_of
from rlscaler_loadgen.service.http import metrics_app
from rlscaler_loadgen.service.metrics import PodCollector, Usage
from rlscaler_loadgen.service.replica import CPU, Flavour
from rlscaler_loadgen.service.router import Pod
from rlscaler_loadgen.streams.journal import ConsumerJournal, flushing
from rlscaler_loadgen.streams.member import Job, Member, failure


class Members:
    """The consumers of the pods: a ready pod has a member, and a terminating pod leaves the group."""

    def __init__(self, start: Callable[[str], Member]) -> None:
        """`start` makes the member of a pod of that name."""
        self.pods: dict[str, Pod] = {}
        self.replicas: dict[str, Member] = {}
        self._start = start
        self._leaving: list[Member] = []

    def apply(self, pod: Pod) -> None:
        """A pod appeared or changed."""
        self.pods[pod.name] = pod
        if pod.routable and pod.name not in self.replicas:
            self.replicas[pod.name] = self._start(pod.name)
        elif not pod.routable:
            self._leave(pod.name)

    def remove(self, name: str) -> None:
        """The pod is gone; its consumer leaves the group all the same."""
        self.pods.pop(name, None)
        self._leave(name)

    def close(self) -> None:
        """All leave, and this waits for them."""
        for name in list(self.replicas):
            self._leave(name)
        for member in self._leaving:
            member.wait()

    def _leave(self, name: str) -> None:
        member = self.replicas.pop(name, None)
        if member is not None:
            member.end()
            self._leaving = [*(leaving for leaving in self._leaving if leaving.running), member]


@dataclass(frozen=True, slots=True)
class Consumers:
    """Pods that the process stands for, and the address of its metrics."""

    kubeconfig: str | None
    """None = the process's own cluster, from its service account."""
    namespace: str
    deployment: str
    job: Job
    host: str = "127.0.0.1"
    metrics_port: int = 9090

    @property
    def flavour(self) -> Flavour:
        """Use of a pod by a consumer: all of the requested CPU while it works."""
        return Flavour(CPU.name, self.job.message_seconds, queue=self.job.batch)

    async def run(self, journal: ConsumerJournal, registry: CollectorRegistry, ready: Callable[[str], None]) -> None:
        """Consume until SIGINT or SIGTERM; `ready` is called with the address of the metrics.

        Raises ServiceError when a consumer ends by itself, or a port or the cluster cannot be used.
        """
        stop = stop_on_signals()
        ended, failed = failure()
        members = Members(lambda pod: Member(pod, self.job, self.flavour, journal, failed))
        usage = Usage(members)
        registry.register(PodCollector(members, usage, self.namespace))
        page = web.AppRunner(metrics_app(registry), access_log=None, shutdown_timeout=1.0)
        with closing(members):
            async with await connect(self.kubeconfig) as api:
                works: list[Awaitable[None]] = [
                    pods_of(api, self.namespace, self.deployment, CPU.name, members).run(),
                    usage.run(),
                    flushing(journal),
                    ended,
                    # By its annotation metrics-server sees the use of a pod that kwok plays.
                    UsageAnnotations(api, self.namespace, members, usage).run(),
                ]
                try:
                    ready(f"{await listen_on(page, self.host, self.metrics_port)}/metrics")
                    await until_stopped(stop, *works)
                finally:
                    await page.cleanup()
