"""Applying the sizes that were decided for a policy's pods: running pods are resized, and new pods begin with the size.

The size of new pods is written into `status.newPods` of the policy by a write of its own, ahead of the report: it is in
force at once. Reports leave the field alone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rlscaler_core.api.new_pods import NewPodSize
from rlscaler_core.api.resources import PodResources
from rlscaler_core.decision.types import POOLS
from rlscaler_core.vertical.quantities import text
from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.actuation.resize import Resized, Resizer
from rlscaler_operator.actuation.resize_plan import sizes as requests_of
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.kinds import titled
from rlscaler_operator.cluster.kube import Json, Kube, policy_path
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.pod_sizes import FIRST_SECONDS, Failures, is_of, new_pod_size
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.schedule import GrowingBackoff

log = logging.getLogger("rlscaler.new_pods")

REFUSED = (403, 422)
"""HTTP statuses that the next attempt would get as well."""

ABSENT: Json = {info.alias or name: None for name, info in NewPodSize.model_fields.items()}
"""A merge patch that removes every field of a size."""

DEFINITION = (
    "the CustomResourceDefinition of policies has no status.newPods; apply the one of this version "
    "(crds/rlscalingpolicies.yaml), or upgrade the chart"
)


class Round(NamedTuple):
    """Result of sizing one policy's pods in a tick."""

    patched: tuple[str, ...] = ()
    """A sentence for each pool with the number of patched pods."""
    problems: tuple[Problem, ...] = ()
    """Problems that keep pods from the size that was decided."""
    resized: Mapping[str, Resized] = MappingProxyType({})
    """Result of resizing by pool."""


def in_place(policy: Policy) -> dict[str, tuple[Key, PodResources]]:
    """Return the pools whose pods are resized while they run: the target, and `resources` of the spec."""
    pools = {}
    for pool, key in policy.facts.targets:
        target = policy.spec.targets.pool(pool)
        if target is not None and target.resources is not None and target.resources.mode == "InPlace":
            pools[pool] = key, target.resources
    return pools


class Sizer:
    """Resizes the pods of policies, and has new pods begin with the size."""

    def __init__(
        self,
        kube: Kube,
        shards: Shards,
        cache: WatchCache,
        resizer: Resizer | None,
        new_pods: NewPodSizes,
        sizes_new: bool,
    ) -> None:
        """`resizer` is None where the administrator has not allowed it; with `sizes_new` new pods are sized."""
        self._kube, self._shards, self._cache, self._resizer = kube, shards, cache, resizer
        self._new_pods, self._sizes_new = new_pods, sizes_new

    async def apply(self, policy: Policy, sizes: Mapping[str, PodSize], others: Collection[str] = ()) -> Round:
        """Do one round for each pool that is resized in place and has a size in `sizes`.

        Call it only for a policy that acts. Pools in `others` are left alone: another object sizes their pods.
        """
        pools = {pool: target for pool, target in in_place(policy).items() if pool not in others}
        policy.resizes = {pool: policy.resizes.get(pool, Failures()) for pool in pools}
        if self._resizer is None:
            left = await self.withdraw(policy)
            return Round(problems=(*(_not_allowed(pool) for pool in pools), *left))
        known = [pool for pool in pools if pool in sizes]
        results = await asyncio.gather(*(self._round(policy, pool, *pools[pool], sizes[pool]) for pool in known))
        resized = dict(zip(known, results, strict=True))
        problems = [problem for result in results for problem in result.problems]
        problems += await self._size_new(policy, pools, sizes, resized)
        patched = tuple(
            f"{pool} {pools[pool][0][1]}: {len(result.patched)} pods to {_words(sizes[pool])}"
            for pool, result in resized.items()
            if result.patched
        )
        return Round(patched, tuple(problems), resized)

    async def withdraw(self, policy: Policy) -> list[Problem]:
        """Have new pods of a policy that does not act begin as their templates say; return problems of the write."""
        problem = await self._new_pods.keep(self._shards.of(policy.key), policy, {})
        return [] if problem is None else [problem]

    async def restore(self, policy: Policy, sizes: Mapping[str, PodSize]) -> bool:
        """Bring the pods back to the size of their template; return False while there is more to be done.

        `sizes` are those decided last: only their bytes count below which memory is not lowered. A refused resize stays
        as it is. Raises KubeError where a target cannot be read.
        """
        if self._resizer is None:
            return True
        over = True
        for pool, (target, resources) in in_place(policy).items():
            body = await self._target(target)
            if body is None:
                continue
            size = template_size(body, resources, sizes.get(pool, PodSize()).least_memory)
            policy.resizes.setdefault(pool, Failures())
            resized = await self._round(policy, pool, target, resources, size)
            # A refused resize would be refused again: deletion does not wait for it.
            over &= not resized.unsettled or bool(resized.problems)
        return over

    async def _target(self, key: Key) -> Json | None:
        """Read a target; None where it does not exist, or its kind is not enabled any more."""
        kind = self._cache.kinds.of(key[1])
        if kind is None:
            return None
        try:
            return await self._kube.get(kind.path(key))
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def _round(self, policy: Policy, pool: str, target: Key, resources: PodResources, size: PodSize) -> Resized:
        assert self._resizer is not None
        lease, failures = self._shards.of(policy.key), policy.resizes[pool]
        return await self._resizer.resize(lease, target, size, resources.container, failures)

    async def _size_new(
        self,
        policy: Policy,
        pools: Mapping[str, tuple[Key, PodResources]],
        sizes: Mapping[str, PodSize],
        resized: Mapping[str, Resized],
    ) -> list[Problem]:
        """Have new pods begin with a size once a pod runs with it; until then the size before stays in force.

        A size of a target or a container that the spec does not name any more goes at once.
        """
        if not self._sizes_new:
            return await self.withdraw(policy)
        there, refused, wanted = policy.observed.new_pods, {}, {}
        for pool, (target, resources) in pools.items():
            deployment, selector = self._cache.deployments.get(target), self._cache.selector_of(target)
            size = there[pool] if pool in there and is_of(there[pool], target, selector, resources) else None
            if deployment is not None and deployment.refused:
                # The API server takes no pods of this size: their template's size lets them start.
                refused[pool] = _refused(target, deployment.refused)
                continue
            if pool in resized:
                new = new_pod_size(target, selector, resources, sizes[pool])
                if new is None:
                    continue
                # Only a proven size: a refused one would keep pods from starting, and then none could be looked at.
                if resized[pool].proven and not self._new_pods.holds(policy, pool):
                    size = new.to_dict()
            if size is not None:
                wanted[pool] = size
        problem = await self._new_pods.keep(self._shards.of(policy.key), policy, wanted)
        for pool in refused.keys() & (there.keys() - policy.observed.new_pods.keys()):
            self._new_pods.hold(policy, pool)
        return [*refused.values(), *([] if problem is None else [problem])]


class NewPodSizes:
    """Writes `status.newPods` of policies. Its memory is in `Policy.new_pods`."""

    def __init__(
        self,
        limiter: ConcurrencyLimiter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limiter, self._clock = limiter, clock

    async def keep(self, lease: Lease, policy: Policy, wanted: Mapping[str, Json]) -> Problem | None:
        """Write the sizes by pool that are wanted, and no others; do nothing where they are there already.

        The written sizes are in `policy.observed.new_pods`. Never raises for an answer of the API.
        """
        there, state = policy.observed.new_pods, policy.new_pods
        if state.pools != wanted.keys():
            state.pools, state.backoff = frozenset(wanted), GrowingBackoff()
        if there == wanted:
            state.problem = None
        elif not state.backoff.waits(self._clock()):
            state.problem = await self._write(lease, policy, wanted)
        return state.problem

    async def _write(self, lease: Lease, policy: Policy, wanted: Mapping[str, Json]) -> Problem | None:
        # Both pools whole: the sizes seen last may be older than the object.
        sizes = {pool: ABSENT | wanted[pool] if pool in wanted else None for pool in POOLS}
        path = policy_path(policy.key, "status")
        try:
            async with self._limiter.slot(Priority.SCALE):
                body = {"status": {"newPods": sizes if wanted else None}}
                answer = await lease.patch(path, body)
        except (KubeError, LeaseLostError) as error:
            log.warning("%s/%s: the size of new pods was not written: %s", *policy.key, error)
            # Any other error is tried again at the next tick.
            refused = isinstance(error, KubeError) and error.status in REFUSED
            return self._trouble(policy, f"{error}; correct what it names") if refused else None
        policy.observed.wrote_new_pods(answer)
        return None if policy.observed.new_pods == wanted else self._trouble(policy, DEFINITION)

    def holds(self, policy: Policy, pool: str) -> bool:
        """Return whether a pool's new pods begin as their template says until a pause is over."""
        return pool in policy.new_pods.held and policy.new_pods.held[pool].waits(self._clock())

    def hold(self, policy: Policy, pool: str) -> None:
        """Begin a pause without a size for a pool's new pods: the size that they got was refused."""
        policy.new_pods.held.setdefault(pool, GrowingBackoff()).again(self._clock(), FIRST_SECONDS)

    def _trouble(self, policy: Policy, why: str) -> Problem:
        policy.new_pods.backoff.again(self._clock(), FIRST_SECONDS)
        return Problem("NewPodsNotSized", f"the size of new pods can be neither written nor taken back: {why}")


def template_size(body: Mapping[str, Any], resources: PodResources, least_memory: float) -> PodSize:
    """Return the requests of a target's template, of the resources that are sized; NaN where it has none."""
    containers = body["spec"]["template"]["spec"]["containers"]
    matches = [container for container in containers if resources.container in (container["name"], None)]
    requests = requests_of((matches[0].get("resources") or {}).get("requests")) if len(matches) == 1 else {}
    cpu = math.nan if resources.cpu is None else requests.get("cpu", math.nan)
    memory = math.nan if resources.memory is None else requests.get("memory", math.nan)
    return PodSize(cpu, memory, least_memory)


def _words(size: PodSize) -> str:
    known = {"cpu": size.cpu, "memory": size.memory}
    return ", ".join(f"{name} {text(name, value)}" for name, value in known.items() if not math.isnan(value))


def _refused(target: Key, message: str) -> Problem:
    text = (
        f"the API server takes no new pods of {titled(target[1])}, which begin as their template says until it does: "
        f"{message}; raise the ResourceQuota or correct the LimitRange, or lower the largest size"
    )
    return Problem("NewPodsRefused", text)


def _not_allowed(pool: str) -> Problem:
    message = (
        f"spec.targets.{pool}.resources.mode is InPlace, and the operator may not resize pods: ask its administrator "
        "for operator.resize of the chart, or use mode Recommend"
    )
    return Problem("ResizeNotAllowed", message)
