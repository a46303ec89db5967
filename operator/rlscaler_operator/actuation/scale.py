"""Compare-and-swap writes of `spec.replicas` through the scale subresource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rlscaler_operator.cluster.bodies import Deployment, Key
from rlscaler_operator.cluster.cache import WatchCache, read_target
from rlscaler_operator.cluster.kinds import titled
from rlscaler_operator.cluster.kube import FIELD_MANAGER, Kube
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.exceptions import KubeError, LeaseLostError

WriteResult = Literal["Applied", "Waiting", "Conflict", "Missing", "LeaseLost", "Refused", "Failed"]

ANOTHER_TIME = (401, 408, 409, 429)
"""HTTP statuses below 500 after which the same write may go through: it met another one, or came in a bad moment."""

TEST_FAILED = 422
"""HTTP status of a JSON patch whose `test` failed; an admission policy answers with it, too."""


@dataclass(frozen=True, slots=True)
class Write:
    """Result of one scale write."""

    outcome: WriteResult
    message: str
    seconds: float | None = None
    """Duration of the request; None where none was sent."""

    @property
    def applied(self) -> bool:
        return self.outcome == "Applied"


def scale_patch(base: int, desired: int) -> list[dict[str, Any]]:
    """Return a JSON patch that sets `desired` only where the replicas still are `base`.

    Scale leaves 0 replicas out of its JSON: a test against null then passes, and `add` sets a field that `replace`
    would not.
    """
    return [
        {"op": "test", "path": "/spec/replicas", "value": base or None},
        {"op": "add", "path": "/spec/replicas", "value": desired},
    ]


async def write_replicas(kube: Kube, lease: Lease, cache: WatchCache, key: Key, base: int, desired: int) -> Write:
    """Write replicas once: after a conflict the target is read again and the next tick decides anew."""
    try:
        path = cache.kinds.path(key)
    except KeyError:
        return Write("Missing", f"{key[1]}: its kind is not enabled: ask the administrator for targetKinds")
    try:
        scale = await lease.patch(f"{path}/scale", scale_patch(base, desired))
    except LeaseLostError as error:
        return Write("LeaseLost", str(error))
    except KubeError as error:
        return await _failed(kube, cache, key, base, error)
    version = scale.get("metadata", {}).get("resourceVersion", "")
    there = int(scale.get("spec", {"replicas": desired}).get("replicas") or 0)
    # The next tick must not take the operator's own write for a foreign one before the watch shows it.
    cache.wrote_replicas(key, there, version)
    if there != desired:
        text = (
            f"{key[1]}: {base} -> {desired} became {there}: a mutating webhook or policy changes replicas on their way"
        )
        return Write("Refused", f"{text}: exempt the field manager {FIELD_MANAGER} from it")
    return Write("Applied", f"{key[1]}: {base} -> {desired}")


async def _failed(kube: Kube, cache: WatchCache, key: Key, base: int, error: KubeError) -> Write:
    if error.status == 404:
        cache.drop_target(key)
        return Write("Missing", f"{titled(key[1])} does not exist: create it, or correct spec.targets")
    known: Deployment | None = None
    try:
        await read_target(kube, cache, key)
        known = cache.deployments.get(key)
    except KubeError as second:
        if second.status == 404:
            cache.drop_target(key)
    if 400 <= error.status < 500 and error.status not in ANOTHER_TIME:
        # Where the replicas are still those of the `test`, it held, and something else refused the write.
        if error.status != TEST_FAILED or (known is not None and known.replicas == base):
            return Write("Refused", f"{key[1]}: {error}")
        error = KubeError(409, str(error))
    if error.status == 409:
        return Write("Conflict", f"{key[1]}: replicas are not {base} any more; decided again at the next tick")
    return Write("Failed", f"{key[1]}: {error}")
