"""Deleting a policy: with `restoreOnDelete` the finalizer holds it until things are as before the first change."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial

import numpy as np

from rlscaler_core.api import PLURAL, is_true
from rlscaler_core.api.conditions import CONFLICTED
from rlscaler_core.decision.guards import STAGES
from rlscaler_core.decision.shield import floor_tick
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.actuation.routes import write_weights
from rlscaler_operator.actuation.scale import write_replicas
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.events import Events
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.sensing.measure import samples_of, samples_row
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.policy import Policy

log = logging.getLogger("rlscaler.restore")

FINALIZER = "rlscaler.io/restore"
RETRY_SECONDS = 2.0
"""Pause before a deletion that could not be completed is looked at again."""


class Deletion:
    """Restores the originals of policies with our finalizer."""

    def __init__(self, kube: Kube, shards: Shards, cache: WatchCache, events: Events, settings: Settings) -> None:
        self._kube, self._shards, self._cache, self._events = kube, shards, cache, events
        self._timeout = settings.write_timeout_seconds
        self._epoch = time.time() - time.monotonic()

    async def run(self, policy: Policy) -> None:
        """Put things back where the policy asks for it, and let it go; the loop's next look tries again what failed."""
        if FINALIZER not in policy.observed.finalizers:
            await asyncio.sleep(RETRY_SECONDS)
            return
        lease = self._shards.of(policy.key)
        try:
            if is_true(policy.report.conditions, CONFLICTED):
                text = "somebody else scales the targets: the replicas were left as they are"
                await self._events.post(policy.reference, "Warning", "NotRestored", text)
            elif policy.observed.parsed and policy.ownership.originals is not None and policy.spec.restore_on_delete:
                replicas = self._replicas(policy)
                done = await restore(self._kube, lease, self._cache, policy, replicas, self._timeout)
                await self._events.post(
                    policy.reference, "Normal", "Restored", "; ".join(done) or "nothing had changed"
                )
            await write_finalizer(self._kube, lease, policy, False, self._timeout)
        except (KubeError, LeaseLostError) as error:
            log.warning("%s/%s: not restored yet: %s", *policy.key, error)
            await asyncio.sleep(RETRY_SECONDS)
        except Exception:
            log.exception("%s/%s: restoring failed", *policy.key)
            await asyncio.sleep(RETRY_SECONDS)

    def _replicas(self, policy: Policy) -> dict[str, int]:
        """The originals, raised to what the floor asks for while the load is known."""
        assert policy.ownership.originals is not None
        original = policy.ownership.originals.replicas
        wanted = {pool: n for pool in POOLS if (n := getattr(original, pool)) is not None}
        found = policy.found(self._cache)
        if policy.decision.state is None or any(deployment is None for deployment in found.values()):
            return wanted
        now = time.monotonic()
        ready = [d.ready if (d := found.get(pool)) else 0 for pool in POOLS]
        row = samples_row(
            policy.decision.readings,
            now - policy.decision.read_at,
            self._epoch + now,
            (wanted.get("gpu", 0), wanted.get("cpu", 0)),
            (ready[0], ready[1]),
            {},
        )
        params = policy.params()
        decision, _ = floor_tick(params, policy.decision.state, samples_of([row]))
        floor = np.minimum(decision.trail[0, STAGES.index("floor")], params.max_replicas[0])
        return {pool: max(n, int(floor[POOLS.index(pool)])) for pool, n in wanted.items()}


async def write_finalizer(kube: Kube, lease: Lease, policy: Policy, wanted: bool, timeout_seconds: float) -> None:
    """Compare-and-swap on the whole list: another controller's finalizer is never lost."""
    others = [name for name in policy.observed.finalizers if name != FINALIZER]
    after = [*others, FINALIZER] if wanted else others
    if after == policy.observed.finalizers:
        return
    path = object_path("rlscaler.io/v1alpha1", PLURAL, *policy.key)
    patch = [
        {"op": "test", "path": "/metadata/finalizers", "value": policy.observed.finalizers or None},
        {"op": "add", "path": "/metadata/finalizers", "value": after},
    ]
    try:
        await kube.patch(path, patch, timeout_seconds=partial(lease.write_timeout, timeout_seconds))
    except KubeError as error:
        if error.status != 404:
            raise
    policy.observed.wrote_finalizers(after)


async def restore(
    kube: Kube,
    lease: Lease,
    cache: WatchCache,
    policy: Policy,
    replicas: dict[str, int],
    timeout_seconds: float,
) -> list[str]:
    """Set weights and `replicas` by pool; what was done in words. Raises KubeError where it should be tried again."""
    done = []
    weights = policy.ownership.originals.weights if policy.ownership.originals else None
    backends = policy.facts.backends
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
