"""Writing the sizes of new pods, a ConfigMap for each target, and taking them back.

The operator may write such ConfigMaps and may not read them: what another process left is removed without being looked
at, and what is there is written again now and then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.kube import Json, Kube, object_path
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.new_pods import NewPods, name_of
from rlscaler_operator.state.policy import Policy

log = logging.getLogger("rlscaler.new_pods")

AGAIN_SECONDS = 300.0
"""Time after which an unchanged ConfigMap is written again, in case it was deleted."""

FIRST_SECONDS = 60.0
"""The first pause after a refusal that came back."""

MISSING, REFUSED = 404, (403, 422)

ALLOW = "grant it: rbac-optional.yaml, or operator.resizeNewPods of the chart"


class NewPodSizes:
    """Keeps the ConfigMaps of policies. What it remembers is in `Policy.new_pods`."""

    def __init__(
        self,
        kube: Kube,
        limiter: ConcurrencyLimiter,
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._limiter, self._timeout, self._clock = kube, limiter, timeout_seconds, clock

    async def put(self, lease: Lease, policy: Policy, pool: str, body: Json) -> Problem | None:
        """Write a pool's ConfigMap where it is another one than is there. Never raises for what the API answers."""
        known, now = policy.new_pods_of(pool), self._clock()
        if known.backoff.waits(now) or (known.body == body and now - known.at < AGAIN_SECONDS):
            return known.problem
        path = object_path("v1", "configmaps", policy.key[0], body["metadata"]["name"])
        try:
            async with self._limiter.slot(Priority.SCALE):
                timeout = partial(lease.write_timeout, self._timeout)
                await self._kube.apply(path, body, timeout_seconds=timeout)
        except (KubeError, LeaseLostError) as error:
            known.doubted()
            return self._refused(policy, pool, known, error)
        known.wrote(body, now)
        return None

    async def remove(self, lease: Lease, policy: Policy, pool: str) -> Problem | None:
        """Take a pool's ConfigMap away where there may be one. Never raises for what the API answers."""
        known = policy.new_pods_of(pool)
        if known.there is False or known.backoff.waits(self._clock()):
            return known.problem
        path = object_path("v1", "configmaps", policy.key[0], name_of(policy.reference, pool))
        try:
            async with self._limiter.slot(Priority.SCALE):
                timeout = partial(lease.write_timeout, self._timeout)
                await self._kube.delete(path, timeout_seconds=timeout)
        except (KubeError, LeaseLostError) as error:
            if not isinstance(error, KubeError) or error.status != MISSING:
                return self._refused(policy, pool, known, error)
        known.removed()
        return None

    def hold(self, policy: Policy, pool: str) -> None:
        """Write none for a pool for a while: the size that it gave was refused."""
        policy.new_pods_of(pool).backoff.again(self._clock(), FIRST_SECONDS)

    def _refused(self, policy: Policy, pool: str, known: NewPods, error: KubeError | LeaseLostError) -> Problem | None:
        """Say what the next attempt would hear as well, and make a pause; anything else is tried at the next tick."""
        log.warning("%s/%s: the size of new pods of %s was not written: %s", *policy.key, pool, error)
        if not isinstance(error, KubeError) or error.status not in REFUSED:
            return None
        known.backoff.again(self._clock(), FIRST_SECONDS)
        remedy = ALLOW if "cannot" in str(error) else "correct what it names"
        text = f"the size of new pods of {pool} can be neither written nor taken back: {error}; {remedy}"
        known.problem = Problem("NewPodsNotSized", text)
        return known.problem
