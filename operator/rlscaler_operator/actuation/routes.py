"""Traffic weights: on the backends of an HTTPRoute, or as an annotation where there is no route."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from rlscaler_core.api import PLURAL
from rlscaler_operator.cluster.cache import Key, WatchCache
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.observed import WEIGHTS_ANNOTATION

API_VERSION = "gateway.networking.k8s.io/v1"

Weights = tuple[int, int]
"""Shares of the GPU and the CPU backend, per mille."""


class Placed(NamedTuple):
    """What became of the weights."""

    problem: Problem | None = None
    """Why they are not in force and will not be by themselves."""
    went_through: bool = True
    """False where a write was tried and failed: no pool should shrink before the next tick."""
    changed: bool = False


def find_backends(route: dict[str, Any], backends: tuple[str, str]) -> list[tuple[int, tuple[int, int]]]:
    """(rule, (GPU backendRef, CPU backendRef)) of every rule that splits between the two Services."""
    found = []
    for i, rule in enumerate(route.get("spec", {}).get("rules") or ()):
        names = {
            ref.get("name"): j
            for j, ref in enumerate(rule.get("backendRefs") or ())
            if ref.get("kind", "Service") == "Service"
        }
        if backends[0] in names and backends[1] in names:
            found.append((i, (names[backends[0]], names[backends[1]])))
    return found


def current_weights(route: dict[str, Any], backends: tuple[str, str]) -> Weights | None:
    """What the first rule says; None where no rule names both backends."""
    for i, refs in find_backends(route, backends):
        listed = route["spec"]["rules"][i]["backendRefs"]
        return listed[refs[0]].get("weight", 1), listed[refs[1]].get("weight", 1)
    return None


def route_patch(route: dict[str, Any], backends: tuple[str, str], weights: Weights) -> list[dict[str, Any]]:
    """A JSON patch that sets the weights where name and weight still are as read; empty where they are right."""
    patch: list[dict[str, Any]] = []
    for i, refs in find_backends(route, backends):
        listed = route["spec"]["rules"][i]["backendRefs"]
        for name, j, weight in zip(backends, refs, weights, strict=True):
            before = listed[j].get("weight", 1)
            if before == weight:
                continue
            path = f"/spec/rules/{i}/backendRefs/{j}"
            patch.append({"op": "test", "path": f"{path}/name", "value": name})
            if "weight" in listed[j]:
                patch.append({"op": "test", "path": f"{path}/weight", "value": before})
            patch.append({"op": "add", "path": f"{path}/weight", "value": weight})
    return patch


async def write_weights(
    kube: Kube,
    lease: Lease,
    cache: WatchCache,
    key: Key,
    backends: tuple[str, str],
    weights: Weights,
    timeout_seconds: float,
) -> Placed:
    """Set the weights on every rule that splits between the two backends; never repeated after a conflict."""
    namespace, name = key
    route = cache.routes.get(key)
    if route is None:
        text = f"HTTPRoute {name} does not exist: create it, or remove placement.httpRoute"
        return Placed(Problem("HTTPRouteMissing", text))
    if not find_backends(route, backends):
        text = f"no rule of HTTPRoute {name} has both backends {backends[0]} and {backends[1]}: correct either"
        return Placed(Problem("BackendMissing", text))
    patch = route_patch(route, backends, weights)
    if not patch:
        return Placed()
    path = object_path(API_VERSION, "httproutes", namespace, name)
    try:
        cache.put_route(await kube.patch(path, patch, timeout_seconds=partial(lease.write_timeout, timeout_seconds)))
        return Placed(changed=True)
    except LeaseLostError as error:
        return Placed(Problem(error.reason, str(error)), went_through=False)
    except KubeError as error:
        return Placed(await _failed(kube, cache, key, path, error), went_through=False)


async def _failed(kube: Kube, cache: WatchCache, key: Key, path: str, error: KubeError) -> Problem | None:
    """A conflict is no problem: the route is read again and the next tick writes what is right then."""
    try:
        cache.put_route(await kube.get(path))
    except KubeError as second:
        if second.status == 404:
            cache.routes.pop(key, None)
    return None if error.status in (409, 422) else Problem("HTTPRouteNotWritten", f"HTTPRoute {key[1]}: {error}")


def format_weights(weights: Weights) -> str:
    """`gpu=800,cpu=200`."""
    return f"gpu={weights[0]},cpu={weights[1]}"


async def annotate(kube: Kube, lease: Lease, key: Key, weights: Weights, timeout_seconds: float) -> None:
    """Publish the weights on the policy. Raises KubeError, LeaseLostError."""
    path = object_path("rlscaler.io/v1alpha1", PLURAL, *key)
    body = {"metadata": {"annotations": {WEIGHTS_ANNOTATION: format_weights(weights)}}}
    await kube.patch(path, body, timeout_seconds=partial(lease.write_timeout, timeout_seconds))
