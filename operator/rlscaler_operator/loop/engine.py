"""The loop: who is due, and a batch for all that are due at once and share a Prometheus."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from rlscaler_operator.actuation.apply import Actuator
from rlscaler_operator.actuation.idle import IdlePods
from rlscaler_operator.actuation.new_pods import NewPodSizes
from rlscaler_operator.actuation.resize import Resizer
from rlscaler_operator.actuation.restore import Deletion
from rlscaler_operator.actuation.size import Sizer
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.events import Events
from rlscaler_operator.cluster.holders import NodeHolders
from rlscaler_operator.cluster.kinds import TargetKinds
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.models import CONFIG_MAPS
from rlscaler_operator.cluster.references import References
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.cluster.sized_pods import SizedPods
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.loop.actors import Actors
from rlscaler_operator.loop.apply_and_report import Reconciler
from rlscaler_operator.loop.diagnose import Diagnostician
from rlscaler_operator.loop.prepare import Preparer
from rlscaler_operator.loop.sense import Sensing
from rlscaler_operator.loop.shared_budgets import SharedBudgets
from rlscaler_operator.loop.tick import DuePolicy, Ticker
from rlscaler_operator.reporting.budgets import BudgetReporter
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.publish import Publisher
from rlscaler_operator.reporting.reporter import Reporter
from rlscaler_operator.sensing.access import SECRETS, Access, access_of
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.measure import pauses
from rlscaler_operator.sensing.queries import load_seconds, windows
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


class Engine:
    """Runs all policies of the shards whose Leases this process holds."""

    def __init__(
        self, settings: Settings, kube: Kube, shards: Shards, turned: Callable[[], None] = lambda: None
    ) -> None:
        """`turned` is called each time that the loop comes round."""
        self.settings, self.shards, self._turned = settings, shards, turned
        # Whether a node is empty can be said only where the pods of all namespaces are seen.
        holders = NodeHolders() if settings.pod_deletion_cost and not settings.namespaces else None
        sizes = SizedPods() if settings.resize else None
        self.cache = WatchCache(kinds=TargetKinds(settings.target_kinds), holders=holders, sizes=sizes)
        window, _ = windows(settings)
        self.registry, self.metrics = Registry(partial(load_seconds, window=window)), Metrics()
        self._limiter = limiter = ConcurrencyLimiter(settings.write_concurrency)
        kube.on_back_off = limiter.back_off
        self._launched_at = -math.inf
        self.events = Events(kube, limiter, settings.identity)
        publisher = Publisher(
            kube, shards, limiter, settings, self.registry, self.events, self.metrics, self.forget, self._launch
        )
        self.reporter = Reporter(settings, self.events, self.metrics, publisher)
        reload_seconds = settings.reload_seconds
        self.config_maps = References(kube, CONFIG_MAPS, reload_seconds, self.wake)
        self.secrets = References(kube, SECRETS, reload_seconds, self.wake)
        self._actors = Actors(settings, self.config_maps)
        resizer = Resizer(kube, limiter, sizes, settings.write_timeout_seconds) if sizes is not None else None
        new_pods = NewPodSizes(kube, limiter, settings.write_timeout_seconds)
        sizer = Sizer(kube, shards, self.cache, resizer, new_pods, settings.resize_new_pods)
        self._deletion = Deletion(kube, shards, limiter, self.cache, self.registry, self.events, settings, sizer)
        labels = Labels.of(settings)
        idle = IdlePods(kube, limiter, self.cache, self._ask, settings.write_timeout_seconds, labels)
        self._reconciler = Reconciler(
            settings,
            shards,
            self.cache,
            self.registry,
            self.metrics,
            Diagnostician(kube, self.cache, self.registry),
            Actuator(kube, shards, limiter, self.cache, settings, idle if settings.pod_deletion_cost else None),
            sizer,
            self.reporter,
        )
        self.shadows = Shadows(settings.window_seconds)
        self.sensing = Sensing(settings, self.cache, self.registry, self.metrics, self.secrets)
        self.preparer = Preparer(settings, self.cache, self.metrics, self._actors, self.shadows, self.sensing.streams)
        self.ticker = Ticker(
            settings,
            limiter,
            self.registry,
            self.metrics,
            self.sensing,
            self.preparer,
            self.shadows,
            self._reconciler,
            self._launch,
        )
        budget_reporter = BudgetReporter(
            settings, kube, shards, limiter, self.events, self.metrics, self._forget_budget, self._launch
        )
        self.budgets = SharedBudgets(
            settings,
            kube,
            self.cache,
            self.registry,
            shards,
            budget_reporter,
            self.reporter.audit,
            lambda: self._acting,
            self.wake,
        )
        self.ticker.sharing = self.budgets.sharing
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._acting: dict[int, int] = {}
        """The shards that this process acts for now, with their terms."""
        self._soonest = math.inf
        """When the loop looks again by itself, on the monotonic clock."""
        self._terms: dict[int, int] = {}
        """The terms that policies were last adopted in."""
        self.metrics.window.set(settings.window_seconds)

    def bundled_trouble(self) -> str:
        """Why the bundled policy cannot be used; empty = it is loaded."""
        return self._actors.bundled_trouble()

    def wake(self, deployment: Key | None = None) -> None:
        """Something changed: look at the due times again; policies of `deployment` are due for a sensing tick."""
        for policy in self.registry.of_deployment(deployment) if deployment else ():
            if policy.timing.schedule is not None:
                policy.timing.schedule.hurry(time.monotonic())
        self._wake.set()

    def take_in(self, body: Mapping[str, Any]) -> None:
        """A policy is new or has changed; an edit and a pause act at once. A status alone is no news: it is ours."""
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
        """A policy is gone."""
        policy = self.registry.drop(key, uid)
        if policy is not None:
            self.shards.forget(key)
            self.budgets.forget_policy(key)
            self.shadows.forget(key)
            self.sensing.streams.forget(key)
            self.events.forget(policy.reference)
            self.metrics.forget(*key)

    def _forget_budget(self, name: str) -> None:
        self.budgets.forget(name)

    async def run(self) -> None:
        """Until cancelled; then wait a little for the ticks under way."""
        try:
            while True:
                self._turned()
                self._wake.clear()
                self._take_over()
                self.metrics.turns.inc()
                self.metrics.leader.set(bool(self._acting))
                self.metrics.policies.set(len(self.registry))
                self._soonest = self._launch_due() if self._acting else math.inf
                if self._acting:
                    self.budgets.share()
                await self._sleep()
        finally:
            stop = time.monotonic() + STOP_SECONDS
            while self._tasks and (remaining := stop - time.monotonic()) > 0:
                await asyncio.wait(self._tasks, timeout=remaining)
            for task in self._tasks:
                task.cancel()
            await self.sensing.close()
            self.reporter.close()

    def _take_over(self) -> None:
        """Start the policies of a shard anew in a new term: what was remembered from an earlier one may be outdated."""
        was, self._acting = self._acting, self.shards.holds()
        new = {shard for shard, term in self._acting.items() if self._terms.get(shard) != term}
        lost = was.keys() - self._acting.keys()
        self.budgets.taken_over(new, lost)
        if len(self._acting) < self.shards.number:
            self.metrics.keep(lambda key: self.shards.shard(key) in self._acting)
        if new:
            self._terms |= self._acting
            number = self.registry.adopt_again(lambda key: self.shards.shard(key) in new)
            log.info("acting for shards %s: %d policies", sorted(new), number)

    def _launch_due(self) -> float:
        """Start what is due. When the next of those that wait is due, on the monotonic clock; inf = none waits."""
        now = time.monotonic()
        if self._limiter.crowded and now < self._launched_at + CROWDED_SECONDS:
            # What would be decided now could not be written before those that wait.
            return self._launched_at + CROWDED_SECONDS
        due, evenly, soonest = self._collect_due(now)
        if due:
            self._launched_at = now
        batches: dict[Access, list[DuePolicy]] = defaultdict(list)
        now_due = spread([(schedule, what) for *_, schedule, what in due], evenly)
        for (policy, access, *_), what in zip(due, now_due, strict=True):
            batches[access].append((policy, what))
        for access, batch in batches.items():
            self._launch([policy for policy, _ in batch], self.ticker.tick_batch(access, batch))
        return soonest

    def _collect_due(self, now: float) -> tuple[list[tuple[Policy, Access, Schedule, Due]], float, float]:
        """What is due for a tick, how many actions each tick would have on an even spread, and when the next is due.

        What needs no tick, a policy that is being deleted or does not run, is launched at once.
        """
        due: list[tuple[Policy, Access, Schedule, Due]] = []
        soon, soonest = now + self.settings.gather_seconds, math.inf
        decided, evenly = 0, 0.0
        for policy in self.registry:
            if self.shards.shard(policy.key) not in self._acting:
                continue
            timing = policy.timing
            decided += bool(policy.decision.desired)
            evenly += timing.schedule.share if timing.schedule is not None else 0.0
            if timing.busy or timing.breaker.until > now:
                continue
            if policy.observed.deleting:
                self._launch([policy], self._deletion.run(policy))
            elif not policy.running:
                timing.schedule = policy.decision.state = None
                if self.reporter.stale(policy, now):
                    self._launch([policy], self._reconciler.report_idle(policy))
            elif timing.schedule is not None and timing.schedule.next() > soon:
                soonest = min(soonest, timing.schedule.next())
            elif (what := self._due(policy, now)) is not Due.NOTHING and timing.schedule is not None:
                access = self._access(policy)
                if access is None or self._actors.pending(policy) or self.sensing.sources.busy(access):
                    soonest = now
                    continue
                self.metrics.late(now - timing.schedule.next())
                due.append((policy, access, timing.schedule, what))
        self.metrics.decided.set(decided)
        return due, evenly, soonest

    def _due(self, policy: Policy, now: float) -> Due:
        interval, sense = float(policy.spec.interval_seconds), float(policy.spec.sense_seconds)
        schedule = policy.timing.schedule or Schedule.starting(interval, sense, now)
        policy.timing.schedule = schedule.retimed(interval, sense, now)
        return policy.timing.schedule.due(now, self.settings.gather_seconds)

    def _launch(self, policies: list[Policy], work: Coroutine[Any, Any, None]) -> None:
        """Run in the background; the policies are busy until it is done.

        The loop is woken where one of them is due before it would look by itself.
        """
        for policy in policies:
            policy.timing.busy += 1
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(finished: asyncio.Task[None]) -> None:
            self._tasks.discard(finished)
            for policy in policies:
                policy.timing.busy -= 1
            if not finished.cancelled() and (error := finished.exception()) is not None:
                log.error("a tick failed", exc_info=error)
            if any(self._has_to_be_looked_at(policy) for policy in policies):
                self._wake.set()

        task.add_done_callback(done)

    def _has_to_be_looked_at(self, policy: Policy) -> bool:
        """Is there something to do for a policy before the loop would look by itself?"""
        schedule = policy.timing.schedule
        return policy.observed.deleting or schedule is None or schedule.next() < self._soonest

    async def _sleep(self) -> None:
        """Until something is due or happens; what happens within the window is gathered into one look."""
        now = time.monotonic()
        self._soonest = min(self._soonest, now + IDLE_SECONDS)
        pause = max(0.0, self._soonest - now)
        shortest = max(self.settings.gather_seconds, SHORTEST_SECONDS)
        try:
            async with asyncio.timeout(max(pause, shortest)):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(0.0, now + shortest - time.monotonic()))

    async def _ask(self, policy: Policy, promql: str) -> list[dict[str, Any]]:
        """The series of one query at a policy's Prometheus. Raises MetricsError."""
        access = self._access(policy)
        if access is None:
            raise MetricsError("its credential is being read for the first time")
        return await self.sensing.sources.instant(access, promql)

    def _access(self, policy: Policy) -> Access | None:
        return access_of(policy.spec.metrics, policy.key, self.settings, self.secrets)


def _edit(policy: Policy) -> tuple[object, ...]:
    """What a policy acts upon at once: its spec, by the generation, and its pauses."""
    return policy.observed.generation, pauses(policy.observed.annotations)


def _seen(policy: Policy) -> tuple[object, ...]:
    """What an event may have changed, apart from the status."""
    return policy.observed.generation, policy.observed.deleting, policy.observed.annotations, policy.observed.finalizers
