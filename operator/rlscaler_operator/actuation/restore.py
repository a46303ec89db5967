"""`restoreOnDelete`: the finalizer, and putting things back to what was found before the first change."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from rlscaler_core.api import PLURAL
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.actuation.routes import write_weights
from rlscaler_operator.actuation.scale import write_replicas
from rlscaler_operator.cluster.cache import Key, WatchCache
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.exceptions import KubeError

if TYPE_CHECKING:
    from rlscaler_operator.state.policy import Policy

log = logging.getLogger("rlscaler.restore")

FINALIZER = "rlscaler.io/restore"


async def ensure_finalizer(kube: Kube, lease: Lease, policy: Policy, timeout_seconds: float) -> None:
    """Set the finalizer where `restoreOnDelete` asks for it, remove it where not. Raises KubeError, LeaseLostError."""
    wanted = policy.parsed is not None and policy.spec.restore_on_delete and not policy.deleting
    await write_finalizer(kube, lease, policy, wanted, timeout_seconds)


async def write_finalizer(kube: Kube, lease: Lease, policy: Policy, wanted: bool, timeout_seconds: float) -> None:
    """Compare-and-swap on the whole list: another controller's finalizer is never lost."""
    others = [name for name in policy.finalizers if name != FINALIZER]
    after = [*others, FINALIZER] if wanted else others
    if after == policy.finalizers:
        return
    path = object_path("rlscaler.io/v1alpha1", PLURAL, *policy.key)
    patch = [
        {"op": "test", "path": "/metadata/finalizers", "value": policy.finalizers or None},
        {"op": "add", "path": "/metadata/finalizers", "value": after},
    ]
    try:
        await kube.patch(path, patch, timeout_seconds=partial(lease.write_timeout, timeout_seconds))
    except KubeError as error:
        if error.status != 404:
            raise
    policy.finalizers = after


async def restore(
    kube: Kube,
    lease: Lease,
    cache: WatchCache,
    policy: Policy,
    replicas: dict[str, int],
    backends: tuple[Key, tuple[str, str]] | None,
    timeout_seconds: float,
) -> list[str]:
    """Set weights and `replicas` by pool; what was done in words. Raises KubeError where it should be tried again."""
    done = []
    weights = policy.originals.weights if policy.originals else None
    if weights is not None and backends is not None and weights.gpu is not None and weights.cpu is not None:
        placed = await write_weights(kube, lease, cache, *backends, (weights.gpu, weights.cpu), timeout_seconds)
        if placed.changed:
            done.append(f"HTTPRoute {backends[0][1]}: weights {weights.gpu} and {weights.cpu}")
    for pool, wanted in replicas.items():
        name = policy.deployments[POOLS.index(pool)]
        deployment = cache.deployments.get((policy.key[0], name or ""))
        if name is None or deployment is None or deployment.replicas == wanted:
            continue
        key = (policy.key[0], name)
        write = await write_replicas(kube, lease, cache, key, deployment.replicas, wanted, timeout_seconds)
        if not write.applied and write.outcome != "Missing":
            raise KubeError(0, write.message)
        done.append(write.message)
    log.info("%s/%s: restored: %s", *policy.key, "; ".join(done) or "nothing had changed")
    return done
