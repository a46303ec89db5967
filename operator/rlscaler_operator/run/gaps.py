"""Objects around the policies that were deleted in a gap of a watch: kopf lists again after it, but reports no absence.

A HorizontalPodAutoscaler that is gone would hold its target for ever, and a pod that is gone would count as ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from itertools import count, islice
from typing import NamedTuple

import kopf

from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.kinds import DEPLOYMENTS
from rlscaler_operator.cluster.kube import Kube, listed
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.loop.engine import Engine
from rlscaler_operator.run.watches import BUDGETS, HTTP_ROUTES, SCALED_OBJECTS, VERTICAL_AUTOSCALERS

log = logging.getLogger("rlscaler.watches")

HPAS = kopf.Resource("autoscaling", "v2", "horizontalpodautoscalers", kind="HorizontalPodAutoscaler", namespaced=True)

ROUND_SECONDS = 60.0
"""Time between two rounds. Each costs one request of metadata for 500 objects of each kind."""

PODS_EVERY = 10
"""Rounds between two looks at the pods, which are many."""

CONFIRMED_AT_ONCE = 1000
"""Absent objects that are looked for by their names in one round; further ones wait for the next."""


class Watched(NamedTuple):
    """Kind of watched objects."""

    api_version: str
    plural: str
    known: Callable[[], set[Key]]
    """Return the remembered objects, by namespace and reference."""
    forget: Callable[[Key], object]
    every: int = 1
    """Rounds between two looks."""
    prefix: str = ""
    """Prefix of the names in the references."""
    namespaced: bool = True


def watched(engine: Engine) -> list[Watched]:
    """Return the kinds that the operator watches besides policies."""
    cache = engine.cache

    def forget_target(key: Key) -> None:
        cache.drop_target(key)
        engine.wake(key)

    def forget_pod(key: Key) -> None:
        if (target := cache.forget_pod(key)) is not None:
            engine.wake(target)

    def optional(resource: kopf.Resource, known: Callable[[], set[Key]], forget: Callable[[Key], object]) -> Watched:
        version = f"{resource.group}/{resource.version}"
        return Watched(version, resource.plural, known, forget, namespaced=bool(resource.namespaced))

    kinds = [
        Watched("v1", "pods", cache.known_pods, forget_pod, PODS_EVERY),
        optional(VERTICAL_AUTOSCALERS, cache.verticals.known, cache.verticals.drop),
        optional(HTTP_ROUTES, lambda: set(cache.routes), lambda key: cache.routes.pop(key, None)),
        optional(
            BUDGETS, lambda: {("", name) for name in engine.budgets.names()}, lambda key: engine.budgets.forget(key[1])
        ),
    ]
    for resource, scaler in ((HPAS, "HorizontalPodAutoscaler"), (SCALED_OBJECTS, "ScaledObject")):
        known, forget = partial(cache.autoscalers.known, scaler), partial(cache.autoscalers.drop, scaler)
        kinds.append(optional(resource, known, forget))
    for kind in (DEPLOYMENTS, *cache.kinds.others):
        of_kind = partial(cache.known_targets, kind)
        kinds.append(Watched(kind.api_version, kind.plural, of_kind, forget_target, prefix=kind.prefix))
    return kinds


class Gaps:
    """Forgets remembered objects that are there no more."""

    def __init__(self, kube: Kube, namespaces: tuple[str, ...], watched: Callable[[], Iterable[Watched]]) -> None:
        self._kube, self._namespaces, self._watched = kube, namespaces, watched

    async def run(self) -> None:
        """Look repeatedly until cancelled. A list that fails is tried again the next time."""
        for number in count(1):
            await asyncio.sleep(ROUND_SECONDS)
            for kind in self._watched():
                if number % kind.every == 0:
                    try:
                        await self.look(kind)
                    except (OperatorError, TimeoutError) as error:
                        log.warning("%s", error)

    async def look(self, kind: Watched) -> None:
        """List a kind and forget known objects that no longer exist. Raises OperatorError."""
        absent = kind.known()
        if not absent:
            return
        async for there in self._names(kind, self._namespaces if kind.namespaced else ()):
            absent.discard(there)
        for key in islice(sorted(absent), CONFIRMED_AT_ONCE):
            # An object may have been made while a long list was read, and be known from its watch alone.
            name = key[1].removeprefix(kind.prefix)
            if not [
                key
                async for _ in self._names(kind, tuple(filter(None, key[:1])), fieldSelector=f"metadata.name={name}")
            ]:
                log.info("%s %s/%s is gone: its deletion had not been seen", kind.plural, *key)
                kind.forget(key)

    async def _names(self, kind: Watched, namespaces: tuple[str, ...], **selectors: str) -> AsyncIterator[Key]:
        async for body in listed(
            self._kube,
            namespaces,
            kind.api_version,
            kind.plural,
            optional=True,
            metadata_only=True,
            selectors=selectors,
        ):
            yield body["metadata"].get("namespace", ""), kind.prefix + body["metadata"]["name"]
