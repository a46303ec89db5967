"""Writing how large new pods begin into `status.newPods` of a policy, and taking it back.

It is written by itself, ahead of the report: what is there is in force at once. Reports leave the field alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from rlscaler_core.api import PLURAL
from rlscaler_core.api.new_pods import NewPodSize
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.kube import Json, Kube, object_path
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.state.backoff import GrowingBackoff
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.policy import Policy

log = logging.getLogger("rlscaler.new_pods")

FIRST_SECONDS = 60.0
"""The first pause after a refusal that came back."""

REFUSED = (403, 422)
"""HTTP statuses that the next attempt would get as well."""

ABSENT: Json = {info.alias or name: None for name, info in NewPodSize.model_fields.items()}
"""What a merge patch says of the fields that a size does not have."""

DEFINITION = (
    "the CustomResourceDefinition of policies has no status.newPods; apply the one of this version "
    "(crds/rlscalingpolicies.yaml), or upgrade the chart"
)


class NewPodSizes:
    """Keeps `status.newPods` of policies. What it remembers is in `Policy.new_pods`."""

    def __init__(
        self,
        kube: Kube,
        limiter: ConcurrencyLimiter,
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._limiter, self._timeout, self._clock = kube, limiter, timeout_seconds, clock

    async def keep(self, lease: Lease, policy: Policy, wanted: Mapping[str, Json]) -> Problem | None:
        """Have the sizes by pool be those that are wanted, and no others; do nothing where they are so already.

        What was written is in `policy.observed.new_pods`. Never raises for what the API answers.
        """
        there, known = policy.observed.new_pods, policy.new_pods
        if known.pools != wanted.keys():
            known.pools, known.backoff = frozenset(wanted), GrowingBackoff()
        if there == wanted:
            known.problem = None
        elif not known.backoff.waits(self._clock()):
            known.problem = await self._write(lease, policy, wanted)
        return known.problem

    async def _write(self, lease: Lease, policy: Policy, wanted: Mapping[str, Json]) -> Problem | None:
        # Both pools whole: what was seen last may be older than what is there.
        sizes = {pool: ABSENT | wanted[pool] if pool in wanted else None for pool in POOLS}
        path = object_path("rlscaler.io/v1alpha1", PLURAL, *policy.key, "status")
        try:
            async with self._limiter.slot(Priority.SCALE):
                timeout = partial(lease.write_timeout, self._timeout)
                body = {"status": {"newPods": sizes if wanted else None}}
                answer = await self._kube.patch(path, body, timeout_seconds=timeout)
        except (KubeError, LeaseLostError) as error:
            return self._refused(policy, error)
        policy.observed.wrote_new_pods(answer)
        return None if policy.observed.new_pods == wanted else self._trouble(policy, DEFINITION)

    def holds(self, policy: Policy, pool: str) -> bool:
        """Is nothing given to a pool's new pods for a while?"""
        return pool in policy.new_pods.held and policy.new_pods.held[pool].waits(self._clock())

    def hold(self, policy: Policy, pool: str) -> None:
        """Give nothing to a pool's new pods for a while: the size that they got was refused."""
        policy.new_pods.held.setdefault(pool, GrowingBackoff()).again(self._clock(), FIRST_SECONDS)

    def _refused(self, policy: Policy, error: KubeError | LeaseLostError) -> Problem | None:
        """Say what the next attempt would hear as well, and make a pause; anything else is tried at the next tick."""
        log.warning("%s/%s: the size of new pods was not written: %s", *policy.key, error)
        if not isinstance(error, KubeError) or error.status not in REFUSED:
            return None
        return self._trouble(policy, f"{error}; correct what it names")

    def _trouble(self, policy: Policy, why: str) -> Problem:
        policy.new_pods.backoff.again(self._clock(), FIRST_SECONDS)
        return Problem("NewPodsNotSized", f"the size of new pods can be neither written nor taken back: {why}")
