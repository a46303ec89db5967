"""A policy that is being deleted: put things back where it asks for it, then let it go."""

from __future__ import annotations

import asyncio
import logging
import time

import numpy as np

from rlscaler_core.api import is_true
from rlscaler_core.api.conditions import CONFLICTED
from rlscaler_core.decision.guards import STAGES
from rlscaler_core.decision.shield import floor_tick
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.actuation.restore import FINALIZER, restore, write_finalizer
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.events import Events
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.sensing.measure import samples_of, samples_row
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.policy import Policy

log = logging.getLogger("rlscaler.deletion")

RETRY_SECONDS = 2.0


class Deletion:
    """Restores the originals of policies with our finalizer."""

    def __init__(self, kube: Kube, shards: Shards, cache: WatchCache, events: Events, settings: Settings) -> None:
        self._kube, self._shards, self._cache, self._events = kube, shards, cache, events
        self._timeout = settings.write_timeout_seconds
        self._epoch = time.time() - time.monotonic()

    async def run(self, policy: Policy) -> None:
        """Once more at the next look where it did not work."""
        if FINALIZER not in policy.finalizers:
            await asyncio.sleep(RETRY_SECONDS)
            return
        lease = self._shards.of(policy.key)
        try:
            if is_true(policy.conditions, CONFLICTED):
                text = "somebody else scales the targets: the replicas were left as they are"
                await self._events.post(policy.reference, "Warning", "NotRestored", text)
            elif policy.parsed is not None and policy.originals is not None and policy.spec.restore_on_delete:
                done = await restore(
                    self._kube,
                    lease,
                    self._cache,
                    policy,
                    self._replicas(policy),
                    policy.facts.backends,
                    self._timeout,
                )
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
        assert policy.originals is not None
        original = policy.originals.replicas
        wanted = {pool: n for pool in POOLS if (n := getattr(original, pool)) is not None}
        found = policy.found(self._cache)
        if policy.state is None or any(deployment is None for deployment in found.values()):
            return wanted
        now = time.monotonic()
        ready = [d.ready if (d := found.get(pool)) else 0 for pool in POOLS]
        row = samples_row(
            policy.readings,
            now - policy.read_at,
            self._epoch + now,
            (wanted.get("gpu", 0), wanted.get("cpu", 0)),
            (ready[0], ready[1]),
            {},
        )
        params = policy.params()
        decision, _ = floor_tick(params, policy.state, samples_of([row]))
        floor = np.minimum(decision.trail[0, STAGES.index("floor")], params.max_replicas[0])
        return {pool: max(n, int(floor[POOLS.index(pool)])) for pool, n in wanted.items()}
