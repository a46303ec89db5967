"""One batch of policies that are due: ask their Prometheus once, decide once, then finish each on its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from rlscaler_core.api import Status
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import Entry, Outcome, Tables, decide_all, fresh_state, with_stack
from rlscaler_core.decision.decide import Kind
from rlscaler_core.decision.types import POOLS, Params, State
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.rate_limiter import Lanes
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.loop.actors import Actors
from rlscaler_operator.loop.apply_and_report import Finisher
from rlscaler_operator.loop.learn import learn_capacity, learned
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.objectives import Objectives
from rlscaler_operator.reporting.stabilization import restore, restore_placement
from rlscaler_operator.sensing.access import Access
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
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.schedule import Due

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
        lanes: Lanes,
        cache: WatchCache,
        registry: Registry,
        metrics: Metrics,
        actors: Actors,
        finisher: Finisher,
        launch: Launch,
    ) -> None:
        self._settings, self._lanes = settings, lanes
        self._cache, self._registry = cache, registry
        self._metrics, self._actors, self._finisher, self._launch = metrics, actors, finisher, launch
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
                if self._finisher.settled(policy, outcome):
                    self._finisher.measure_again(policy, outcome)
                    await breath.take()
                    continue
            self._launch([policy], self._finisher.finish(policy, outcome, error))
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


class _Breath:
    """Lets everything else run where this task has kept the event loop for a while."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def take(self) -> None:
        if time.monotonic() - self._since > HELD_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()
