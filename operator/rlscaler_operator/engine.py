"""The loop: collect the policies that are due, sense once per Prometheus, decide once, write concurrently, report."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

from rlscaler_operator.actors import Actors
from rlscaler_operator.actuation.apply import Actuator
from rlscaler_operator.actuation.deletion import Deletion
from rlscaler_operator.actuation.ownership import Claim
from rlscaler_operator.api import Status
from rlscaler_operator.decisions import Entry, Kind, Outcome, decide_all, fresh_state, with_stack
from rlscaler_operator.judge import Judge
from rlscaler_operator.kube import Kube
from rlscaler_operator.lease import Lease
from rlscaler_operator.models import CONFIG_MAPS
from rlscaler_operator.policies import Policy, Registry
from rlscaler_operator.references import References
from rlscaler_operator.reporting.events import Events
from rlscaler_operator.reporting.findings import Problem
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.report import Reporter
from rlscaler_operator.reporting.stabilization import restore, restore_placement
from rlscaler_operator.schedule import Due, Schedule, earliest
from rlscaler_operator.sensing.access import SECRETS, Access, access_of
from rlscaler_operator.sensing.cache import Key, WatchCache
from rlscaler_operator.sensing.learn import learned
from rlscaler_operator.sensing.measure import measure, nothing_measured, to_samples
from rlscaler_operator.sensing.prometheus import Answers, Sources
from rlscaler_operator.sensing.queries import batch
from rlscaler_operator.settings import Settings
from rlscaler_rl.decision.types import POOLS

log = logging.getLogger("rlscaler.engine")

IDLE_SECONDS = 1.0
"""Longest sleep of the loop: a lease that was lost or won is noticed within this time."""

SHORTEST_SECONDS = 0.005
"""Shortest sleep where nothing wakes the loop."""

STOP_SECONDS = 2.0

Item = tuple[Policy, Due]


class Engine:
    """Runs all policies while this process holds the lease."""

    def __init__(self, settings: Settings, kube: Kube, lease: Lease) -> None:
        self.settings, self.lease = settings, lease
        self.cache, self.registry, self.metrics = WatchCache(), Registry(), Metrics()
        self.events = Events(kube, settings.identity)
        self.reporter = Reporter(kube, lease, settings, self.events, self.metrics, self.forget)
        reload_seconds = settings.reload_seconds
        self.config_maps = References(kube, CONFIG_MAPS, reload_seconds, self.wake)
        self.secrets = References(kube, SECRETS, reload_seconds, self.wake)
        self._actors = Actors(settings, self.config_maps)
        self._judge = Judge(kube, self.cache, self.registry)
        self._actuator = Actuator(kube, lease, self.cache, settings)
        self._deletion = Deletion(kube, lease, self.cache, self.events, settings)
        self._sources = Sources(settings.prometheus_timeout_seconds)
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._epoch = time.time() - time.monotonic()
        self.metrics.window.set(settings.window_seconds)

    def wake(self, deployment: Key | None = None) -> None:
        """Something changed: look at the due times again; policies of `deployment` are due for a sensing tick."""
        for policy in self.registry.of_deployment(deployment) if deployment else ():
            if policy.schedule is not None:
                policy.schedule.hurry(time.monotonic())
        self._wake.set()

    def forget(self, key: Key, uid: str) -> None:
        """A policy is gone."""
        policy = self.registry.drop(key, uid)
        if policy is not None:
            self.events.forget(policy.reference)
            self.metrics.forget(*key)

    async def run(self) -> None:
        """Until cancelled; then wait a little for the ticks under way."""
        leading = False
        try:
            while True:
                self._wake.clear()
                if self.lease.held and not leading:
                    self._start_over()
                leading = self.lease.held
                self.metrics.leader.set(leading)
                self.metrics.policies.set(len(self.registry))
                if leading:
                    self._launch_due()
                await self._sleep()
        finally:
            stop = time.monotonic() + STOP_SECONDS
            while self._tasks and (remaining := stop - time.monotonic()) > 0:
                await asyncio.wait(self._tasks, timeout=remaining)
            for task in self._tasks:
                task.cancel()
            self._sources.close()
            self.reporter.close()

    def _start_over(self) -> None:
        """Taking over: nothing that was remembered from an earlier term counts any more."""
        self.registry.adopt_again()
        log.info("acting: %d policies", len(self.registry))

    def _launch_due(self) -> None:
        now = time.monotonic()
        groups: dict[Access, list[Item]] = defaultdict(list)
        for policy in self.registry:
            if policy.busy:
                continue
            if policy.deleting:
                self._launch([policy], self._deletion.run(policy))
            elif not policy.running:
                policy.schedule = policy.state = None
                if self.reporter.stale(policy, now):
                    self._launch([policy], self._idle(policy))
            elif (due := self._due(policy, now)) is not Due.NOTHING:
                access = self._access(policy)
                if access is None or self._actors.pending(policy):
                    continue
                groups[access].append((policy, due))
        for access, items in groups.items():
            self._launch([policy for policy, _ in items], self._tick(access, items))

    def _due(self, policy: Policy, now: float) -> Due:
        interval, sense = float(policy.spec.interval_seconds), float(policy.spec.sense_seconds)
        if policy.schedule is None:
            policy.schedule = Schedule.starting(interval, sense, now)
        policy.schedule = policy.schedule.retimed(interval, sense, now)
        return policy.schedule.due(now, self.settings.gather_seconds)

    def _launch(self, policies: list[Policy], work: Coroutine[Any, Any, None]) -> None:
        """Run in the background; the policies are busy until it is done.

        The loop is woken where one of them is due before it would look by itself.
        """
        for policy in policies:
            policy.busy += 1
        task = asyncio.create_task(work)
        self._tasks.add(task)

        def done(finished: asyncio.Task[None]) -> None:
            self._tasks.discard(finished)
            for policy in policies:
                policy.busy -= 1
            if not finished.cancelled() and (error := finished.exception()) is not None:
                log.error("a tick failed", exc_info=error)
            soon = time.monotonic() + IDLE_SECONDS
            if any(p.deleting or p.schedule is None or p.schedule.next() <= soon for p in policies):
                self._wake.set()

        task.add_done_callback(done)

    async def _sleep(self) -> None:
        now = time.monotonic()
        waiting = [p for p in self.registry if p.running and not p.busy] if self.lease.held else []
        schedules = [p.schedule for p in waiting if p.schedule is not None]
        pause = min(IDLE_SECONDS, max(0.0, earliest(schedules, now + IDLE_SECONDS) - now))
        try:
            async with asyncio.timeout(max(pause, self.settings.gather_seconds, SHORTEST_SECONDS)):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _access(self, policy: Policy) -> Access | None:
        return access_of(policy, self.settings, self.secrets)

    async def _tick(self, access: Access, items: list[Item]) -> None:
        """One batch: all of it shares a Prometheus, so a dead one holds up nobody else.

        Each policy's writes and report run on their own, so slow ones hold up only that policy.
        """
        try:
            answers = await self._ask(access, [policy for policy, _ in items])
        finally:
            for policy, due in items:
                if policy.schedule is not None:
                    policy.schedule.done(due, time.monotonic())
        claims = self.registry.claims()
        work: list[tuple[Policy, Entry | None, Exception | None]] = []
        for policy, due in items:
            try:
                work.append((policy, self._prepare(policy, due, answers), None))
            except Exception as error:
                work.append((policy, None, error))
        with self.metrics.decide_seconds.time():
            outcomes = iter(decide_all([entry for _, entry, _ in work if entry is not None]))
        for policy, entry, failure in work:
            outcome = None if entry is None else next(outcomes)
            self._launch([policy], self._finish(policy, outcome, failure, claims))

    async def _ask(self, access: Access, policies: list[Policy]) -> Answers:
        queries = batch(
            [p.subject for p in policies], self.settings.window_seconds, self.settings.resource_window_seconds
        )
        with self.metrics.sense_seconds.time():
            return await self._sources.ask(access, queries)

    def _prepare(self, policy: Policy, due: Due, answers: Answers) -> Entry | None:
        """The policy's row of the batch; None where a target does not exist."""
        found = policy.found(self.cache)
        present = [found.get(pool) for pool in POOLS]
        if any(deployment is None for deployment in found.values()):
            policy.state, policy.readings = None, nothing_measured()
            return None
        replicas = tuple(d.replicas if d else 0 for d in present)
        ready = tuple(d.ready if d else 0 for d in present)
        now = time.monotonic()
        policy.readings, policy.read_at = measure(answers, policy.subject, (ready[0], ready[1])), now
        samples = to_samples(
            policy.readings,
            0.0,
            self._epoch + now,
            (replicas[0], replicas[1]),
            (ready[0], ready[1]),
            policy.annotations,
        )
        policy.learned = learned(policy, self.cache)
        params = policy.params()
        policy.actor, policy.actor_error = self._actors.get(policy)
        if policy.state is None:
            written = Status.model_validate(policy.status)
            state = fresh_state(policy.actor, (replicas[0], replicas[1]), self._epoch + now)
            restore_placement(state, written.placement)
            policy.state = restore(state, params, written.stabilization, self._epoch + now)
        state = with_stack(policy.state, policy.actor)
        kind: Kind = "action" if due is Due.ACTION else "floor"
        return Entry(params, state, samples, kind, policy.actor, policy.generation)

    async def _finish(
        self, policy: Policy, outcome: Outcome | None, error: Exception | None, claims: dict[Key, list[Claim]]
    ) -> None:
        """Write and report for one policy; its failure stays its own."""
        try:
            error = error or (outcome.error if outcome is not None else None)
            findings = await self._judge.look(policy, outcome, claims)
            applied = None
            if error is not None:
                log.error("%s/%s: the tick failed", *policy.key, exc_info=error)
                self.metrics.errors.labels(*policy.key).inc()
                findings.problems.insert(0, Problem("InternalError", f"the operator failed: {error!r}"))
            elif outcome is not None and outcome.decision is not None:
                policy.state = outcome.state
                if findings.mode == "Auto" and findings.conflict is None and self._still(policy, outcome):
                    applied = await self._actuator.apply(policy, outcome.decision)
                    findings.placement_problem = applied.placement_problem
            await self.reporter.report(policy, findings, outcome, applied, policy.found(self.cache))
        except Exception:
            log.exception("%s/%s: the report failed", *policy.key)
            self.metrics.errors.labels(*policy.key).inc()

    def _still(self, policy: Policy, outcome: Outcome) -> bool:
        """Is this still the policy that was decided for? It may have been edited or deleted during the tick."""
        return policy.running and policy.generation == outcome.entry.generation and self.lease.held

    async def _idle(self, policy: Policy) -> None:
        """A policy that is switched off or invalid: say so once."""
        findings = await self._judge.look(policy, None, {})
        await self.reporter.report(policy, findings, None, None, {})
