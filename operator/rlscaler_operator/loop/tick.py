"""One batch of policies that are due: ask their Prometheus once, decide once, then apply and report each on its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlscaler_core.api import Status
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import Entry, Outcome, Tables, decide_all, fresh_state, with_stack
from rlscaler_core.decision.decide import Kind
from rlscaler_core.decision.types import POOLS, Params, State
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.loop.actors import Actors
from rlscaler_operator.loop.apply_and_report import Reconciler
from rlscaler_operator.loop.learn import learn_capacity, learned
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.objectives import Objectives
from rlscaler_operator.reporting.stabilization import restore, restore_placement
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.measure import (
    SamplesRow,
    may_lower,
    measure,
    samples_of,
    samples_row,
    shown_latency,
)
from rlscaler_operator.sensing.prometheus import Sources
from rlscaler_operator.sensing.queries import Query, Subject, batch, windows
from rlscaler_operator.sensing.results import Answers
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.calibration import histograms, promql
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS
from rlscaler_operator.shadow.shadows import ComparedPolicy, Shadows, params_and_actor
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.schedule import Due

log = logging.getLogger("rlscaler.tick")

AT_ONCE = 250
"""Policies decided and virtual services stepped at once: array operations of some 10 ms."""

HELD_SECONDS = 0.004
"""Time for which a batch keeps the event loop before everything else that waits has its turn."""

LAUNCHED = 4
"""Policies diagnosed and reported between two such turns: 1 ms each."""

DuePolicy = tuple[Policy, Due]
Launch = Callable[[list[Policy], Coroutine[Any, Any, None]], None]


class Prepared(NamedTuple):
    """One policy's row of a batch, before its samples stand in one table with those of the others."""

    params: Params
    state: State
    samples: SamplesRow
    kind: Kind
    actor: ActorLike | None
    generation: int


@dataclass(slots=True)
class Tick:
    """One policy on its way through a batch: what each stage came to, until one fails."""

    policy: Policy
    entry: Entry | None = None
    """None where a target does not exist, or where preparing failed."""
    outcome: Outcome | None = None
    error: Exception | None = None
    """Why preparing failed."""


class Ticker:
    """Runs batches. Everything that it needs to remember is in the policies.

    A batch goes through `tick_batch` (ask Prometheus), `_tick_part` (prepare, decide, compare with the shadow
    simulation), and `_apply_and_report_all`, which hands each policy on to the reconciler.
    """

    def __init__(
        self,
        settings: Settings,
        limiter: ConcurrencyLimiter,
        cache: WatchCache,
        registry: Registry,
        metrics: Metrics,
        actors: Actors,
        reconciler: Reconciler,
        launch: Launch,
    ) -> None:
        self._settings, self._limiter = settings, limiter
        self._cache, self._registry = cache, registry
        self._metrics, self._actors, self._reconciler, self._launch = metrics, actors, reconciler, launch
        self.sources = Sources(settings.prometheus_timeout_seconds)
        self.shadows = Shadows(settings.window_seconds)
        self._objectives = Objectives(settings, metrics)
        self._tables = Tables()
        self._asked: tuple[list[Subject], list[Query]] | None = None
        self._epoch = time.time() - time.monotonic()

    async def tick_batch(self, access: Access, batch: list[DuePolicy]) -> None:
        """One batch: all of it shares a Prometheus, so a dead one holds up no policy of another.

        Each policy's writes and report run on their own, so slow ones hold up only that policy.
        """
        began = time.monotonic()
        try:
            answers = await self.ask(access, [policy for policy, _ in batch])
        finally:
            for policy, due in batch:
                if policy.timing.schedule is not None:
                    policy.timing.schedule.done(due, time.monotonic())
        asked = time.monotonic() - began
        for begin in range(0, len(batch), AT_ONCE):
            await self._tick_part(access, batch[begin : begin + AT_ONCE], answers, asked)

    async def _tick_part(self, access: Access, part: list[DuePolicy], answers: Answers, asked: float) -> None:
        """A part of a batch whose answers took `asked` seconds."""
        with self._metrics.stage("prepare"):
            ticks = await self._prepare_all(part, answers)
        began = time.monotonic()
        with self._metrics.stage("decide"):
            self._decide_all(ticks)
        seconds = {"sense": asked, "decide": time.monotonic() - began}
        await asyncio.sleep(0)
        with self._metrics.stage("compare"):
            self._compare_all(access, ticks)
        await asyncio.sleep(0)
        moving = any(tick.outcome.moves for tick in ticks if tick.outcome is not None)
        with self._limiter.hold_reports() if moving else contextlib.nullcontext():
            await self._apply_and_report_all(ticks, seconds)

    async def _prepare_all(self, part: list[DuePolicy], answers: Answers) -> list[Tick]:
        """An entry for each policy, with samples that are views of one table."""
        breath, ticks = _Breath(), [Tick(policy) for policy, _ in part]
        rows: list[tuple[Tick, Prepared]] = []
        for tick, (policy, due) in zip(ticks, part, strict=True):
            try:
                if (prepared := self.prepare(policy, due, answers)) is not None:
                    rows.append((tick, prepared))
            except Exception as error:
                tick.error = error
            await breath.take()
        if rows:
            samples = samples_of([row.samples for _, row in rows])
            views = [samples.view(slice(i, i + 1)) for i in range(len(rows))]
            self._tables.samples.note(views, samples)
            for (tick, row), view in zip(rows, views, strict=True):
                tick.entry = Entry(row.params, row.state, view, row.kind, row.actor, row.generation)
        return ticks

    def _decide_all(self, ticks: list[Tick]) -> None:
        entries = [(tick, tick.entry) for tick in ticks if tick.entry is not None]
        outcomes = decide_all([entry for _, entry in entries], tables=self._tables)
        for (tick, _), outcome in zip(entries, outcomes, strict=True):
            tick.outcome = outcome

    async def _apply_and_report_all(self, ticks: list[Tick], seconds: dict[str, float]) -> None:
        """Diagnose, apply and report where anything is new; `seconds` are those of the stages so far."""
        breath, launched = _Breath(), 0
        for tick in ticks:
            policy, outcome = tick.policy, tick.outcome
            if outcome is not None:
                outcome.seconds = seconds
                policy.decision.decided(outcome)
                if self._reconciler.is_quiet(policy, outcome):
                    self._reconciler.pass_quiet(policy, outcome)
                    await breath.take()
                    continue
            self._launch([policy], self._reconciler.apply_and_report(policy, outcome, tick.error))
            launched += 1
            if launched % LAUNCHED == 0:
                await asyncio.sleep(0)

    def _compare_all(self, access: Access, ticks: list[Tick]) -> None:
        """Step the shadow simulation, and hold its model against what was measured where a window is over."""
        here = [
            ComparedPolicy(tick.policy, tick.entry)
            for tick in ticks
            if tick.entry is not None and self._registry.get(tick.policy.key) is tick.policy
        ]
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
        """The queries for all subjects; they are made again when other subjects are asked for."""
        if self._asked is None or self._asked[0] != subjects:
            self._asked = subjects, batch(subjects, *windows(self._settings))
        return self._asked[1]

    def prepare(self, policy: Policy, due: Due, answers: Answers) -> Prepared | None:
        """The policy's row of the batch; None where a target does not exist."""
        found = policy.found(self._cache)
        if None in found.values():
            policy.decision.nothing_there()
            return None
        gpu, cpu = (found.get(pool) for pool in POOLS)
        replicas = (gpu.replicas if gpu else 0, cpu.replicas if cpu else 0)
        ready = (gpu.ready if gpu else 0, cpu.ready if cpu else 0)
        now = time.monotonic()
        readings, limit = measure(answers, policy.subject, ready), policy.spec.metrics.max_age_seconds
        policy.decision.measured(readings, shown_latency(answers, policy.subject, readings), now, limit)
        learn_capacity(policy, answers, replicas, ready, self._settings.window_seconds, now)
        samples = samples_row(
            readings,
            0.0,
            self._epoch + now,
            replicas,
            ready,
            policy.observed.annotations,
            self._pending(policy),
            # While a target rolls out old pods go and new ones come, and what is measured is of neither.
            not any(target is not None and target.rolling for target in (gpu, cpu)) and may_lower(readings, limit),
        )
        policy.decision.learn(learned(policy, self._cache))
        policy.decision.use(*self._actors.get(policy))
        self.shadows.ensure_promotion(policy, self._epoch + now)
        params, actor = params_and_actor(policy)
        if policy.decision.state is None:
            written = Status.model_validate(policy.outbox.status)
            state = fresh_state(policy.decision.actor, replicas, self._epoch + now)
            restore_placement(state, written.placement)
            policy.decision.state = restore(state, params, written.stabilization, self._epoch + now)
        state = with_stack(policy.decision.state, policy.decision.actor)
        kind: Kind = "action" if due is Due.ACTION else "floor"
        return Prepared(params, state, samples, kind, actor, policy.observed.generation)

    def _pending(self, policy: Policy) -> tuple[float, float]:
        """Seconds for which pods of each pool have not come up."""
        seconds = dict.fromkeys(POOLS, 0.0) | {
            pool: self._cache.pending_seconds(key) for pool, key in policy.facts.targets
        }
        return seconds["gpu"], seconds["cpu"]


class _Breath:
    """Lets everything else run where this task has kept the event loop for a while."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def take(self) -> None:
        if time.monotonic() - self._since > HELD_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()
