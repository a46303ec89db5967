"""One batch of policies that are due: ask their Prometheus once, decide once, then apply and report each on its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rlscaler_core.api import Status
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import Entry, Outcome, Tables, decide_all, fresh_state, with_stack
from rlscaler_core.decision.decide import Kind
from rlscaler_core.decision.exceptions import ForecasterStateError
from rlscaler_core.decision.types import POOLS, Params, State
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.references import References
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.loop.actors import Actors
from rlscaler_operator.loop.apply_and_report import Reconciler
from rlscaler_operator.loop.learn import learn_capacity, learned, without_saturated
from rlscaler_operator.loop.share import Sharing
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.objectives import Objectives
from rlscaler_operator.reporting.stabilization import restore, restore_forecaster, restore_placement
from rlscaler_operator.sensing.access import Access, OwnAccess, Secret, own_access
from rlscaler_operator.sensing.answer import Bounds
from rlscaler_operator.sensing.kafka_access import KafkaAccess, kafka_access_of
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.measure import (
    NO_STREAM,
    SamplesRow,
    may_lower,
    measure,
    samples_of,
    samples_row,
    shown_latency,
)
from rlscaler_operator.sensing.queries import Query, batch, own_queries, windows
from rlscaler_operator.sensing.results import Answers, Asked
from rlscaler_operator.sensing.sources import Sources
from rlscaler_operator.sensing.streams import Asker, Streams
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.calibration import histograms, promql
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS
from rlscaler_operator.shadow.shadows import ComparedPolicy, Shadows, params_and_actor
from rlscaler_operator.state.error_budget import restore_slo
from rlscaler_operator.state.ownership import turned_off
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.schedule import Due
from rlscaler_operator.state.status import unit_of

log = logging.getLogger("rlscaler.tick")

AT_ONCE = 250
"""Policies decided and virtual services stepped at once: array operations of some 10 ms."""

HELD_SECONDS = 0.004
"""Time for which a batch keeps the event loop before everything else that waits has its turn."""

LAUNCHED = 4
"""Policies diagnosed and reported between two such turns: 1 ms each."""

PATIENCE_SECONDS = 0.25
"""Longest time that a batch waits, after the shared answers, for those to policies' own queries, and that Prometheus
may take for these before they count as slow."""

IN_ONE_REQUEST = 20
"""Policies of one namespace whose own queries are sent as one."""

DuePolicy = tuple[Policy, Due]
OwnAnswers = dict[Key, asyncio.Task[Asked]]
"""What is asked for each policy that has queries of its own."""

Launch = Callable[[list[Policy], Coroutine[Any, Any, None]], None]


class Prepared(NamedTuple):
    """One policy's row of a batch, before its samples stand in one table with those of the others."""

    params: Params
    state: State
    samples: SamplesRow
    kind: Kind
    actor: ActorLike | None
    generation: int


class Answered(NamedTuple):
    """The answers that a batch shares; times on the monotonic clock."""

    answers: Answers
    began: float
    at: float


@dataclass(slots=True)
class Tick:
    """One policy on its way through a batch: what each stage came to, until one fails."""

    policy: Policy
    entry: Entry | None = None
    """None where a target does not exist, or where preparing failed."""
    outcome: Outcome | None = None
    granted: tuple[int, int] | None = None
    """Replicas by pool that a shared budget would leave the policy if it acted, -1 = any number; None without one."""
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
        secrets: References[Secret],
    ) -> None:
        self._settings, self._limiter = settings, limiter
        self._cache, self._registry = cache, registry
        self._metrics, self._actors, self._reconciler, self._launch = metrics, actors, reconciler, launch
        self.sources = Sources(
            settings.prometheus_timeout_seconds, Bounds(settings.answer_bytes, settings.answer_series)
        )
        self.streams = Streams(settings.kafka_timeout_seconds)
        self._secrets = secrets
        self._labels = Labels.of(settings)
        self.shadows = Shadows(settings.window_seconds)
        self._objectives = Objectives(settings, metrics)
        self._tables = Tables()
        self.sharing: Sharing | None = None
        """None where no budgets are shared."""
        self._asked: tuple[list[Subject], list[Query]] | None = None
        self._apart: set[Key] = set()
        """Policies whose own queries were slow or failed: they are asked alone and not waited for."""
        self._epoch = time.time() - time.monotonic()

    async def tick_batch(self, access: Access, batch: list[DuePolicy]) -> None:
        """One batch: all of it shares a Prometheus, so a dead one holds up no policy of another.

        Each policy's writes and report run on their own, so slow ones hold up only that policy. So do its own queries:
        policies whose answers are not there a moment after the shared ones are ticked when they are.
        """
        began = time.monotonic()
        own = self._ask_own(access, [policy for policy, _ in batch if policy.running and policy.subject.queries])
        self.look_at_streams([policy for policy, _ in batch if policy.running and policy.spec.signal], own)
        try:
            answers = await self.ask(access, [policy for policy, _ in batch if policy.running])
            prompt = {task for key, task in own.items() if key not in self._apart}
            if prompt:
                await asyncio.wait(prompt, timeout=PATIENCE_SECONDS)
        except BaseException:
            _cancel(own)
            raise
        finally:
            for policy, due in batch:
                if policy.timing.schedule is not None:
                    policy.timing.schedule.done(due, time.monotonic())
        answered = Answered(answers, began, time.monotonic())
        ready, late = _part(batch, own)
        if late:
            self._apart = {key for key in self._apart if self._registry.get(key) is not None}
            self._launch_late(access, late, answered, own)
        await self._tick_parts(access, ready, answered, own)

    def _ask_own(self, access: Access, policies: list[Policy]) -> OwnAnswers:
        """Begin to ask the policies' own queries: of a namespace several in one request, unless they are set apart."""
        tasks: OwnAnswers = {}
        together: dict[tuple[OwnAccess, str], list[Policy]] = defaultdict(list)
        for policy in policies:
            own = own_access(access, policy.spec.metrics, policy.key[0], self._settings)
            if policy.key in self._apart:
                tasks[policy.key] = self._ask_some(own, [policy], apart=True)
            else:
                together[own, policy.key[0]].append(policy)
        for (own, _), crowd in together.items():
            for begin in range(0, len(crowd), IN_ONE_REQUEST):
                some = crowd[begin : begin + IN_ONE_REQUEST]
                tasks |= dict.fromkeys((policy.key for policy in some), self._ask_some(own, some))
        return tasks

    def look_at_streams(self, policies: list[Policy], own: OwnAnswers) -> None:
        """Begin to look at the streams of `policies`, all of a cluster at once; `own` waits for them as for queries."""
        together: dict[KafkaAccess, list[tuple[Policy, Asker]]] = defaultdict(list)
        for policy in policies:
            assert policy.spec.signal is not None
            kafka = policy.spec.signal.kafka
            ready = sum(target.ready for target in policy.found(self._cache).values() if target is not None)
            access = kafka_access_of(kafka, policy.key[0], self._settings, self._secrets)
            together[access].append((policy, Asker(policy.key, kafka, ready)))
        looks = {
            access: asyncio.create_task(self.streams.look(access, [asker for _, asker in crowd]))
            for access, crowd in together.items()
        }
        for access, crowd in together.items():
            for policy, _ in crowd:
                own[policy.key] = asyncio.create_task(_with_look(looks[access], own.get(policy.key)))

    def _ask_some(self, own: OwnAccess, policies: list[Policy], apart: bool = False) -> asyncio.Task[Asked]:
        queries = {query.name: query for policy in policies for query in own_queries(policy.subject)}
        namespace = policies[0].key[0]
        return asyncio.create_task(
            self.sources.ask_own(own.access, namespace, list(queries.values()), own.parameters, apart)
        )

    def _set_apart(self, batch: list[DuePolicy], answered: Answered, own: OwnAnswers) -> None:
        """Have policies asked on their own whose own queries are slow or fail, until they neither are nor do.

        Which of several in one request is the slow one shows when each is asked alone.
        """
        if answered.answers and all(isinstance(answer, MetricsError) for answer in answered.answers.values()):
            return
        for policy, _ in batch:
            if (task := own.get(policy.key)) is not None:
                asked = task.result()
                names = (query.name for query in own_queries(policy.subject))
                failed = any(isinstance(asked.answers.get(name), MetricsError) for name in names)
                apart = failed or asked.seconds > PATIENCE_SECONDS
                (self._apart.add if apart else self._apart.discard)(policy.key)

    def _launch_late(self, access: Access, late: list[DuePolicy], answered: Answered, own: OwnAnswers) -> None:
        self._launch([policy for policy, _ in late], self._tick_late(access, late, answered, own))

    async def _tick_late(self, access: Access, late: list[DuePolicy], answered: Answered, own: OwnAnswers) -> None:
        """Tick the policies whose answers come in a moment, and go on waiting for the others."""
        waiting = {policy.key: own[policy.key] for policy, _ in late}
        try:
            await asyncio.wait(set(waiting.values()), timeout=PATIENCE_SECONDS)
        except BaseException:
            _cancel(waiting)
            raise
        ready, late = _part(late, own)
        if late:
            self._launch_late(access, late, answered, own)
        await self._tick_parts(access, ready, answered, own)

    async def _tick_parts(self, access: Access, batch: list[DuePolicy], answered: Answered, own: OwnAnswers) -> None:
        self._set_apart(batch, answered, own)
        if self.sharing is not None:
            batch = self.sharing.together(batch, lambda due: due[0].key)
        for begin in range(0, len(batch), AT_ONCE):
            part = batch[begin : begin + AT_ONCE]
            given = {
                policy.key: answered.answers | task.result().answers
                for policy, _ in part
                if (task := own.get(policy.key)) is not None
            }
            await self._tick_part(access, part, answered, given)

    async def _tick_part(
        self, access: Access, part: list[DuePolicy], answered: Answered, own: Mapping[Key, Answers]
    ) -> None:
        """A part of a batch; `own` are the answers for policies that have queries of their own."""
        with self._metrics.stage("prepare"):
            ticks = await self._prepare_all(part, answered, own)
        began = time.monotonic()
        with self._metrics.stage("decide"):
            self._decide_all(ticks)
        seconds = {"sense": answered.at - answered.began, "decide": time.monotonic() - began}
        await asyncio.sleep(0)
        with self._metrics.stage("compare"):
            self._compare_all(access, ticks)
        await asyncio.sleep(0)
        moving = any(tick.outcome.moves for tick in ticks if tick.outcome is not None)
        with self._limiter.hold_reports() if moving else contextlib.nullcontext():
            await self._apply_and_report_all(ticks, seconds)

    async def _prepare_all(self, part: list[DuePolicy], answered: Answered, own: Mapping[Key, Answers]) -> list[Tick]:
        """An entry for each policy, with samples that are views of one table."""
        breath, ticks = _Breath(), [Tick(policy) for policy, _ in part]
        rows: list[tuple[Tick, Prepared]] = []
        for tick, (policy, due) in zip(ticks, part, strict=True):
            try:
                answers = own.get(policy.key, answered.answers)
                if (prepared := self.prepare(policy, due, answers, time.monotonic() - answered.at)) is not None:
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
        if self.sharing is not None:
            self._keep_grants(self.sharing, [tick for tick, _ in entries])

    def _keep_grants(self, sharing: Sharing, ticks: list[Tick]) -> None:
        """Decide again, with their grants, for the policies that a shared budget grants less than they asked for."""
        limits, compared = sharing.share_batch(
            [(tick.policy, tick.outcome) for tick in ticks if tick.outcome is not None]
        )
        bound = [(tick, limits[tick.policy.key]) for tick in ticks if tick.policy.key in limits]
        for tick in ticks:
            tick.granted = compared.get(tick.policy.key)
        entries = []
        for tick, limit in bound:
            assert tick.entry is not None
            samples = replace(tick.entry.samples, granted_replicas=np.array([limit.granted], np.int32))
            tick.entry = replace(tick.entry, samples=samples)
            entries.append(tick.entry)
        for (tick, limit), outcome in zip(bound, decide_all(entries), strict=True):
            outcome.granted, outcome.sharing = limit.text, limit.sharing
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
            ComparedPolicy(tick.policy, tick.entry, tick.granted)
            for tick in ticks
            if tick.entry is not None
            and tick.policy.running
            and self._registry.get(tick.policy.key) is tick.policy
            # Virtual services and late requests are of requests: neither knows partitions.
            and tick.policy.spec.signal is None
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
            subjects = [policy.subject for policy in policies if policy.running]
            query = promql(subjects, WINDOW_SECONDS, self._labels)
            measured = histograms(await self.sources.instant(access, query))
        except MetricsError as error:
            log.warning("no latency histograms to hold the model of the virtual services against: %s", error)
            measured = {}
        self.shadows.calibrate(
            [policy for policy in policies if policy.running], measured, self._epoch + time.monotonic()
        )

    async def ask(self, access: Access, policies: list[Policy]) -> Answers:
        """The answers for all `policies`; never raises."""
        queries = self._queries([policy.subject for policy in policies])
        with self._metrics.stage("sense"):
            return await self.sources.ask(access, queries)

    def _queries(self, subjects: list[Subject]) -> list[Query]:
        """The queries for all subjects; they are made again when other subjects are asked for."""
        if self._asked is None or self._asked[0] != subjects:
            self._asked = subjects, batch(subjects, *windows(self._settings), self._labels)
        return self._asked[1]

    def prepare(self, policy: Policy, due: Due, answers: Answers, elapsed_seconds: float = 0.0) -> Prepared | None:
        """The policy's row of the batch, `elapsed_seconds` after the answers.

        None where a target does not exist, or nothing is to be decided any more.
        """
        if not policy.running:
            return None
        found = policy.found(self._cache)
        if None in found.values():
            policy.decision.nothing_there()
            return None
        gpu, cpu = (found.get(pool) for pool in POOLS)
        replicas = (gpu.replicas if gpu else 0, cpu.replicas if cpu else 0)
        ready = (gpu.ready if gpu else 0, cpu.ready if cpu else 0)
        now = time.monotonic()
        subject = policy.subject
        if policy.decision.count_in(subject.unit, subject.signal):
            policy.late.forget()
            self._metrics.forget(*policy.key)
        readings, limit = measure(answers, subject, ready), policy.spec.metrics.max_age_seconds
        if policy.spec.signal is None:
            self.streams.forget(policy.key)
        stream = None if policy.spec.signal is None else self.streams.latest(policy.key)
        policy.decision.consumes(stream)
        if stream is not None:
            readings |= {"arrival_rate": stream.arrival_rate, "p95_latency": stream.p95_latency}
        learn_capacity(policy, readings, answers, replicas, ready, self._settings.window_seconds, now)
        readings = without_saturated(policy, readings)
        latency = shown_latency(answers, subject, readings) if stream is None else stream.p95_latency
        policy.decision.measured(readings, latency, now - elapsed_seconds, limit)
        policy.decision.learn(learned(policy, self._cache))
        policy.decision.turn_off(turned_off(policy.spec, found))
        policy.decision.use(*self._actors.get(policy))
        self.shadows.ensure_promotion(policy, self._epoch + now)
        params, actor = params_and_actor(policy)
        pending, stuck = self._pending(policy, params)
        samples = samples_row(
            readings,
            elapsed_seconds,
            self._epoch + now,
            replicas,
            ready,
            policy.observed.annotations,
            pending,
            stuck,
            # While a target rolls out old pods go and new ones come, and what is measured is of neither.
            not any(target is not None and target.rolling for target in (gpu, cpu)) and may_lower(readings, limit),
            policy.late.take(policy.spec.slo.latency_milliseconds),
            NO_STREAM if stream is None else (stream.lag_messages, stream.partitions, stream.settling),
        )
        if policy.decision.state is None:
            written = Status.model_validate(policy.outbox.status)
            state = fresh_state(policy.decision.actor, replicas, self._epoch + now)
            restore_placement(state, written.placement)
            try:
                if unit_of(policy.outbox.status) == subject.unit:
                    restore_forecaster(state, written.forecaster)
            except ForecasterStateError as error:
                log.warning("%s/%s: %s", *policy.key, error)
            if written.slo is not None and written.slo.signal == subject.signal:
                restore_slo(state, written.slo)
            policy.decision.state = restore(state, params, written.stabilization, self._epoch + now)
        state = with_stack(policy.decision.state, policy.decision.actor)
        kind: Kind = "action" if due is Due.ACTION else "floor"
        return Prepared(params, state, samples, kind, actor, policy.observed.generation)

    def _pending(self, policy: Policy, params: Params) -> tuple[tuple[float, float], tuple[int, int]]:
        """Seconds for which the oldest pod of each pool has not come up, and how many have not for too long."""
        seconds, stuck = [0.0, 0.0], [0, 0]
        for pool, key in policy.facts.targets:
            i = POOLS.index(pool)
            seconds[i] = self._cache.pending_seconds(key)
            stuck[i] = self._cache.stuck_pods(key, float(params.pending_seconds[0, i])) if seconds[i] else 0
        return (seconds[0], seconds[1]), (stuck[0], stuck[1])


def _part(batch: list[DuePolicy], own: OwnAnswers) -> tuple[list[DuePolicy], list[DuePolicy]]:
    """Return those of a batch whose own queries are answered or that have none, and the others."""
    ready: list[DuePolicy] = []
    late: list[DuePolicy] = []
    for one in batch:
        task = own.get(one[0].key)
        (ready if task is None or task.done() else late).append(one)
    return ready, late


async def _with_look(look: asyncio.Task[float], own: asyncio.Task[Asked] | None) -> Asked:
    """Wait for a look at the brokers, and for the policy's own queries where it has some."""
    seconds = await asyncio.shield(look)
    asked = Asked({}) if own is None else await own
    return asked._replace(seconds=max(seconds, asked.seconds))


def _cancel(own: OwnAnswers) -> None:
    for task in own.values():
        task.cancel()


class _Breath:
    """Lets everything else run where this task has kept the event loop for a while."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def take(self) -> None:
        if time.monotonic() - self._since > HELD_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()
