"""Probes of the process: the HTTP server of `/healthz` and `/readyz`, and of `/metrics` beside them.

Alive: the engine's loop turns. The probe is answered by the same event loop, so a stuck event loop does not answer; an
engine's loop that waits for ever is recognized by the time of its last turn.

Ready: all watched objects were read and are followed, the Lease can be read and made, and the bundled network is
loaded. It does not matter which process holds the Lease: a standby is as ready to act as the holder.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from aiohttp import web

from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.settings import Settings

STUCK_SECONDS = 30.0
"""Silence after which the engine's loop counts as stuck. It turns once a second; slow machines pause far shorter."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Health:
    """Liveness and readiness of one operator."""

    def __init__(self, parts: Mapping[str, Callable[[], str]], clock: Callable[[], float] = time.monotonic) -> None:
        """`parts` return why they are not ready; an empty text means that they are."""
        self._parts, self._clock = parts, clock
        self._turned_at: float | None = None

    def turn(self) -> None:
        """Note that the engine's loop has come round."""
        self._turned_at = self._clock()

    def not_alive(self) -> str:
        """Return why the process should be restarted; empty = it is alive. A loop that has not begun is not stuck."""
        if self._turned_at is None:
            return ""
        silent = self._clock() - self._turned_at
        return f"the engine's loop has not turned for {silent:.0f} s" if silent > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        """Return why the process is not ready; empty = it is."""
        return "; ".join(f"{part}: {why}" for part, look in self._parts.items() if (why := look()))


async def serve(settings: Settings, metrics: Metrics, health: Health, stack: AsyncExitStack) -> None:
    """Start the HTTP server where `settings` name a port; `stack` stops it.

    Raises OperatorError where the port is taken.
    """

    async def show_metrics(request: web.Request) -> web.Response:
        # As Prometheus's own exporters do, `?name[]=` gives some series only. A thousand policies have 90,000 series.
        text = await asyncio.to_thread(metrics.render, request.query.getall("name[]", []))
        return web.Response(body=text, content_type="text/plain", charset="utf-8")

    host, port = settings.metrics_host, settings.metrics_port
    if port is None:
        return
    application = web.Application()
    probes = {"/healthz": _probe(health.not_alive), "/readyz": _probe(health.not_ready)}
    application.add_routes([web.get(path, handler) for path, handler in probes.items()])
    application.add_routes([web.get("/metrics", show_metrics)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise OperatorError(f"cannot listen on {host}:{port}: {error}; choose another port") from error


def _probe(trouble: Callable[[], str]) -> Handler:
    """Return a handler that answers 200, or 503 with the text of `trouble`."""

    async def answer(_: web.Request) -> web.Response:
        why = trouble()
        return web.Response(status=503 if why else 200, text=f"{why or 'ok'}\n")

    return answer
