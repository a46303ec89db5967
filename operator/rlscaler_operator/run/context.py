"""Everything that lives as long as the operator: started before the handlers, stopped after them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Protocol, Self

import kopf

from rlscaler_core.api import GROUP, PLURAL, VERSION
from rlscaler_operator.cluster.kube import Kube, listed, load_configuration
from rlscaler_operator.cluster.optional_apis import HTTP_ROUTES, OPTIONAL, SCALED_OBJECTS, OptionalApis
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.loop.engine import Engine
from rlscaler_operator.run.farewell import farewell
from rlscaler_operator.run.garbage_collection import Collecting
from rlscaler_operator.run.health import Health
from rlscaler_operator.run.server import serve
from rlscaler_operator.run.sweep import Sweep
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler")

STOP_SECONDS = 3.0
"""Time for the writes under way to end; the lease is handed back after it."""

Body = Mapping[str, Any]


class Part(Protocol):
    """What runs as long as the operator."""

    async def run(self) -> None: ...


class Context:
    """Cluster, leases and engine of one process; the handlers call its `put_*`."""

    def __init__(self, settings: Settings, kube: Kube) -> None:
        self.settings, self.kube = settings, kube
        self.shards = Shards(kube, settings)
        self.synced = False
        """Has everything that is watched been read, and does kopf run?"""
        self.health = Health({"watches": self._watches, "policy": lambda: self.engine.bundled_trouble()})
        self.engine = Engine(settings, kube, self.shards, self.health.turn)
        self.apis = OptionalApis(kube, self.read_optional, self.drop_optional)
        self.stop = asyncio.Event()
        """Set where a part of the operator has failed; everything ends then."""
        self.failure: BaseException | None = None
        self.logins = 0
        """How often kopf asked for credentials."""

    def __copy__(self) -> Self:
        """kopf copies its memo for every object; there is one context for all."""
        return self

    def put_policy(self, body: Body, deleted: bool) -> None:
        if deleted:
            self.engine.forget(_key(body), body["metadata"].get("uid", ""))
            self.engine.wake()
        else:
            self.engine.take_in(body)

    def put_deployment(self, body: Body, deleted: bool) -> None:
        if deleted:
            self.engine.cache.deployments.pop(_key(body), None)
            self.engine.wake(_key(body))
        elif self.engine.cache.put_deployment(body):
            self.engine.wake(_key(body))

    def put_pod(self, body: Body, deleted: bool) -> None:
        if deleted:
            self.engine.cache.drop_pod(body)
        else:
            self.engine.cache.put_pod(body)

    def put_autoscaler(self, kind: str, body: Body, deleted: bool) -> None:
        if deleted:
            self.engine.cache.drop_autoscaler(kind, _key(body))
        else:
            self.engine.cache.put_autoscaler(kind, body)

    def put_route(self, body: Body, deleted: bool) -> None:
        if deleted:
            self.engine.cache.routes.pop(_key(body), None)
        else:
            self.engine.cache.put_route(body)

    async def prime(self) -> None:
        """Read everything once: nothing is written before it is known who else scales the targets.

        Raises OperatorError.
        """
        namespaces = self.settings.namespaces
        async for body in listed(self.kube, namespaces, "apps/v1", "deployments"):
            self.put_deployment(body, deleted=False)
        async for body in listed(self.kube, namespaces, "autoscaling/v2", "horizontalpodautoscalers"):
            self.put_autoscaler("HorizontalPodAutoscaler", body, deleted=False)
        for resource in OPTIONAL:
            await self.read_optional(resource)
        async for body in listed(self.kube, namespaces, f"{GROUP}/{VERSION}", PLURAL):
            self.put_policy(body, deleted=False)

    async def read_optional(self, resource: kopf.Resource) -> None:
        """Read all objects of an API that may not be installed. Raises OperatorError."""
        version = f"{resource.group}/{resource.version}"
        async for body in listed(self.kube, self.settings.namespaces, version, resource.plural, optional=True):
            if resource == SCALED_OBJECTS:
                self.put_autoscaler("ScaledObject", body, deleted=False)
            else:
                self.put_route(body, deleted=False)

    def drop_optional(self, resource: kopf.Resource) -> None:
        """Forget all objects of an API that was removed."""
        if resource == HTTP_ROUTES:
            self.engine.cache.routes.clear()
        else:
            self.engine.cache.drop_autoscalers("ScaledObject")
        self.engine.wake()

    def _watches(self) -> str:
        if self.failure is not None:
            return f"the operator is ending: {self.failure}"
        if not self.synced:
            return "objects are being read for the first time"
        # kopf sets it when its own credentials were taken and it has found what to watch.
        return "" if self.apis.insights.ready_resources.is_set() else "no watch has begun yet"

    def watch(self, task: asyncio.Task[None]) -> None:
        """End everything where `task` fails."""

        def done(finished: asyncio.Task[None]) -> None:
            if not finished.cancelled() and (error := finished.exception()) is not None:
                self.failure = error
                log.error("%s failed", finished.get_name(), exc_info=error)
                self.stop.set()

        task.add_done_callback(done)


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Context]:
    """A context whose lease and engine run. Raises OperatorError where it cannot start, or where a part failed."""
    async with contextlib.AsyncExitStack() as stack:
        kube = Kube(await load_configuration(settings), reload=partial(load_configuration, settings))
        stack.push_async_callback(kube.close)
        stack.push_async_callback(farewell, kube, settings)
        context = Context(settings, kube)
        await serve(settings, context.engine.metrics, context.health, stack)
        await context.prime()
        collecting = Collecting()
        collecting.begin()
        stack.callback(collecting.end)
        if settings.external_scaler_port is not None:
            await _serve_keda(settings, context.engine, stack)
        engine = context.engine
        parts: dict[str, Part] = {
            "config maps": engine.config_maps,
            "secrets": engine.secrets,
            "apis": context.apis,
            "sweep": Sweep(kube, engine.registry, settings.namespaces, engine.forget),
            "lease": context.shards,
            "engine": engine,
        }
        for name, part in parts.items():
            task = asyncio.create_task(part.run(), name=name)
            context.watch(task)
            stack.push_async_callback(_stop, task)
        yield context
    if context.failure is not None:
        raise OperatorError(f"a part of the operator failed: {context.failure!r}") from context.failure


async def _serve_keda(settings: Settings, engine: Engine, stack: contextlib.AsyncExitStack) -> None:
    """Raises OperatorError."""
    try:
        from rlscaler_operator.keda.service import serve as serve_keda
    except ModuleNotFoundError as error:
        text = f"--external-scaler-port needs the package {error.name!r}: pip install 'rlscaler[keda]'"
        raise OperatorError(text) from error
    await serve_keda(settings, engine.registry, stack)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=STOP_SECONDS)


def _key(body: Body) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]
