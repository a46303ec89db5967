"""HTTP: `/metrics`, `/healthz` and `/readyz`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from aiohttp import web

from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.settings import Settings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(settings: Settings, metrics: Metrics, ready: Callable[[], bool], stack: AsyncExitStack) -> None:
    """Start the endpoints that have a port; `stack` stops them.

    Raises OperatorError where a port is taken.
    """

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), content_type="text/plain", charset="utf-8")

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def is_ready(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if ready() else web.Response(status=503, text="not acting\n")

    health: dict[str, Handler] = {"/healthz": alive, "/readyz": is_ready}
    await _listen(settings.metrics_host, settings.metrics_port, {"/metrics": show_metrics}, stack)
    await _listen(settings.health_host, settings.health_port, health, stack)


async def _listen(host: str, port: int | None, routes: dict[str, Handler], stack: AsyncExitStack) -> None:
    if port is None:
        return
    application = web.Application()
    application.add_routes([web.get(path, handler) for path, handler in routes.items()])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise OperatorError(f"cannot listen on {host}:{port}: {error}; choose another port") from error
