"""Objects that live as long as the operator: started before the handlers, stopped after them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, Self

import kopf

from rlscaler_core.api import GROUP, PLURAL, VERSION
from rlscaler_operator.cluster.bodies import Key, key_of
from rlscaler_operator.cluster.cache import read_target
from rlscaler_operator.cluster.kinds import TargetKind, is_other
from rlscaler_operator.cluster.kube import Kube, listed, load_configuration
from rlscaler_operator.exceptions import KubeError, OperatorError
from rlscaler_operator.loop.engine import Engine
from rlscaler_operator.loop.wiring import build_engine
from rlscaler_operator.run.gaps import Gaps, watched
from rlscaler_operator.run.health import Health, serve
from rlscaler_operator.run.release import release_if_namespace_ends
from rlscaler_operator.run.watches import (
    BUDGETS,
    HTTP_ROUTES,
    OPTIONAL,
    SCALED_OBJECTS,
    VERTICAL_AUTOSCALERS,
    MissedDeletions,
    OptionalApis,
)
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler")

STOP_SECONDS = 3.0
"""Time for the writes under way to end; the lease is handed back after it."""

FULL_COLLECTION_SECONDS = 3600.0
"""Interval at which a full garbage collection looks at frozen objects as well."""

YOUNG_OBJECTS = 5_000
"""Number of new objects that starts a collection of the youngest generation; Python's default is 700. Nearly all
objects of a quiet tick are freed by their reference counts before that."""

Body = Mapping[str, Any]

P = ParamSpec("P")

Put = Callable[Concatenate["Context", Body, P], None]
"""Takes in an object."""


class Part(Protocol):
    """Part of the operator whose `run` goes on until it is cancelled."""

    async def run(self) -> None: ...


KINDS = ["Target"]
"""Kinds of objects that may be unreadable."""


def _fenced(kind: str) -> Callable[[Put[P]], Put[P]]:
    """Return a decorator by which an object that cannot be taken in ends neither the operator nor its start."""

    KINDS.append(kind)

    def decorate(put: Put[P]) -> Put[P]:
        def fenced(context: Context, body: Body, /, *args: P.args, **kwargs: P.kwargs) -> None:
            try:
                put(context, body, *args, **kwargs)
            except Exception:
                context.unreadable(kind, "/".join(key_of(body)))

        return fenced

    return decorate


class Context:
    """Cluster, leases and engine of one process; the handlers call its `put_*`."""

    def __init__(self, settings: Settings, kube: Kube) -> None:
        self.settings, self.kube = settings, kube
        self.synced = False
        """True while kopf runs, after all watched objects have been read."""
        parts: dict[str, Callable[[], str]] = {
            "watches": self._watches,
            "lease": lambda: self.engine.shards.trouble(),
            "policy": lambda: self.engine.bundled_trouble(),
        }
        self.health = Health(parts)
        self.engine = build_engine(settings, kube, self.health.turn)
        for kind in KINDS:
            # A counter without a series until its first failure hides the first one from `increase`.
            self.engine.metrics.unreadable.labels(kind)
        self.apis = OptionalApis(kube, self._optional(), self.read_optional, self.drop_optional)
        self.stop = asyncio.Event()
        """Set when a part of the operator has failed: then the process ends."""
        self.failure: BaseException | None = None
        self.logins = 0
        """Number of times that kopf asked for credentials."""

    def __copy__(self) -> Self:
        """Return the context itself: kopf copies its memo for every object, and all share one context."""
        return self

    @_fenced("RLScalingPolicy")
    def put_policy(self, body: Body, deleted: bool) -> None:
        if deleted:
            self.engine.forget(key_of(body), body["metadata"].get("uid", ""))
            self.engine.wake()
        else:
            self.engine.take_in(body)

    @_fenced("RLScalingBudget")
    def put_budget(self, body: Body, deleted: bool) -> None:
        if deleted:
            self.engine.budgets.forget(body["metadata"]["name"])
        else:
            self.engine.budgets.take_in(body)

    @_fenced("Deployment")
    def put_deployment(self, body: Body, deleted: bool) -> None:
        if deleted:
            self.engine.cache.drop_target(key_of(body))
            self.engine.wake(key_of(body))
        elif self.engine.cache.put_deployment(body):
            self.engine.wake(key_of(body))

    async def put_target(self, kind: TargetKind, body: Body, deleted: bool) -> None:
        """Take in an object of a kind besides Deployments; it is read only where a policy targets it."""
        key = kind.key(body)
        if deleted:
            self.engine.cache.drop_target(key)
            self.engine.wake(key)
        elif self.engine.registry.of_deployment(key):
            await self.read_target(key)

    async def read_targets(self, policy: Body) -> None:
        """Read the targets of a policy that no watch of Deployments shows."""
        known = self.engine.registry.get(key_of(policy))
        if known is not None and known.observed.facts is not None:
            for _, key in known.facts.targets:
                if is_other(key[1]) and key not in self.engine.cache.deployments:
                    await self.read_target(key)

    async def read_target(self, key: Key) -> None:
        """Read a target. It is missing where it does not exist, or its kind is not enabled."""
        try:
            if await read_target(self.kube, self.engine.cache, key):
                self.engine.wake(key)
        except KeyError:
            return
        except KubeError as error:
            if error.status == 404:
                self.engine.cache.drop_target(key)
            else:
                log.warning("%s/%s cannot be read: %s", *key, error)
        except Exception:
            self.unreadable("Target", "/".join(key))

    def unreadable(self, kind: str, name: str) -> None:
        """Log and count an object that the operator failed to take in; the last readable one counts on."""
        self.engine.metrics.unreadable.labels(kind).inc()
        log.exception("%s %s cannot be read: correct it", kind, name)

    @_fenced("Pod")
    def put_pod(self, body: Body, deleted: bool) -> None:
        cache = self.engine.cache
        if (target := cache.drop_pod(body) if deleted else cache.put_pod(body)) is not None:
            self.engine.wake(target)

    def put_autoscaler(self, kind: str, body: Body, deleted: bool) -> None:
        cache = self.engine.cache

        @_fenced(kind)
        def put(_: Context, body: Body, deleted: bool) -> None:
            if deleted:
                cache.autoscalers.drop(kind, key_of(body))
            else:
                cache.autoscalers.put(kind, body)

        put(self, body, deleted)

    @_fenced("VerticalPodAutoscaler")
    def put_vertical_autoscaler(self, body: Body, deleted: bool) -> None:
        if deleted:
            self.engine.cache.verticals.drop(key_of(body))
        else:
            self.engine.cache.verticals.put(body)

    @_fenced("HTTPRoute")
    def put_route(self, body: Body, deleted: bool) -> None:
        if deleted:
            self.engine.cache.routes.pop(key_of(body), None)
        else:
            self.engine.cache.put_route(body)

    async def prime(self) -> None:
        """Read all objects once, before the first write: other scalers of the targets must be known by then.

        Raises OperatorError.
        """
        namespaces = self.settings.namespaces
        async for body in listed(self.kube, namespaces, "apps/v1", "deployments"):
            self.put_deployment(body, deleted=False)
        async for body in listed(self.kube, namespaces, "autoscaling/v2", "horizontalpodautoscalers"):
            self.put_autoscaler("HorizontalPodAutoscaler", body, deleted=False)
        for resource in self._watched_at_will():
            await self.read_optional(resource)
        # Policies come last: their first look already sees targets, scalers and routes.
        async for body in listed(self.kube, namespaces, f"{GROUP}/{VERSION}", PLURAL):
            self.put_policy(body, deleted=False)
            await self.read_targets(body)

    async def read_optional(self, resource: kopf.Resource) -> None:
        """Read all objects of an optional API; there are none where it is not installed. Raises OperatorError."""
        version = f"{resource.group}/{resource.version}"
        namespaces = self.settings.namespaces if resource.namespaced else ()
        async for body in listed(self.kube, namespaces, version, resource.plural, optional=True):
            if resource == BUDGETS:
                self.put_budget(body, deleted=False)
            elif resource == SCALED_OBJECTS:
                self.put_autoscaler("ScaledObject", body, deleted=False)
            elif resource == VERTICAL_AUTOSCALERS:
                self.put_vertical_autoscaler(body, deleted=False)
            elif resource == HTTP_ROUTES:
                self.put_route(body, deleted=False)
            else:
                await self.put_target(self._kind(resource), body, deleted=False)

    def _optional(self) -> tuple[kopf.Resource, ...]:
        return (*self._watched_at_will(), *(kind.resource for kind in self.engine.cache.kinds.others))

    def _watched_at_will(self) -> tuple[kopf.Resource, ...]:
        """Return the optional APIs that are read before the first decision, where they are installed."""
        return (*OPTIONAL, BUDGETS) if self.settings.budgets else OPTIONAL

    def _kind(self, resource: kopf.Resource) -> TargetKind:
        return next(kind for kind in self.engine.cache.kinds.others if kind.resource == resource)

    def drop_optional(self, resource: kopf.Resource) -> None:
        """Forget all objects of an optional API that was removed."""
        if resource == BUDGETS:
            self.engine.budgets.forget_all()
        elif resource == HTTP_ROUTES:
            self.engine.cache.routes.clear()
        elif resource == SCALED_OBJECTS:
            self.engine.cache.autoscalers.drop_kind("ScaledObject")
        elif resource == VERTICAL_AUTOSCALERS:
            self.engine.cache.verticals.clear()
        else:
            self.engine.cache.drop_targets(self._kind(resource).prefix)
        self.engine.wake()

    def _watches(self) -> str:
        if self.failure is not None:
            return f"the operator is ending: {self.failure}"
        if not self.synced:
            return "objects are being read for the first time"
        # kopf sets this flag when its own credentials were accepted and it has found what to watch.
        return "" if self.apis.insights.ready_resources.is_set() else "no watch has begun yet"

    def watch(self, task: asyncio.Task[None]) -> None:
        """End everything when `task` fails."""

        def done(finished: asyncio.Task[None]) -> None:
            if not finished.cancelled() and (error := finished.exception()) is not None:
                self.failure = error
                log.error("%s failed", finished.get_name(), exc_info=error)
                self.stop.set()

        task.add_done_callback(done)


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Context]:
    """Yield a context whose lease and engine run. Raises OperatorError where the start or a part of it fails."""
    async with contextlib.AsyncExitStack() as stack:
        kube = Kube(await load_configuration(settings), reload=partial(load_configuration, settings))
        stack.push_async_callback(kube.close)
        stack.push_async_callback(release_if_namespace_ends, kube, settings)
        context = Context(settings, kube)
        # Before the first read: a probe has to be answered while a large cluster is being read.
        await serve(settings, context.engine.metrics, context.health, stack)
        await context.prime()
        garbage = GarbageCollection()
        garbage.begin()
        stack.callback(garbage.end)
        if settings.external_scaler_port is not None:
            await _serve_keda(settings, context.engine, stack)
        engine = context.engine
        parts: dict[str, Part] = {
            "config maps": engine.config_maps,
            "secrets": engine.secrets,
            "apis": context.apis,
            "gaps": Gaps(kube, settings.namespaces, partial(watched, engine)),
            "missed deletions": MissedDeletions(kube, engine.registry, settings.namespaces, engine.forget),
            "lease": engine.shards,
            "engine": engine,
        }
        if settings.budgets:
            parts["counter"] = engine.budgets.counter
        for name, part in parts.items():
            task = asyncio.create_task(part.run(), name=name)
            context.watch(task)
            stack.push_async_callback(_stop, task)
        yield context
    if context.failure is not None:
        raise OperatorError(f"a part of the operator failed: {context.failure!r}") from context.failure


async def _serve_keda(settings: Settings, engine: Engine, stack: contextlib.AsyncExitStack) -> None:
    """Start the external scaler. Raises OperatorError."""
    try:
        from rlscaler_operator.keda.service import serve as serve_keda
    except ModuleNotFoundError as error:
        remedy = "`make install` in a clone, or `pip install '.[keda]'` there"
        text = f"--external-scaler-port needs the package {error.name!r}: {remedy}"
        raise OperatorError(text) from error
    await serve_keda(settings, engine.registry, stack)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=STOP_SECONDS)


class GarbageCollection:
    """Keeps Python's garbage collector away from objects that live long, from `begin` to `end`.

    A full collection looks at every object: 0.3 s at a thousand policies, in which the event loop stands still. An
    object that survives one lives long and is frozen, so that the next collection looks at newer objects only. A frozen
    object is still freed with its last reference; only cycles of frozen objects stay until the next look at all.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._full_at, self._before = clock, clock(), gc.get_threshold()

    def begin(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, *self._before[1:])
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def _collected(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] != 2:
            return
        if self._clock() - self._full_at >= FULL_COLLECTION_SECONDS:
            self._full_at = self._clock()
            gc.unfreeze()
        else:
            gc.freeze()
