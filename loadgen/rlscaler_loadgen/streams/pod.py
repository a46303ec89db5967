"""One process is the consumer of one pod: for nodes that run containers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry

from rlscaler_loadgen.service.app import listen_on, stop_on_signals, until_stopped
from rlscaler_loadgen.service.http import metrics_app
from rlscaler_loadgen.service.replica import CPU, Flavour
from rlscaler_loadgen.streams.journal import ConsumerJournal, flushing
from rlscaler_loadgen.streams.member import Job, Member, failure


@dataclass(frozen=True, slots=True)
class ConsumerPod:
    """Pod that the process is, and the address of its metrics."""

    pod: str
    job: Job
    host: str = "127.0.0.1"
    metrics_port: int = 9090

    async def run(self, journal: ConsumerJournal, registry: CollectorRegistry, ready: Callable[[str], None]) -> None:
        """Consume until SIGINT or SIGTERM, then leave the group; `ready` is called with the address of the metrics.

        Raises ServiceError when the consumer ends by itself, or the port cannot be used.
        """
        stop = stop_on_signals()
        ended, failed = failure()
        page = web.AppRunner(metrics_app(registry), access_log=None, shutdown_timeout=1.0)
        flavour = Flavour(CPU.name, self.job.message_seconds, queue=self.job.batch)
        member = Member(self.pod, self.job, flavour, journal, failed)
        try:
            ready(f"{await listen_on(page, self.host, self.metrics_port)}/metrics")
            await until_stopped(stop, flushing(journal), ended)
        finally:
            member.end()
            member.wait()
            await page.cleanup()
