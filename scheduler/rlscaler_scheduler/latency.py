"""Measures from one node how far its users are, and writes that to the node, where policies read it.

The value is the largest of the medians to all targets, so that a hard limit holds for the users of each. Where a target
does not answer nothing is written: the last value expires by itself, as it does when this program is gone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from aiohttp import web
from kubernetes.aio import client
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from rlscaler_loadgen.service.watch import TRANSIENT, read_json
from rlscaler_scheduler.connections import api_configuration
from rlscaler_scheduler.objects import LATENCY, LATENCY_UNTIL
from rlscaler_scheduler.probes import measure
from rlscaler_scheduler.settings import LatencySettings, SchedulerError

log = logging.getLogger("rlscaler.latency")

MOVED = 0.1
"""Share of the written value by which a new one has to differ to be written before half of the time is over."""
MOVED_MS = 0.5
"""The same in milliseconds: less is noise, however near the users are."""

WRITE_SECONDS = 10.0
"""Longest wait for the API server."""


class Measures:
    """Measurements, for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.milliseconds = Gauge(
            "rlscaler_scheduler_latency_milliseconds",
            "Median round trip to a target in the last round; NaN where it did not answer.",
            ("target",),
            registry=self.registry,
        )
        self.unanswered = Counter(
            "rlscaler_scheduler_latency_unanswered_total",
            "Rounds in which a target answered less than half of the samples.",
            ("target",),
            registry=self.registry,
        )
        self.written = Gauge(
            "rlscaler_scheduler_latency_written_timestamp_seconds",
            "When the node's annotation was last written, in seconds since 1970; 0 = never.",
            registry=self.registry,
        )
        self.failed = Counter(
            "rlscaler_scheduler_latency_write_errors_total",
            "Writes that the API server refused.",
            registry=self.registry,
        )

    def note(self, target: str, milliseconds: float) -> None:
        """Take in the median of a round."""
        self.milliseconds.labels(target).set(milliseconds)
        self.unanswered.labels(target).inc(math.isnan(milliseconds))


class Meter:
    """Measures again and again, and writes changed values."""

    def __init__(
        self, settings: LatencySettings, core: client.CoreV1Api, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` gives seconds since 1970."""
        self._settings, self._core, self._clock = settings, core, clock
        self.measures = Measures()
        self._written = (math.nan, -math.inf)
        """Milliseconds and time of the last write."""
        self.rounds = 0

    async def run(self) -> None:
        """Measure until cancelled; a round that takes longer than the interval is followed by the next at once."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self.round()
            await asyncio.sleep(max(0.0, began + self._settings.interval_seconds - loop.time()))

    async def round(self) -> None:
        """Measure every target once, and write the largest value where that is due."""
        settings = self._settings
        round_trips = await asyncio.gather(
            *(measure(target, settings.samples, settings.timeout_seconds) for target in settings.targets)
        )
        for target, milliseconds in zip(settings.targets, round_trips, strict=True):
            self.measures.note(target.name, milliseconds)
        silent = [place.name for place, ms in zip(settings.targets, round_trips, strict=True) if math.isnan(ms)]
        if silent:
            log.warning("no answer from %s: the last value expires", ", ".join(silent))
        elif self._due(max(round_trips)):
            # A mean would let a near target hide a far one, which a hard limit is to prevent.
            await self._write(max(round_trips))
        self.rounds += 1

    def _due(self, milliseconds: float) -> bool:
        before, at = self._written
        moved = abs(milliseconds - before) > max(MOVED_MS, MOVED * before)
        return math.isnan(before) or moved or self._clock() - at >= self._settings.expire_seconds / 2

    async def _write(self, milliseconds: float) -> None:
        now = self._clock()
        until = datetime.fromtimestamp(now + self._settings.expire_seconds, UTC)
        annotations = {LATENCY: f"{milliseconds:.3f}", LATENCY_UNTIL: until.strftime("%Y-%m-%dT%H:%M:%SZ")}
        try:
            response = await self._core.patch_node_without_preload_content(
                self._settings.node,
                {"metadata": {"annotations": annotations}},
                _content_type="application/merge-patch+json",
                _request_timeout=WRITE_SECONDS,
            )
            async with response:
                await read_json(response, f"node {self._settings.node} was not written")
        except TRANSIENT as error:
            self.measures.failed.inc()
            log.warning("%s", error)
            return
        self._written = milliseconds, now
        self.measures.written.set(now)

    def application(self) -> web.Application:
        """Metrics and probes."""
        app = web.Application()
        app.add_routes([web.get("/metrics", self._metrics), web.get("/healthz", self._alive)])
        app.add_routes([web.get("/readyz", self._ready)])
        return app

    async def _metrics(self, request: web.Request) -> web.Response:
        del request
        body = generate_latest(self.measures.registry)
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    async def _alive(self, request: web.Request) -> web.Response:
        """The event loop turns."""
        del request
        return web.Response(text="ok")

    async def _ready(self, request: web.Request) -> web.Response:
        """A round has ended."""
        del request
        return web.Response(text="ok" if self.rounds else "nothing measured yet", status=200 if self.rounds else 503)


async def run(settings: LatencySettings) -> None:
    """Measure and serve until cancelled. Raises SchedulerError where it cannot begin."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(client.ApiClient(await api_configuration(settings.kubeconfig)))
        meter = Meter(settings, client.CoreV1Api(api))
        runner = web.AppRunner(meter.application(), access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, settings.host, settings.port).start()
        except OSError as error:
            raise SchedulerError(f"{settings.host}:{settings.port}: {error.strerror}; choose another --port") from error
        log.info("listening on %s:%d", settings.host, runner.addresses[0][1])
        await meter.run()
