"""The operator's kopf handlers: declarations only.

Run it with `rlscaler operator run`. Only watch handlers are registered, so that kopf never writes to the objects:
status, finalizer and lease are the engine's.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from typing import Any, cast

import kopf

from rlscaler_operator.cluster.kube import connection
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.run.context import Context, running
from rlscaler_operator.run.watched import BUDGETS, Watched
from rlscaler_operator.run.watches import NoDiffBase, NoProgress
from rlscaler_operator.settings import Settings

SERVER_TIMEOUT_SECONDS = 270
CLIENT_TIMEOUT_SECONDS = 300
"""A watch ends and is renewed within this time, even when a proxy has silently dropped it."""

CHUNK = 200
"""Objects in a page of a list: kopf holds one or two pages as parsed JSON, in which a pod takes some 60 KiB."""

IDLE_SECONDS = 0.2
"""Time for which kopf keeps the newest state of an object after its handler."""

BACKOFF_SECONDS = (0.5, 1.0, 2.0, *(4.0,) * 14)
"""Pauses between attempts at a watch. After a minute of them the operator ends, and its Deployment starts it again."""

LOGIN_SECONDS = 2.0
"""Pause before credentials that were refused are read anew."""


@kopf.on.login()
async def login(memo: Any, **_: Any) -> kopf.ConnectionInfo:
    """Return credentials for kopf: at first, and again whenever the API server refuses them."""
    context = _context(memo)
    context.logins += 1
    if context.logins > 1:
        await asyncio.sleep(LOGIN_SECONDS)
        await context.kube.renew()
    return await connection(context.kube.configuration, context.logins)


@kopf.on.startup()
async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = CHUNK
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = BACKOFF_SECONDS
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    settings.process.ultimate_exiting_timeout = 30


def watch(kinds: Iterable[Watched]) -> None:
    """Declare a handler of each kind; kopf watches the kinds whose APIs are installed."""
    for kind in kinds:
        resource = kind.resource

        @kopf.on.event(resource.group, resource.version, resource.plural, id=str(resource), param=kind)
        async def seen(body: kopf.Body, type: str | None, memo: Any, param: Any = None, **_: Any) -> None:
            await _context(memo).take_in(param, body, type == "DELETED")


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises OperatorError where it cannot start or go on."""
    async with running(settings) as context:
        watch(kind for kind in context.kinds.values() if settings.budgets or kind.resource != BUDGETS)
        # kopf takes the signals over; until then they must not cut a start short that already holds the lease.
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, context.stop.set)
        failed = asyncio.create_task(context.stop.wait(), name="stop")
        operator = kopf.operator(
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            insights=cast(Any, context.apis.insights),
            memo=context,
            # kopf would name itself by the user, and a pod may run as a number that no user has.
            identity=cast(Any, settings.identity),
        )
        handlers = asyncio.create_task(operator, name="kopf")
        context.synced = True
        await asyncio.wait({failed, handlers}, return_when=asyncio.FIRST_COMPLETED)
        context.synced = False
        failed.cancel()
        if not handlers.done():
            handlers.cancel()
        try:
            await handlers
        except asyncio.CancelledError:
            pass
        except Exception as error:
            raise OperatorError(f"watching ended: {error}") from error


def _context(memo: Any) -> Context:
    return memo  # type: ignore[no-any-return]
