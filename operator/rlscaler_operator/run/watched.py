"""Kinds of objects that the operator watches: how each is taken in and forgotten, and which of them are remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import kopf

from rlscaler_core.api import GROUP, KIND, PLURAL, VERSION
from rlscaler_core.api.budget import BUDGET_KIND, BUDGET_PLURAL
from rlscaler_operator.cluster.bodies import Key, key_of
from rlscaler_operator.cluster.kinds import DEPLOYMENTS, TargetKind
from rlscaler_operator.loop.engine import Engine

Body = Mapping[str, Any]

VERBS = frozenset({"get", "list", "watch", "patch"})


def _resource(api_version: str, plural: str, kind: str, *, namespaced: bool = True) -> kopf.Resource:
    group, _, version = api_version.rpartition("/")
    return kopf.Resource(group, version, plural, kind=kind, namespaced=namespaced, verbs=VERBS)


POLICIES = _resource(f"{GROUP}/{VERSION}", PLURAL, KIND)
BUDGETS = _resource(f"{GROUP}/{VERSION}", BUDGET_PLURAL, BUDGET_KIND, namespaced=False)
"""Watched with `--budgets` only."""
PODS = _resource("v1", "pods", "Pod")
HPAS = _resource("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
SCALED_OBJECTS = _resource("keda.sh/v1alpha1", "scaledobjects", "ScaledObject")
VERTICAL_AUTOSCALERS = _resource("autoscaling.k8s.io/v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
HTTP_ROUTES = _resource("gateway.networking.k8s.io/v1", "httproutes", "HTTPRoute")
OPTIONAL = (SCALED_OBJECTS, VERTICAL_AUTOSCALERS, HTTP_ROUTES)
"""APIs that may be installed while the operator runs, and removed again: KEDA's, the VPA's and the Gateway API."""

PODS_EVERY = 10
"""Rounds between two looks for pods that are gone: they are many."""


class Watched(NamedTuple):
    """Kind of watched objects."""

    resource: kopf.Resource
    put: Callable[[Body], Awaitable[None] | None]
    """Take in an object that is new or has changed."""
    forget: Callable[[Key, str], object]
    """Forget the object of a namespace and a reference; with a uid only that very object."""
    known: Callable[[], Iterable[tuple[Key, str]]]
    """Return the remembered objects and their uids; an empty one stands for any."""
    every: int = 1
    """Rounds between two looks for objects that are gone."""
    prefix: str = ""
    """Prefix of the names in the references."""

    @property
    def name(self) -> str:
        """Name of the kind in messages and metrics."""
        return "Target" if self.prefix else self.resource.kind or ""

    @property
    def api_version(self) -> str:
        return "/".join(filter(None, (self.resource.group, self.resource.version)))

    def key(self, body: Body) -> Key:
        namespace, name = key_of(body)
        return namespace, self.prefix + name


def watched(
    engine: Engine, put_policy: Callable[[Body], Awaitable[None]], read_target: Callable[[Key], Awaitable[None]]
) -> dict[kopf.Resource, Watched]:
    """Return all kinds. A target that is no Deployment is read by `read_target`, and only where a policy names it."""
    cache, budgets, wake = engine.cache, engine.budgets, engine.wake

    def forget_policy(key: Key, uid: str) -> None:
        engine.forget(key, uid)
        wake()

    def put_deployment(body: Body) -> None:
        if cache.put_deployment(body):
            wake(key_of(body))

    async def put_other(of: TargetKind, body: Body) -> None:
        if engine.registry.of_deployment(of.key(body)):
            await read_target(of.key(body))

    def forget_target(key: Key) -> None:
        cache.drop_target(key)
        wake(key)

    def put_pod(body: Body) -> None:
        if (target := cache.put_pod(body)) is not None:
            wake(target)

    def forget_pod(key: Key, uid: str) -> None:
        if (target := cache.drop_pod(key, uid)) is not None:
            wake(target)

    def kind(
        resource: kopf.Resource,
        put: Callable[[Body], Awaitable[None] | None],
        drop: Callable[[Key], object],
        known: Callable[[], Iterable[Key]],
        prefix: str = "",
    ) -> Watched:
        """Return a kind of which only the names are remembered."""
        return Watched(resource, put, lambda key, _: drop(key), lambda: ((key, "") for key in known()), prefix=prefix)

    def scalers(resource: kopf.Resource) -> Watched:
        name = str(resource.kind)
        known = partial(cache.autoscalers.known, name)
        return kind(resource, partial(cache.autoscalers.put, name), partial(cache.autoscalers.drop, name), known)

    def targets(of: TargetKind, put: Callable[[Body], Awaitable[None] | None]) -> Watched:
        return kind(of.resource, put, forget_target, partial(cache.known_targets, of), of.prefix)

    kinds = [
        Watched(POLICIES, put_policy, forget_policy, lambda: [(policy.key, policy.uid) for policy in engine.registry]),
        Watched(PODS, put_pod, forget_pod, lambda: [(key, "") for key in cache.known_pods()], PODS_EVERY),
        kind(VERTICAL_AUTOSCALERS, cache.verticals.put, cache.verticals.drop, cache.verticals.known),
        kind(HTTP_ROUTES, cache.put_route, lambda key: cache.routes.pop(key, None), lambda: cache.routes),
        kind(BUDGETS, budgets.take_in, lambda key: budgets.forget(key[1]), lambda: [("", n) for n in budgets.names()]),
        scalers(HPAS),
        scalers(SCALED_OBJECTS),
        targets(DEPLOYMENTS, put_deployment),
        *(targets(other, partial(put_other, other)) for other in cache.kinds.others),
    ]
    return {kind.resource: kind for kind in kinds}
