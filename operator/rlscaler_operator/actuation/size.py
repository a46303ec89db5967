"""Bringing the sizes that were decided for a policy's pods into the cluster, where its spec says InPlace."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rlscaler_core.api.resources import PodResources
from rlscaler_core.vertical.quantities import text
from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.actuation.new_pods import NewPodSizes
from rlscaler_operator.actuation.resize import Resized, Resizer
from rlscaler_operator.actuation.resize_plan import sizes as asked_by
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kinds import titled
from rlscaler_operator.cluster.kube import Json, Kube
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.new_pods import is_of, new_pod_size
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.resizes import Failures


class Round(NamedTuple):
    """What became of the sizes of one policy's pods in a tick."""

    patched: tuple[str, ...] = ()
    """A sentence for each pool of which pods were patched."""
    problems: tuple[Problem, ...] = ()
    """What keeps pods from the size that was decided."""
    resized: Mapping[str, Resized] = MappingProxyType({})
    """What was done, by pool."""


def in_place(policy: Policy) -> dict[str, tuple[Key, PodResources]]:
    """Return the pools whose pods are resized while they run: the target and what the spec says of its pods."""
    found = {}
    for pool, key in policy.facts.targets:
        target = policy.spec.targets.pool(pool)
        if target is not None and target.resources is not None and target.resources.mode == "InPlace":
            found[pool] = key, target.resources
    return found


class Sizer:
    """Resizes the pods of policies, and says how large new ones begin."""

    def __init__(
        self,
        kube: Kube,
        shards: Shards,
        cache: WatchCache,
        resizer: Resizer | None,
        new_pods: NewPodSizes,
        sizes_new: bool,
    ) -> None:
        """`resizer` is None where the administrator has not allowed it; `sizes_new` says whether new pods are sized."""
        self._kube, self._shards, self._cache, self._resizer = kube, shards, cache, resizer
        self._new_pods, self._sizes_new = new_pods, sizes_new

    async def apply(self, policy: Policy, sizes: Mapping[str, PodSize], others: Collection[str] = ()) -> Round:
        """Do one round for each pool that is resized in place and has a size in `sizes`.

        Call it only for a policy that acts. Pools in `others` are left alone: something else sizes their pods.
        """
        pools = {pool: found for pool, found in in_place(policy).items() if pool not in others}
        policy.resizes = {pool: policy.resizes.get(pool, Failures()) for pool in pools}
        if self._resizer is None:
            left = await self.withdraw(policy)
            return Round(problems=(*(_not_allowed(pool) for pool in pools), *left))
        known = [pool for pool in pools if pool in sizes]
        done = await asyncio.gather(*(self._round(policy, pool, *pools[pool], sizes[pool]) for pool in known))
        resized = dict(zip(known, done, strict=True))
        problems = [problem for one in done for problem in one.problems]
        problems += await self._size_new(policy, pools, sizes, resized)
        patched = tuple(
            f"{pool} {pools[pool][0][1]}: {len(one.patched)} pods to {_words(sizes[pool])}"
            for pool, one in resized.items()
            if one.patched
        )
        return Round(patched, tuple(problems), resized)

    async def withdraw(self, policy: Policy) -> list[Problem]:
        """Have new pods of a policy that does not act begin as their templates say; return what keeps them from it."""
        problem = await self._new_pods.keep(self._shards.of(policy.key), policy, {})
        return [] if problem is None else [problem]

    async def restore(self, policy: Policy, sizes: Mapping[str, PodSize]) -> bool:
        """Bring the pods back to the size of their template; return False while there is more to be done.

        Of `sizes`, what was decided last, only the bytes count below which memory is not lowered. What is refused stays
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
            failures = policy.resizes.setdefault(pool, Failures())
            lease = self._shards.of(policy.key)
            resized = await self._resizer.resize(lease, target, size, resources.container, failures)
            over &= not resized.unsettled or bool(resized.problems)
        return over

    async def _target(self, key: Key) -> Json | None:
        """Read a target; None where it is not there, or of a kind that is not enabled any more."""
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
        """Have new pods begin with a size once a pod runs with it; until then what was in force before stays.

        A size that the API server refuses would keep pods from starting, and then there would be none to look at. What
        is of a target or a container that the spec does not name any more goes at once.
        """
        if not self._sizes_new:
            return await self.withdraw(policy)
        there, refused, wanted = policy.observed.new_pods, {}, {}
        for pool, (target, resources) in pools.items():
            found, selector = self._cache.deployments.get(target), self._cache.selector_of(target)
            size = there[pool] if pool in there and is_of(there[pool], target, selector, resources) else None
            if found is not None and found.refused:
                refused[pool] = _refused(target, found.refused)
                continue
            if pool in resized:
                new = new_pod_size(target, selector, resources, sizes[pool])
                if new is None:
                    continue
                if resized[pool].proven and not self._new_pods.holds(policy, pool):
                    size = new.to_dict()
            if size is not None:
                wanted[pool] = size
        problem = await self._new_pods.keep(self._shards.of(policy.key), policy, wanted)
        for pool in refused.keys() & (there.keys() - policy.observed.new_pods.keys()):
            self._new_pods.hold(policy, pool)
        return [*refused.values(), *([] if problem is None else [problem])]


def template_size(body: Mapping[str, Any], resources: PodResources, least_memory: float) -> PodSize:
    """Return what a target's template asks for, of the resources that are sized; NaN where it does not say."""
    containers = body["spec"]["template"]["spec"]["containers"]
    of = [one for one in containers if resources.container in (one["name"], None)]
    asked = asked_by((of[0].get("resources") or {}).get("requests")) if len(of) == 1 else {}
    cpu = math.nan if resources.cpu is None else asked.get("cpu", math.nan)
    memory = math.nan if resources.memory is None else asked.get("memory", math.nan)
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
