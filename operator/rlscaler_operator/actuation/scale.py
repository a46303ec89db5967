"""Compare-and-swap writes of `spec.replicas` through the scale subresource."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from rlscaler_operator.cluster.cache import Key, WatchCache
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.exceptions import KubeError, LeaseLostError

WriteResult = Literal["Applied", "Conflict", "Missing", "LeaseLost", "Failed"]

CONFLICTS = (409, 422)
"""HTTP statuses of a JSON patch whose `test` failed, or that met another write."""


@dataclass(frozen=True, slots=True)
class Write:
    """What became of one scale write."""

    outcome: WriteResult
    message: str
    seconds: float | None = None
    """Duration of the request; None where none was sent."""

    @property
    def applied(self) -> bool:
        return self.outcome == "Applied"


def scale_patch(base: int, desired: int) -> list[dict[str, Any]]:
    """Set `desired` only where the replicas still are `base`.

    Scale leaves 0 replicas out of its JSON: a test against null then passes, and `add` sets what `replace` would not.
    """
    return [
        {"op": "test", "path": "/spec/replicas", "value": base or None},
        {"op": "add", "path": "/spec/replicas", "value": desired},
    ]


async def write_replicas(
    kube: Kube, lease: Lease, cache: WatchCache, key: Key, base: int, desired: int, timeout_seconds: float
) -> Write:
    """One write, never repeated: after a conflict the Deployment is read again and the next tick decides anew."""
    namespace, name = key
    path = object_path("apps/v1", "deployments", namespace, name)
    try:
        timeout = partial(lease.write_timeout, timeout_seconds)
        scale = await kube.patch(f"{path}/scale", scale_patch(base, desired), timeout_seconds=timeout)
    except LeaseLostError as error:
        return Write("LeaseLost", str(error))
    except KubeError as error:
        return await _failed(kube, cache, key, path, base, error)
    version = scale.get("metadata", {}).get("resourceVersion", "")
    cache.wrote_replicas(key, desired, version)
    return Write("Applied", f"{name}: {base} -> {desired}")


async def _failed(kube: Kube, cache: WatchCache, key: Key, path: str, base: int, error: KubeError) -> Write:
    if error.status == 404:
        cache.deployments.pop(key, None)
        return Write("Missing", f"Deployment {key[1]} does not exist: create it, or correct spec.targets")
    try:
        cache.put_deployment(await kube.get(path))
    except KubeError as second:
        if second.status == 404:
            cache.deployments.pop(key, None)
    if error.status in CONFLICTS:
        return Write("Conflict", f"{key[1]}: replicas are not {base} any more; decided again at the next tick")
    return Write("Failed", f"{key[1]}: {error}")
