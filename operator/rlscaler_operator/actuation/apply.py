"""Bringing one decision into the cluster: growth, then originals and traffic weights, then shrinking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from rlscaler_core.api.status_memory import Originals, PoolCounts
from rlscaler_core.decision.types import POOLS, Decision
from rlscaler_operator.actuation.backends import Weights
from rlscaler_operator.actuation.drain import Need
from rlscaler_operator.actuation.idle import IdlePods
from rlscaler_operator.actuation.pod_sizes import Round
from rlscaler_operator.actuation.restore import FINALIZER, write_finalizer
from rlscaler_operator.actuation.scale import Write, write_replicas
from rlscaler_operator.actuation.weights import WeightWriter
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.kube import Kube, policy_path
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.refusals import Refusal
from rlscaler_operator.state.status import merge_patch
from rlscaler_operator.state.traffic import UNKNOWN


@dataclass(slots=True)
class Applied:
    """Result of one decision's writes."""

    writes: dict[str, Write] = field(default_factory=dict)
    """Writes by pool, of the pools whose replicas had to change."""
    weights_problem: Problem | None = None
    warnings: list[Problem] = field(default_factory=list)
    """Problems that are worth an Event each and no condition."""
    weights: Weights | None = None
    """The decided traffic weights."""
    sizes: Round = field(default_factory=Round)
    """Result of sizing the pods."""

    @property
    def failed(self) -> bool:
        """Did a write fail for a reason that is neither a refusal nor a conflict or a lost lease?"""
        return any(write.outcome == "Failed" for write in self.writes.values())

    @property
    def complete(self) -> bool:
        return all(write.applied for write in self.writes.values())

    def result(self) -> str:
        return "; ".join(f"{write.outcome}: {write.message}" for write in self.writes.values())


class Actuator:
    """Writes decisions; replicas and routes before anything that is only read by people."""

    def __init__(
        self,
        kube: Kube,
        shards: Shards,
        limiter: ConcurrencyLimiter,
        cache: WatchCache,
        settings: Settings,
        idle: IdlePods | None = None,
    ) -> None:
        """`idle` marks the pods that should go; without it their ReplicaSet chooses."""
        self._kube, self._shards, self._limiter, self._cache, self._idle = kube, shards, limiter, cache, idle
        self.weight_writer = WeightWriter(kube, shards, limiter, cache, settings)

    async def apply(self, policy: Policy, decision: Decision, need: Need) -> Applied:
        """Write replicas and weights of a decision; shrinking waits for traffic to leave and for recorded originals.

        Replicas that a pool may not give back yet are in `policy.traffic.pending`, for the next sensing tick. Growing
        never waits. Without `restoreOnDelete` the originals are recorded with the next status.
        """
        changes = {
            pool: (int(decision.base[0, i]), int(decision.desired[0, i]))
            for i, pool in enumerate(POOLS)
            if policy.deployments[i] and decision.base[0, i] != decision.desired[0, i]
        }
        weights = (int(decision.weights[0, 0]), int(decision.weights[0, 1]))
        applied = Applied(weights=weights)
        if policy.ownership.originals is None and (changes or self.weight_writer.moves(policy, weights)):
            policy.ownership.originals = self.picture(policy)
        # Growth is urgent and safe; shrinking waits for originals on record and for traffic to leave.
        growing = {pool: change for pool, change in changes.items() if change[1] > change[0]}
        shrinking = {pool: change for pool, change in changes.items() if pool not in growing}
        # Only where they are put back must the originals be on record before anything changes.
        restores = policy.spec.restore_on_delete or FINALIZER in policy.observed.finalizers
        problem = await self._record_before_changes(policy) if restores else None
        applied.writes = await self._scale_all(policy, growing)
        if not restores and shrinking:
            problem = await self._record_before_changes(policy)
        written, applied.warnings = await self.weight_writer.write(policy, weights)
        applied.weights_problem = written.problem or problem
        # Shares of more than one together: a rule sends to one pool alone, or there is no route.
        shares = policy.traffic.shift.shares or UNKNOWN
        policy.traffic.follows = written.in_force and written.problem is None and sum(shares) < 1 + 1e-9
        running = (int(decision.base[0, 0]), int(decision.base[0, 1]))
        needed = running
        if written.went_through and problem is None:
            needed = self.weight_writer.fewest(policy, need, written.in_force, running)
            emptied = [i for i, pool in enumerate(POOLS) if shrinking.get(pool, (0, 1))[1] == 0]
            applied.weights_problem = written.problem or self.weight_writer.still_sent_to(policy, emptied)
        await self._shrink(policy, shrinking, dict(zip(POOLS, needed, strict=True)), applied)
        return applied

    async def _shrink(
        self, policy: Policy, wanted: Mapping[str, tuple[int, int]], least_by_pool: Mapping[str, int], applied: Applied
    ) -> None:
        """Shrink pools as `wanted`, from and to, but not below the replicas in `kept`; the rest is pending."""
        waiting = Write("Waiting", "not scaled down before originals are recorded and its traffic has gone elsewhere")
        now = {pool: (base, max(desired, least_by_pool[pool])) for pool, (base, desired) in wanted.items()}
        applied.writes |= dict.fromkeys((pool for pool, (base, least) in now.items() if least >= base), waiting)
        applied.writes |= await self._scale_all(
            policy, {pool: (base, least) for pool, (base, least) in now.items() if least < base}
        )
        # Pending replicas are valid only for the generation of the spec that they were decided for.
        left = {pool: desired for pool, (_, desired) in wanted.items() if least_by_pool[pool] > desired}
        policy.traffic.pending, policy.traffic.generation = left, policy.observed.generation

    async def _scale_all(self, policy: Policy, changes: Mapping[str, tuple[int, int]]) -> dict[str, Write]:
        writes = await asyncio.gather(*(self._scale(policy, pool, *change) for pool, change in changes.items()))
        return dict(zip(changes, writes, strict=True))

    async def _record_before_changes(self, policy: Policy) -> Problem | None:
        """Write finalizer and originals, where a restart finds them; a failed write is tried again at the next tick."""
        try:
            if policy.spec.restore_on_delete != (FINALIZER in policy.observed.finalizers):
                async with self._limiter.slot(Priority.SCALE):
                    seen = policy.observed
                    wanted = seen.parsed is not None and policy.spec.restore_on_delete and not seen.deleting
                    await write_finalizer(self._shards.of(policy.key), policy, wanted)
            originals = policy.ownership.originals
            if originals is not None and policy.outbox.status.get("originals") != originals.to_dict():
                await self._record_originals(policy, originals)
        except (KubeError, LeaseLostError) as error:
            return Problem("PolicyNotWritten", f"finalizer or status.originals: {error}")
        return None

    def picture(self, policy: Policy) -> Originals:
        """Replicas and weights as they are now, before anything is changed."""
        deployments, weights = policy.deployments_in(self._cache), self.weight_writer.original(policy)
        return Originals(
            time=datetime.now(UTC),
            replicas=PoolCounts(**{pool: d.replicas for pool, d in deployments.items() if d is not None}),
            weights=PoolCounts(gpu=weights[0], cpu=weights[1]) if weights else None,
        )

    async def _record_originals(self, policy: Policy, originals: Originals) -> None:
        before = {name: value for name, value in policy.outbox.status.items() if name == "originals"}
        path = policy_path(policy.key, "status")
        body = {"status": merge_patch(before, {"originals": originals.to_dict()})}
        async with self._limiter.slot(Priority.SCALE):
            await self._shards.of(policy.key).patch(path, body)
        policy.outbox.wrote_originals(originals.to_dict())

    async def _scale(self, policy: Policy, pool: str, base: int, desired: int) -> Write:
        name = policy.deployments[POOLS.index(pool)]
        assert name is not None
        key = (policy.key[0], name)
        # Pods are marked right before the write, while the answer about their work is fresh.
        if self._idle is not None and desired < base:
            await self._idle.mark(policy, name, base - desired)
        async with self._limiter.slot(Priority.SCALE):
            began = time.monotonic()
            lease = self._shards.of(policy.key)
            write = await write_replicas(self._kube, lease, self._cache, key, base, desired)
        if write.applied:
            policy.ownership.wrote(name, desired)
        elif write.outcome == "Refused":
            refusal = policy.ownership.refusals.setdefault(name, Refusal())
            refusal.refused(base, desired, write.message, time.monotonic())
        return replace(write, seconds=time.monotonic() - began)
