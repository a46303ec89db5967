"""Traffic weights: on the backends of an HTTPRoute, or as an annotation where there is no route."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from rlscaler_core.api import PLURAL
from rlscaler_operator.actuation.backends import AmbiguousBackendError, Split, Weights, find_splits, route_patch
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.observed import WEIGHTS_ANNOTATION

API_VERSION = "gateway.networking.k8s.io/v1"


class Placed(NamedTuple):
    """What became of the weights."""

    problem: Problem | None = None
    """Why they are not in force and will not be by themselves."""
    went_through: bool = True
    """False where a write was tried and failed: no pool should shrink before the next tick."""
    changed: bool = False
    in_force: bool = True
    """False where the route does not say what it should."""


def read_splits(cache: WatchCache, key: Key, backends: tuple[str, str]) -> tuple[list[Split], Problem | None]:
    """The rules of a route that name a backend, and why its weights cannot be set; None where they can."""
    namespace, name = key
    route = cache.routes.get(key)
    if route is None:
        text = f"HTTPRoute {name} does not exist: create it, or remove placement.httpRoute"
        return [], Problem("HTTPRouteMissing", text)
    try:
        splits = find_splits(route, namespace, backends)
    except AmbiguousBackendError as error:
        return [], Problem("BackendAmbiguous", f"HTTPRoute {name}: {error}")
    if not any(split.both for split in splits):
        text = f"no rule of HTTPRoute {name} has both backends {backends[0]} and {backends[1]}: correct either"
        return splits, Problem("BackendMissing", text)
    return splits, None


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
    splits, problem = read_splits(cache, key, backends)
    if problem is not None:
        return Placed(problem, in_force=False)
    coarse = next((split for split in splits if split.coarse), None)
    if coarse is not None:
        problem = Problem(
            "WeightsTooCoarse",
            f"rule {coarse.rule} of HTTPRoute {name} gives {backends[0]} and {backends[1]} a small weight beside other "
            "backends, whose share stays: multiply all weights of the rule, so that the two have 100 or more",
        )
    patch = route_patch(cache.routes[key], splits, weights)
    if not patch:
        return Placed(problem)
    path = object_path(API_VERSION, "httproutes", namespace, name)
    try:
        cache.put_route(await kube.patch(path, patch, timeout_seconds=partial(lease.write_timeout, timeout_seconds)))
        return Placed(problem, changed=True)
    except LeaseLostError as error:
        return Placed(Problem(error.reason, str(error)), went_through=False, in_force=False)
    except KubeError as error:
        return Placed(await _failed(kube, cache, key, path, error), went_through=False, in_force=False)


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
