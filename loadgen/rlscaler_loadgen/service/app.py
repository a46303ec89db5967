"""Runs the service: fleet mode (one process for all pods of two Deployments) or pod mode (one replica)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from aiohttp import web
from prometheus_client import CollectorRegistry

from rlscaler_loadgen.errors import ServiceError
from rlscaler_loadgen.service.http import Api, metrics_app
from rlscaler_loadgen.service.metrics import PodCollector, ServiceMetrics, Usage
from rlscaler_loadgen.service.replica import POOLS, Flavour
from rlscaler_loadgen.service.router import Pod, Router

DRAIN_SECONDS = 3.0
"""Seconds that requests in flight may take after SIGTERM."""


@dataclass(frozen=True)
class Listen:
    """Where the service and its metrics are reached; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8080
    metrics_port: int = 9090


@dataclass
class Service:
    """A router behind HTTP, with its metrics."""

    router: Router
    namespace: str
    name: str
    slo_seconds: float = 1.0
    pools: tuple[str, ...] = POOLS
    models: tuple[str, ...] = ()
    resource_metrics: bool = True

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = ServiceMetrics(self.registry, self.namespace, self.name, self.slo_seconds, self.pools)
        self.usage = Usage(self.router)
        if self.resource_metrics:
            self.registry.register(PodCollector(self.router, self.usage, self.namespace))
        self.api = Api(self.router, self.metrics, self.name, self.models)

    @contextlib.asynccontextmanager
    async def serving(self, listen: Listen) -> AsyncIterator[tuple[str, str]]:
        """Serve while the context lasts; yields the addresses of the API and of the metrics page.

        Raises ServiceError where a port is taken.
        """
        sampling = asyncio.create_task(self.usage.run())
        api = web.AppRunner(self.api.app(), access_log=None, handler_cancellation=True, shutdown_timeout=DRAIN_SECONDS)
        metrics = web.AppRunner(metrics_app(self.registry), access_log=None, shutdown_timeout=1.0)
        try:
            urls = (
                await listen_on(api, listen.host, listen.port),
                await listen_on(metrics, listen.host, listen.metrics_port),
            )
            yield urls[0], f"{urls[1]}/metrics"
        finally:
            sampling.cancel()
            await api.cleanup()
            await metrics.cleanup()


async def listen_on(runner: web.AppRunner, host: str, port: int) -> str:
    """Serve on an address, port 0 takes a free one; return its URL. Raises ServiceError where the port is taken."""
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=1024).start()
    except OSError as error:
        raise ServiceError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from error
    return f"http://{host}:{runner.addresses[0][1]}"


async def run_until_signal(
    service: Service,
    listen: Listen,
    ready: Callable[[str, str], None],
    work: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, with `work` beside it; `ready` is called with the two addresses."""
    stop = stop_on_signals()
    async with service.serving(listen) as urls:
        ready(*urls)
        await until_stopped(stop, *([work()] if work else []))


def stop_on_signals() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def until_stopped(stop: asyncio.Event, *works: Awaitable[None]) -> None:
    """Run `works` until `stop` is set, or one of them ends; an exception of theirs is raised here."""
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait()), *map(asyncio.ensure_future, works)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def pod_service(
    flavour: Flavour,
    namespace: str,
    pod: str,
    name: str,
    seed: int,
    cold_start: tuple[float, float] = (0.0, 0.0),
    variation: float = 0.5,
    **options: object,
) -> tuple[Service, Callable[[], Awaitable[None]]]:
    """One replica, and the work that makes it ready after its cold start.

    cold_start: seconds, drawn uniformly between the two. Pods of one seed draw apart: their names go into it.
    """
    seeds = np.random.default_rng([seed, zlib.crc32(pod.encode())])
    router = Router({flavour.name: flavour}, int(seeds.integers(2**31)), variation, weights=one_pool(flavour.name))
    this = Pod(
        pod,
        flavour.name,
        ready=False,
        cpu_request=flavour.cpu_request,
        memory_request=flavour.memory_request,
        gpus=int(flavour.name == "gpu"),
    )
    delay = float(seeds.uniform(*cold_start))

    async def become_ready() -> None:
        router.apply(this)
        await asyncio.sleep(delay)
        router.apply(replace(this, ready=True))
        await asyncio.Event().wait()

    return Service(router, namespace, name, pools=(flavour.name,), **options), become_ready  # type: ignore[arg-type]


def one_pool(pool: str) -> dict[str, float]:
    """Return the weights of a service that has no other pool."""
    return {name: float(name == pool) for name in POOLS}
