"""The loop: find the due policies, and launch a batch for all that are due at once and share a Prometheus."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlscaler_core.decision.actor import Actor
from rlscaler_operator.actuation.restore import Deletion
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.events import Events
from rlscaler_operator.cluster.references import References
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.loop.actors import Actors
from rlscaler_operator.loop.apply_and_report import Reconciler
from rlscaler_operator.loop.background import Background
from rlscaler_operator.loop.fence import Fence
from rlscaler_operator.loop.operators import OtherOperators
from rlscaler_operator.loop.prepare import Preparer
from rlscaler_operator.loop.sense import Sensing
from rlscaler_operator.loop.shared_budgets import SharedBudgets
from rlscaler_operator.loop.tick import DuePolicy, Ticker
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.reporter import Reporter
from rlscaler_operator.sensing.access import Access, Secret
from rlscaler_operator.sensing.measure import pauses
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.shadows import Shadows
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.schedule import Due, Schedule, spread

log = logging.getLogger("rlscaler.engine")

IDLE_SECONDS = 1.0
"""Longest sleep of the loop: a lease that was lost or won is noticed within this time."""

SHORTEST_SECONDS = 0.005
"""Shortest sleep where nothing wakes the loop."""

CROWDED_SECONDS = 5.0
"""Longest time between two looks at the policies while a crowd of scale writes waits."""

STOP_SECONDS = 2.0


@dataclass(slots=True)
class _Look:
    """One look at all policies, at the monotonic time `now`."""

    now: float
    due: list[tuple[Policy, Access, Schedule, Due]] = field(default_factory=list)
    evenly: float = 0.0
    """Actions per tick on an even spread."""
    soonest: float = math.inf
    """When the next waiting policy is due."""
    decided: int = 0
    """Policies for which something was decided."""


@dataclass(eq=False)
class Engine:
    """Runs all policies of the shards whose Leases this process holds. `loop.wiring.build_engine` makes its parts."""

    settings: Settings
    shards: Shards
    background: Background
    fence: Fence
    metrics: Metrics
    limiter: ConcurrencyLimiter
    cache: WatchCache
    registry: Registry
    events: Events
    config_maps: References[Actor]
    secrets: References[Secret]
    actors: Actors
    shadows: Shadows
    sensing: Sensing
    preparer: Preparer
    reporter: Reporter
    reconciler: Reconciler
    operators: OtherOperators
    deletion: Deletion
    budgets: SharedBudgets
    ticker: Ticker
    turned: Callable[[], None]
    """Called at each turn of the loop."""
    acting: dict[int, int] = field(default_factory=dict)
    """The shards that this process acts for now, with their terms."""
    _terms: dict[int, int] = field(default_factory=dict)
    """The terms in which policies were last adopted."""
    _launched_at: float = -math.inf
    """Monotonic time of the last batch."""

    def bundled_trouble(self) -> str:
        """Return why the bundled policy cannot be used; empty = it is loaded."""
        return self.actors.bundled_trouble()

    def wake(self, deployment: Key | None = None) -> None:
        """Look at the due times again after a change; policies of `deployment` are due for a sensing tick."""
        for policy in self.registry.of_deployment(deployment) if deployment else ():
            if policy.timing.schedule is not None:
                policy.timing.schedule.hurry(time.monotonic())
        self.background.wake.set()

    def take_in(self, body: Mapping[str, Any]) -> None:
        """Take in a policy that is new or has changed; an edit and a pause act at once."""
        metadata = body["metadata"]
        old = self.registry.get((metadata.get("namespace", ""), metadata["name"]))
        before = old and _seen(old)
        edit_before = old and _edit(old)
        policy = self.registry.put(body)
        self.budgets.take_in_policy(policy.key, metadata.get("labels") or {}, body.get("status"))
        if policy is old and _seen(policy) == before:
            return
        if edit_before and edit_before[0] != policy.observed.generation:
            self.metrics.forget(*policy.key)
        if edit_before and edit_before != _edit(policy):
            if policy.timing.schedule is not None:
                policy.timing.schedule.hurry(time.monotonic())
            policy.timing.breaker.succeeded()
        self.wake()

    def forget(self, key: Key, uid: str) -> None:
        """Forget a policy that is gone."""
        policy = self.registry.drop(key, uid)
        if policy is not None:
            self.shards.forget(key)
            self.budgets.forget_policy(key)
            self.shadows.forget(key)
            self.sensing.streams.forget(key)
            self.events.forget(policy.reference)
            self.metrics.forget(*key)

    async def run(self) -> None:
        """Run until cancelled; then wait a little for the ticks under way."""
        try:
            while True:
                self.turned()
                self.background.wake.clear()
                # First the shards: ticks and reports below are only for policies that this process acts for.
                self._take_over()
                self.metrics.turns.inc()
                self.metrics.leader.set(bool(self.acting))
                self.metrics.policies.set(len(self.registry))
                self.background.next_look = self._launch_due() if self.acting else math.inf
                if self.acting:
                    self.fence.without_policy("share budgets", self.budgets.share)
                await self._sleep()
        finally:
            await self.background.stop(STOP_SECONDS)
            await self.sensing.close()
            self.reporter.close()

    def _take_over(self) -> None:
        """Start the policies of a shard anew in a new term: the memory from an earlier term may be outdated."""
        was, self.acting = self.acting, self.shards.holds()
        new = {shard for shard, term in self.acting.items() if self._terms.get(shard) != term}
        lost = was.keys() - self.acting.keys()
        self.budgets.taken_over(new, lost)
        if len(self.acting) < self.shards.number:
            self.metrics.keep(lambda key: self.shards.shard(key) in self.acting)
        if new:
            self._terms |= self.acting
            policies = [policy for policy in self.registry if self.shards.shard(policy.key) in new]
            for policy in policies:
                self.fence.run(policy, "take it over", self.registry.adopt, policy)
            log.info("acting for shards %s: %d policies", sorted(new), len(policies))

    def _launch_due(self) -> float:
        """Launch the due ticks; return when the next waiting policy is due, on the monotonic clock, or inf."""
        now = time.monotonic()
        if self.limiter.crowded and now < self._launched_at + CROWDED_SECONDS:
            # What would be decided now could not be written before those that wait.
            return self._launched_at + CROWDED_SECONDS
        look = self._collect_due(now)
        if look.due:
            self._launched_at = now
        batches: dict[Access, list[DuePolicy]] = defaultdict(list)
        now_due = spread([(schedule, what) for *_, schedule, what in look.due], look.evenly)
        for (policy, access, *_), what in zip(look.due, now_due, strict=True):
            batches[access].append((policy, what))
        for access, batch in batches.items():
            self.background.launch([policy for policy, _ in batch], self.ticker.tick_batch(access, batch))
        return look.soonest

    def _collect_due(self, now: float) -> _Look:
        """Return the due policies.

        A policy that needs no tick, because it is being deleted or does not run, is launched at once.
        """
        look = _Look(now)
        for policy in self.registry:
            if self.shards.shard(policy.key) in self.acting:
                self.fence.run(policy, "see whether it is due", self._look_at, policy, look)
        self.metrics.decided.set(look.decided)
        return look

    def _look_at(self, policy: Policy, look: _Look) -> None:
        """Add a policy to the due ones, or launch the task that it needs."""
        timing, now = policy.timing, look.now
        look.decided += bool(policy.decision.desired)
        look.evenly += timing.schedule.share if timing.schedule is not None else 0.0
        # A tick or write under way ends first; its end wakes the loop.
        if timing.busy or timing.breaker.until > now or self.operators.stands_by(policy, now):
            return
        if policy.observed.deleting:
            self.background.launch([policy], self.deletion.run(policy))
        elif not policy.running:
            timing.schedule = policy.decision.state = None
            if self.reporter.stale(policy, now):
                self.background.launch([policy], self.reconciler.report_idle(policy))
        elif timing.schedule is not None and timing.schedule.next() > now + self.settings.gather_seconds:
            look.soonest = min(look.soonest, timing.schedule.next())
        elif (what := self._due(policy, now)) is not Due.NOTHING and timing.schedule is not None:
            access = self.sensing.access(policy)
            if access is None or self.actors.pending(policy) or self.sensing.sources.busy(access):
                look.soonest = now
                return
            self.metrics.late(now - timing.schedule.next())
            look.due.append((policy, access, timing.schedule, what))

    def _due(self, policy: Policy, now: float) -> Due:
        interval, sense = float(policy.spec.interval_seconds), float(policy.spec.sense_seconds)
        schedule = policy.timing.schedule or Schedule.starting(interval, sense, now)
        policy.timing.schedule = schedule.retimed(interval, sense, now)
        return policy.timing.schedule.due(now, self.settings.gather_seconds)

    async def _sleep(self) -> None:
        """Sleep until a policy is due or the loop is woken; events within the window are gathered into one look."""
        now = time.monotonic()
        self.background.next_look = min(self.background.next_look, now + IDLE_SECONDS)
        pause = max(0.0, self.background.next_look - now)
        # Events come in bursts, such as a rollout: one look serves all of a window.
        shortest = max(self.settings.gather_seconds, SHORTEST_SECONDS)
        try:
            async with asyncio.timeout(max(pause, shortest)):
                await self.background.wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(0.0, now + shortest - time.monotonic()))


def _edit(policy: Policy) -> tuple[object, ...]:
    """Return the parts of a policy that act at once: its spec, by the generation, and its pauses."""
    return policy.observed.generation, pauses(policy.observed.annotations)


def _seen(policy: Policy) -> tuple[object, ...]:
    """Return the parts of a policy that an event may have changed, apart from the status."""
    return policy.observed.generation, policy.observed.deleting, policy.observed.annotations, policy.observed.finalizers
