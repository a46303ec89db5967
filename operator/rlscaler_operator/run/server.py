"""HTTP: `/metrics`, `/healthz` and `/readyz` on one port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from aiohttp import web

from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.run.health import Health
from rlscaler_operator.settings import Settings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(settings: Settings, metrics: Metrics, health: Health, stack: AsyncExitStack) -> None:
    """Start the endpoints where they have a port; `stack` stops them.

    Raises OperatorError where the port is taken.
    """

    async def show_metrics(request: web.Request) -> web.Response:
        # As Prometheus's own exporters do, `?name[]=` gives some series only. Of a thousand policies there are 90,000.
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
    """200, or 503 and why."""

    async def answer(_: web.Request) -> web.Response:
        why = trouble()
        return web.Response(status=503 if why else 200, text=f"{why or 'ok'}\n")

    return answer
