"""One batch of policies that are due: ask their Prometheus once, decide once, then write and report for each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from rlscaler_operator.actors import Actors
from rlscaler_operator.actuation.apply import Actuator
from rlscaler_operator.actuation.routes import ANNOTATION
from rlscaler_operator.api import Status
from rlscaler_operator.decisions import Entry, Kind, Outcome, Tables, decide_all, fresh_state, with_stack
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.judge import Judge
from rlscaler_operator.lanes import Lanes
from rlscaler_operator.policies import Policy, Registry
from rlscaler_operator.reporting.findings import Problem
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.objectives import Objectives
from rlscaler_operator.reporting.report import Reporter
from rlscaler_operator.reporting.stabilization import restore, restore_placement
from rlscaler_operator.schedule import Due
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.cache import WatchCache
from rlscaler_operator.sensing.learn import learn_capacity, learned
from rlscaler_operator.sensing.measure import (
    SamplesRow,
    may_lower,
    measure,
    nothing_measured,
    samples_of,
    samples_row,
    shown_latency,
)
from rlscaler_operator.sensing.prometheus import Answers, Sources
from rlscaler_operator.sensing.queries import Query, Subject, batch, windows
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.calibration import histograms, promql
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS
from rlscaler_operator.shadow.shadows import Item as Compared
from rlscaler_operator.shadow.shadows import Shadows, driver
from rlscaler_operator.shadow.verdict import writes
from rlscaler_operator.shards import Shards
from rlscaler_rl.decision.actor import ActorLike
from rlscaler_rl.decision.types import POOLS, Params, State

log = logging.getLogger("rlscaler.tick")

AT_ONCE = 250
"""Policies decided and virtual services stepped at once: array operations of some 10 ms."""

HELD_SECONDS = 0.004
"""How long a batch keeps the event loop before everything else that waits has its turn."""

LAUNCHED = 4
"""Policies judged and reported between two such turns: 1 ms each."""

Item = tuple[Policy, Due]
Launch = Callable[[list[Policy], Coroutine[Any, Any, None]], None]


class Prepared(NamedTuple):
    """One policy's row of a batch, before its samples stand in one table with those of the others."""

    params: Params
    state: State
    samples: SamplesRow
    kind: Kind
    actor: ActorLike | None
    generation: int


class Ticker:
    """Runs batches. Everything that it needs to remember is in the policies."""

    def __init__(
        self,
        settings: Settings,
        shards: Shards,
        lanes: Lanes,
        cache: WatchCache,
        registry: Registry,
        metrics: Metrics,
        actors: Actors,
        judge: Judge,
        actuator: Actuator,
        reporter: Reporter,
        launch: Launch,
    ) -> None:
        self._settings, self._shards, self._lanes = settings, shards, lanes
        self._cache, self._registry = cache, registry
        self._metrics, self._actors, self._judge = metrics, actors, judge
        self._actuator, self._reporter, self._launch = actuator, reporter, launch
        self.sources = Sources(settings.prometheus_timeout_seconds)
        self.shadows = Shadows(settings.window_seconds)
        self._objectives = Objectives(settings, metrics)
        self._tables = Tables()
        self._asked: tuple[list[Subject], list[Query]] | None = None
        self._epoch = time.time() - time.monotonic()

    async def run(self, access: Access, items: list[Item]) -> None:
        """One batch: all of it shares a Prometheus, so a dead one holds up nobody else.

        Each policy's writes and report run on their own, so slow ones hold up only that policy.
        """
        began = time.monotonic()
        try:
            answers = await self.ask(access, [policy for policy, _ in items])
        finally:
            for policy, due in items:
                if policy.schedule is not None:
                    policy.schedule.done(due, time.monotonic())
        asked = time.monotonic() - began
        for begin in range(0, len(items), AT_ONCE):
            await self._run(access, items[begin : begin + AT_ONCE], answers, asked)

    async def _run(self, access: Access, items: list[Item], answers: Answers, asked: float) -> None:
        """A part of a batch whose answers took `asked` seconds."""
        breath = _Breath()
        rows: list[tuple[Policy, Prepared | None, Exception | None]] = []
        with self._metrics.stage("prepare"):
            for policy, due in items:
                try:
                    rows.append((policy, self.prepare(policy, due, answers), None))
                except Exception as error:
                    rows.append((policy, None, error))
                await breath.take()
        entries = iter(self._entries([prepared for _, prepared, _ in rows if prepared is not None]))
        work = [(policy, None if prepared is None else next(entries), error) for policy, prepared, error in rows]
        decided = [(policy, entry) for policy, entry, _ in work if entry is not None]
        began = time.monotonic()
        with self._metrics.stage("decide"):
            outcomes = decide_all([entry for _, entry in decided], tables=self._tables)
        seconds = {"sense": asked, "decide": time.monotonic() - began}
        await asyncio.sleep(0)
        with self._metrics.stage("compare"):
            self._compare(access, decided)
        await asyncio.sleep(0)
        following = iter(outcomes)
        found = [(policy, None if entry is None else next(following), error) for policy, entry, error in work]
        moving = any(outcome.moves for outcome in outcomes)
        with self._lanes.hold_reports() if moving else contextlib.nullcontext():
            await self._launch_all(found, seconds)

    async def _launch_all(
        self, work: list[tuple[Policy, Outcome | None, Exception | None]], seconds: dict[str, float]
    ) -> None:
        """Judge, apply and report where anything is new."""
        breath, launched = _Breath(), 0
        for policy, outcome, error in work:
            if outcome is not None:
                outcome.seconds = seconds
                if self._settled(policy, outcome):
                    policy.state = outcome.state
                    self._reporter.measure_again(policy, outcome)
                    await breath.take()
                    continue
            self._launch([policy], self.finish(policy, outcome, error))
            launched += 1
            if launched % LAUNCHED == 0:
                await asyncio.sleep(0)

    def _entries(self, rows: list[Prepared]) -> list[Entry]:
        """With samples that are views of one table."""
        if not rows:
            return []
        samples = samples_of([row.samples for row in rows])
        parts = [samples.view(slice(i, i + 1)) for i in range(len(rows))]
        self._tables.samples.note(parts, samples)
        return [
            Entry(row.params, row.state, part, row.kind, row.actor, row.generation)
            for row, part in zip(rows, parts, strict=True)
        ]

    def _compare(self, access: Access, items: list[tuple[Policy, Entry]]) -> None:
        """Step the virtual services, and hold their model against what was measured where a window is over."""
        here = [Compared(policy, entry) for policy, entry in items if self._registry.get(policy.key) is policy]
        self.shadows.tick(here, self._tables.samples)
        due = self.shadows.due_for_calibration([item.policy for item in here], self._epoch + time.monotonic())
        if due:
            self._launch([], self._calibrate(access, due))
        late = self._objectives.due([item.policy for item in here], time.monotonic())
        if late:
            self._launch([], self._objectives.count(self.sources, access, late))

    async def _calibrate(self, access: Access, policies: list[Policy]) -> None:
        try:
            query = promql([policy.subject for policy in policies], WINDOW_SECONDS)
            measured = histograms(await self.sources.instant(access, query))
        except MetricsError as error:
            log.warning("no latency histograms to hold the model of the virtual services against: %s", error)
            measured = {}
        self.shadows.calibrate(policies, measured, self._epoch + time.monotonic())

    async def ask(self, access: Access, policies: list[Policy]) -> Answers:
        """The answers for all `policies`; never raises."""
        queries = self._queries([policy.subject for policy in policies])
        with self._metrics.stage("sense"):
            return await self.sources.ask(access, queries)

    def _queries(self, subjects: list[Subject]) -> list[Query]:
        """Made again when other subjects are asked for."""
        if self._asked is None or self._asked[0] != subjects:
            self._asked = subjects, batch(subjects, *windows(self._settings))
        return self._asked[1]

    def prepare(self, policy: Policy, due: Due, answers: Answers) -> Prepared | None:
        """The policy's row of the batch; None where a target does not exist."""
        found = policy.found(self._cache)
        if None in found.values():
            policy.state, policy.readings = None, nothing_measured()
            return None
        gpu, cpu = (found.get(pool) for pool in POOLS)
        replicas = (gpu.replicas if gpu else 0, cpu.replicas if cpu else 0)
        ready = (gpu.ready if gpu else 0, cpu.ready if cpu else 0)
        now = time.monotonic()
        policy.readings, policy.read_at = measure(answers, policy.subject, ready), now
        policy.latency = shown_latency(answers, policy.subject, policy.readings)
        learn_capacity(policy, answers, replicas, ready, self._settings.window_seconds, now)
        samples = samples_row(
            policy.readings,
            0.0,
            self._epoch + now,
            replicas,
            ready,
            policy.annotations,
            self._pending(policy),
            # While a target rolls out old pods go and new ones come, and what is measured is of neither.
            not any(target is not None and target.rolling for target in (gpu, cpu))
            and may_lower(policy.readings, policy.spec.metrics.max_age_seconds),
        )
        policy.learned = learned(policy, self._cache)
        policy.actor, policy.actor_error = self._actors.get(policy)
        self.shadows.stand(policy, self._epoch + now)
        params, actor = driver(policy)
        if policy.state is None:
            written = Status.model_validate(policy.status)
            state = fresh_state(policy.actor, replicas, self._epoch + now)
            restore_placement(state, written.placement)
            policy.state = restore(state, params, written.stabilization, self._epoch + now)
        state = with_stack(policy.state, policy.actor)
        kind: Kind = "action" if due is Due.ACTION else "floor"
        return Prepared(params, state, samples, kind, actor, policy.generation)

    def _pending(self, policy: Policy) -> tuple[float, float]:
        """Seconds for which pods of each pool have not come up."""
        seconds = dict.fromkeys(POOLS, 0.0) | {
            pool: self._cache.pending_seconds(key) for pool, key in policy.facts.targets
        }
        return seconds["gpu"], seconds["cpu"]

    def _settled(self, policy: Policy, outcome: Outcome) -> bool:
        """Would judging, applying and reporting find just what they found last time?

        A thousand quiet policies are then a few array operations. Actions always take the whole way.
        """
        decision = outcome.decision
        if policy.settled is None or decision is None or outcome.entry.kind == "action":
            return False
        if time.monotonic() - policy.written_at >= self._settings.status_interval_seconds:
            return False
        return not outcome.moves and policy.settled == self._signature(policy, outcome)

    def _signature(self, policy: Policy, outcome: Outcome) -> tuple[object, ...]:
        """Everything that findings and writes of a tick that changes no replicas depend on."""
        decision, limit = outcome.decision, policy.spec.metrics.max_age_seconds
        assert decision is not None
        keys = [key for _, key in policy.facts.targets]
        backends = policy.facts.backends
        deployments = [self._cache.deployments.get(key) for key in keys]
        return (
            policy.generation,
            sorted(item for item in policy.annotations.items() if item[0] != ANNOTATION),
            tuple(policy.finalizers),
            [(d.replicas, d.ready, d.uid, d.manager, d.deleting, d.rolling) if d else None for d in deployments],
            [self._cache.autoscaler_of(*key) for key in keys],
            self._registry.rivals(policy),
            [(r.reason, r.age_seconds > limit) for r in policy.readings.values()],
            self._cache.routes.get(backends[0]) if backends else None,
            None if policy.actor_error is None else str(policy.actor_error),
            policy.learned,
            policy.fallback_flags | int(decision.flags[0]),
            int(decision.placement[0]),
            decision.weights[0].tolist(),
            None if policy.promotion is None else (policy.promotion.state, policy.promotion.reason),
        )

    async def finish(self, policy: Policy, outcome: Outcome | None, error: Exception | None) -> None:
        """Write and report for one policy; its failure stays its own, and so does its slowness."""
        policy.settled = None
        try:
            async with asyncio.timeout(self._settings.policy_deadline_seconds):
                fine = await self._finish(policy, outcome, error)
        except TimeoutError:
            log.error("%s/%s: not done within policyDeadlineSeconds", *policy.key)
            fine = False
        except Exception:
            log.exception("%s/%s: the report failed", *policy.key)
            fine = False
        if fine:
            policy.breaker.succeeded()
        else:
            self._reporter.unfinished(policy, outcome)
            self._metrics.of(*policy.key).add(self._metrics.errors, 1)
            policy.breaker.failed(time.monotonic())

    async def _finish(self, policy: Policy, outcome: Outcome | None, error: Exception | None) -> bool:
        """False where something failed that is not the user's to correct."""
        error = error or (outcome.error if outcome is not None else None)
        decided = outcome is not None and outcome.decision is not None and error is None
        with self._metrics.stage("judge"):
            findings = await self._judge.look(policy, outcome)
        signature = self._signature(policy, outcome) if decided and outcome is not None else None
        applied = None
        if error is not None:
            log.error("%s/%s: the tick failed", *policy.key, exc_info=error)
            findings.problems.insert(0, Problem("InternalError", f"the operator failed: {error!r}"))
        elif outcome is not None and outcome.decision is not None:
            policy.state = outcome.state
            may = writes(policy.spec.mode, policy.promotion) and findings.conflict is None
            if may and self._still(policy, outcome):
                with self._metrics.stage("write"):
                    applied = await self._actuator.apply(policy, outcome.decision)
                findings.placement_problem = applied.placement_problem
        with self._metrics.stage("report"):
            self._reporter.report(policy, findings, outcome, applied, policy.found(self._cache))
        in_force = applied is None or (applied.complete and applied.placement_problem is None)
        if in_force and findings.conflict is None:
            policy.settled = signature
        return error is None and not (applied is not None and applied.failed)

    def _still(self, policy: Policy, outcome: Outcome) -> bool:
        """Is this still the policy that was decided for? It may have been edited or deleted during the tick."""
        same = policy.running and policy.generation == outcome.entry.generation
        return same and self._shards.of(policy.key).held

    async def idle(self, policy: Policy) -> None:
        """A policy that is switched off or invalid: say so once."""
        findings = await self._judge.look(policy, None)
        self._reporter.report(policy, findings, None, None, {})


class _Breath:
    """Lets everything else run where this task has kept the event loop for a while."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def take(self) -> None:
        if time.monotonic() - self._since > HELD_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()
