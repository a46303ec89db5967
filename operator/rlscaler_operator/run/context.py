"""Objects that live as long as the operator: started before the handlers, stopped after them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Protocol, Self

import kopf

from rlscaler_operator.cluster.bodies import Key, key_of
from rlscaler_operator.cluster.cache import read_target
from rlscaler_operator.cluster.kinds import DEPLOYMENTS, is_other
from rlscaler_operator.cluster.kube import Kube, listed, load_configuration
from rlscaler_operator.exceptions import KubeError, OperatorError
from rlscaler_operator.loop.engine import Engine
from rlscaler_operator.loop.wiring import build_engine
from rlscaler_operator.run.gaps import DELETION_CHECK_SECONDS, ROUND_SECONDS, Gaps
from rlscaler_operator.run.health import Health, serve
from rlscaler_operator.run.release import release_if_namespace_ends
from rlscaler_operator.run.watched import BUDGETS, HPAS, OPTIONAL, POLICIES, Body, Watched, watched
from rlscaler_operator.run.watches import OptionalApis
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler")

STOP_SECONDS = 3.0
"""Time for the writes under way to end; the lease is handed back after it."""

FULL_COLLECTION_SECONDS = 3600.0
"""Interval at which a full garbage collection looks at frozen objects as well."""

YOUNG_OBJECTS = 5_000
"""Number of new objects that starts a collection of the youngest generation; Python's default is 700. Nearly all
objects of a quiet tick are freed by their reference counts before that."""


class Part(Protocol):
    """Part of the operator whose `run` goes on until it is cancelled."""

    async def run(self) -> None: ...


class Context:
    """Cluster, leases and engine of one process; the handlers call its `take_in`."""

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
        self.kinds = watched(self.engine, self._put_policy, self.read_target)
        for kind in {"Target", *(kind.name for kind in self.kinds.values())}:
            # A counter without a series until its first failure hides the first one from `increase`.
            self.engine.metrics.unreadable.labels(kind)
        optional = (*self._watched_at_will(), *(kind.resource for kind in self.engine.cache.kinds.others))
        self.apis = OptionalApis(kube, optional, partial(self.read, optional=True), self._forget_all)
        self.stop = asyncio.Event()
        """Set when a part of the operator has failed: then the process ends."""
        self.failure: BaseException | None = None
        self.logins = 0
        """Number of times that kopf asked for credentials."""

    def __copy__(self) -> Self:
        """Return the context itself: kopf copies its memo for every object, and all share one context."""
        return self

    async def take_in(self, kind: Watched, body: Body, deleted: bool = False) -> None:
        """Take in an object; one that cannot be taken in ends neither the operator nor its start."""
        try:
            if deleted:
                kind.forget(kind.key(body), body["metadata"].get("uid", ""))
            elif (waiting := kind.put(body)) is not None:
                await waiting
        except Exception:
            self.unreadable(kind.name, "/".join(key_of(body)))

    async def _put_policy(self, body: Body) -> None:
        self.engine.take_in(body)
        await self.read_targets(body)

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

    async def prime(self) -> None:
        """Read all objects once, before the first write: other scalers of the targets must be known by then.

        Raises OperatorError.
        """
        for resource in (DEPLOYMENTS.resource, HPAS):
            await self.read(resource)
        for resource in self._watched_at_will():
            await self.read(resource, optional=True)
        # Policies come last: their first look already sees targets, scalers and routes.
        await self.read(POLICIES)

    async def read(self, resource: kopf.Resource, optional: bool = False) -> None:
        """Read all objects of a kind; of an `optional` one there are none where it is not installed.

        Raises OperatorError.
        """
        kind = self.kinds[resource]
        namespaces = self.settings.namespaces if resource.namespaced else ()
        async for body in listed(self.kube, namespaces, kind.api_version, resource.plural, optional=optional):
            await self.take_in(kind, body)

    def _watched_at_will(self) -> tuple[kopf.Resource, ...]:
        """Return the optional APIs that are read before the first decision, where they are installed."""
        return (*OPTIONAL, BUDGETS) if self.settings.budgets else OPTIONAL

    def _forget_all(self, resource: kopf.Resource) -> None:
        """Forget all objects of an optional API that was removed."""
        kind = self.kinds[resource]
        for known in list(kind.known()):
            kind.forget(*known)
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
        around = [kind for kind in context.kinds.values() if kind.resource != POLICIES]
        parts: dict[str, Part] = {
            "config maps": engine.config_maps,
            "secrets": engine.secrets,
            "apis": context.apis,
            "gaps": Gaps(kube, settings.namespaces, around, ROUND_SECONDS),
            "missed deletions": Gaps(kube, settings.namespaces, [context.kinds[POLICIES]], DELETION_CHECK_SECONDS),
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
