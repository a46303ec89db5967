"""One batch of policies that are due: ask their Prometheus once, decide once, then apply and report each on its own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rlscaler_core.decision.batch import Entry, Outcome, Tables, decide_all
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.exceptions import ShareError
from rlscaler_operator.loop.apply_and_report import Reconciler
from rlscaler_operator.loop.background import Launch
from rlscaler_operator.loop.fence import Fence
from rlscaler_operator.loop.grants import Grant, Sharing
from rlscaler_operator.loop.prepare import Prepared, Preparer
from rlscaler_operator.loop.sense import PATIENCE_SECONDS, Answered, OwnAnswers, Sensing, cancel
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.objectives import Objectives
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.halves import by_halves
from rlscaler_operator.sensing.measure import samples_of
from rlscaler_operator.sensing.results import Answers
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.calibration import Histograms
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS
from rlscaler_operator.shadow.shadows import ComparedPolicy, Shadows
from rlscaler_operator.state.clock import unix_now
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.schedule import Due

AT_ONCE = 250
"""Policies decided and virtual services stepped at once: array operations of some 10 ms."""

HELD_SECONDS = 0.004
"""Time for which a batch keeps the event loop before everything else that waits has its turn."""

LAUNCHED = 4
"""Policies diagnosed and reported between two such turns: 1 ms each."""

DuePolicy = tuple[Policy, Due]


@dataclass(slots=True)
class Tick:
    """One policy on its way through a batch: the result of each stage, until one fails."""

    policy: Policy
    entry: Entry | None = None
    """None where a target does not exist, or where preparing failed."""
    outcome: Outcome | None = None
    granted: tuple[int, int] | None = None
    """Replicas by pool that a shared budget would leave the policy if it acted, -1 = any number; None without one."""
    error: Exception | None = None
    """Why preparing failed."""


class Ticker:
    """Runs batches. All memory is in the policies.

    A batch goes through `tick_batch` (ask Prometheus), `_tick_part` (prepare, decide, compare with the shadow
    simulation), and `_apply_and_report_all`, which hands each policy on to the reconciler.
    """

    def __init__(
        self,
        settings: Settings,
        limiter: ConcurrencyLimiter,
        registry: Registry,
        metrics: Metrics,
        sensing: Sensing,
        preparer: Preparer,
        shadows: Shadows,
        reconciler: Reconciler,
        sharing: Sharing | None,
        launch: Launch,
        fence: Fence,
    ) -> None:
        """`sharing` is None where no budgets are shared; `launch` runs a coroutine in the background."""
        self._limiter, self._registry, self._metrics = limiter, registry, metrics
        self._sensing, self._preparer, self._shadows = sensing, preparer, shadows
        self._reconciler, self._launch, self._fence = reconciler, launch, fence
        self._objectives = Objectives(settings, metrics)
        self._tables = Tables()
        self.sharing = sharing

    async def tick_batch(self, access: Access, batch: list[DuePolicy]) -> None:
        """Run one batch: all of it shares a Prometheus, so a dead one holds up no policy of another.

        Each policy's writes and report run on their own, so slow ones hold up only that policy. So do its own queries:
        policies whose answers are not there a moment after the shared ones are ticked when they are.
        """
        began = time.monotonic()
        running = [policy for policy, _ in batch if policy.running]
        own: OwnAnswers = {}
        try:
            own = self._sensing.ask_own(access, running)
            answers = await self._sensing.ask(access, running)
            await self._sensing.wait_for_prompt(own)
        except BaseException:
            cancel(own)
            raise
        finally:
            for policy, due in batch:
                if policy.timing.schedule is not None:
                    policy.timing.schedule.done(due, time.monotonic())
        answered = Answered(answers, began, time.monotonic())
        # Policies that failed while they were asked for are reported by the fence.
        ready, late = _part([due for due in batch if due[0].timing.breaker.until <= began], own)
        if late:
            self._sensing.forget_gone()
            self._launch_late(access, late, answered, own)
        await self._tick_parts(access, ready, answered, own)

    def _launch_late(self, access: Access, late: list[DuePolicy], answered: Answered, own: OwnAnswers) -> None:
        self._launch([policy for policy, _ in late], self._tick_late(access, late, answered, own))

    async def _tick_late(self, access: Access, late: list[DuePolicy], answered: Answered, own: OwnAnswers) -> None:
        """Tick the policies whose answers come in a moment, and go on waiting for the others."""
        waiting = {policy.key: own[policy.key] for policy, _ in late}
        try:
            await asyncio.wait(set(waiting.values()), timeout=PATIENCE_SECONDS)
        except BaseException:
            cancel(waiting)
            raise
        ready, late = _part(late, own)
        if late:
            self._launch_late(access, late, answered, own)
        await self._tick_parts(access, ready, answered, own)

    async def _tick_parts(self, access: Access, batch: list[DuePolicy], answered: Answered, own: OwnAnswers) -> None:
        given: dict[Key, Answers] = {}

        def take(policy: Policy) -> None:
            if (task := own.get(policy.key)) is not None:
                given[policy.key] = answered.answers | task.result().answers
                self._sensing.set_apart([policy], answered, own)

        batch = [due for due in batch if self._fence.run(due[0], "take in its own answers", take, due[0])]
        if self.sharing is not None:
            # Policies of one budget in a row, so that few parts ask the arbiter about the same budget.
            batch = self.sharing.sorted_by_budget(batch, lambda due: due[0].key)
        for begin in range(0, len(batch), AT_ONCE):
            await self._tick_part(access, batch[begin : begin + AT_ONCE], answered, given)

    async def _tick_part(
        self, access: Access, part: list[DuePolicy], answered: Answered, own: Mapping[Key, Answers]
    ) -> None:
        """Run a part of a batch; `own` are the answers for policies that have queries of their own."""
        began = time.monotonic()
        ticks = await self._decided(part, answered, own)
        seconds = {"sense": answered.at - answered.began, "decide": time.monotonic() - began}
        await asyncio.sleep(0)
        with self._metrics.stage("compare"):
            # Compared with the samples of the decision, before writes take time.
            self._fence.without_policy("compare a batch with its simulation", partial(self._compare_all, access, ticks))
        await asyncio.sleep(0)
        # Reports wait while replicas are written: a scale write must never queue behind a status.
        moving = any(tick.outcome.moves for tick in ticks if tick.outcome is not None)
        with self._limiter.hold_reports() if moving else contextlib.nullcontext():
            await self._apply_and_report_all(ticks, seconds)

    async def _decided(self, part: list[DuePolicy], answered: Answered, own: Mapping[Key, Answers]) -> list[Tick]:
        """Return the ticks of a part with their decisions. Of a part that fails as a whole each half is tried."""

        async def of(some: Sequence[DuePolicy]) -> list[Tick]:
            with self._metrics.stage("prepare"):
                ticks = await self._prepare_all(some, answered, own)
            with self._metrics.stage("decide"):
                self._decide_all(ticks)
            return ticks

        ticks: list[Tick] = []
        for some, result in await by_halves("decide", part, of):
            if isinstance(result, Exception):
                ticks += [Tick(policy, error=result) for policy, _ in some]
            else:
                ticks += result
        return ticks

    async def _prepare_all(
        self, part: Sequence[DuePolicy], answered: Answered, own: Mapping[Key, Answers]
    ) -> list[Tick]:
        """Return a tick for each policy, with samples that are views of one table."""
        breath, ticks = _Breath(), [Tick(policy) for policy, _ in part]
        rows: list[tuple[Tick, Prepared]] = []
        for tick, (policy, due) in zip(ticks, part, strict=True):
            try:
                answers = own.get(policy.key, answered.answers)
                elapsed = time.monotonic() - answered.at
                if (prepared := self._preparer.prepare(policy, due, answers, elapsed)) is not None:
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
        """Decide again, with their grants, for the policies whose request or running replicas exceed the grant."""
        try:
            grants = sharing.share_batch([(tick.policy, tick.outcome) for tick in ticks if tick.outcome is not None])
        except Exception as error:
            raise ShareError("share the RLScalingBudget of a policy", error) from error
        again: list[tuple[Tick, Grant, Entry]] = []
        for tick in ticks:
            if (failure := sharing.failure(tick.policy)) is not None:
                # Without its grant nothing bounds the decision: it is held.
                tick.outcome, tick.error = None, failure
                continue
            if (grant := grants.get(tick.policy.key)) is None:
                continue
            tick.granted = grant.by_pool
            if grant.binds:
                assert tick.entry is not None
                granted = np.array([grant.by_pool], np.int32)
                tick.entry = replace(tick.entry, samples=replace(tick.entry.samples, granted_replicas=granted))
                again.append((tick, grant, tick.entry))
        for (tick, grant, _), outcome in zip(again, decide_all([entry for *_, entry in again]), strict=True):
            outcome.granted, outcome.sharing = grant.describe(), grant.sharing_id
            tick.outcome = outcome

    async def _apply_and_report_all(self, ticks: list[Tick], seconds: dict[str, float]) -> None:
        """Diagnose, apply and report where anything is new; `seconds` are those of the stages so far."""
        breath, launched = _Breath(), 0

        def hand_over(tick: Tick) -> None:
            nonlocal launched
            policy, outcome = tick.policy, tick.outcome
            if outcome is not None:
                outcome.seconds = seconds
                policy.decision.decided(outcome)
                if self._reconciler.is_quiet(policy, outcome):
                    return self._reconciler.pass_quiet(policy, outcome)
            self._launch([policy], self._reconciler.apply_and_report(policy, outcome, tick.error))
            launched += 1
            return None

        for tick in ticks:
            before = launched
            self._fence.run(tick.policy, "report its decision", hand_over, tick)
            if launched == before:
                await breath.take()
            elif launched % LAUNCHED == 0:
                await asyncio.sleep(0)

    def _compare_all(self, access: Access, ticks: list[Tick]) -> None:
        """Step the shadow simulation, and compare its model with the measurements where a window is over."""
        here = [
            ComparedPolicy(tick.policy, tick.entry, tick.granted)
            for tick in ticks
            if tick.entry is not None
            and tick.policy.running
            and self._registry.get(tick.policy.key) is tick.policy
            # Virtual services and late requests are of requests: neither knows partitions.
            and tick.policy.spec.signal is None
        ]
        self._shadows.tick(here, self._tables.samples)
        policies = [item.policy for item in here]
        if due := self._shadows.due_for_calibration(policies, unix_now()):
            self._launch([], self._measure(access, due, WINDOW_SECONDS, "calibrate its model", self._calibrate))
        if late := self._objectives.due(policies, time.monotonic()):
            seconds, count = self._objectives.window_seconds, self._objectives.count
            self._launch([], self._measure(access, late, seconds, "count its late requests", count))

    async def _measure(
        self,
        access: Access,
        policies: list[Policy],
        seconds: float,
        doing: str,
        work: Callable[[Policy, Histograms], None],
    ) -> None:
        """Have `work` done for each policy with the latency histograms of the last seconds."""
        measured = await self._sensing.histograms(access, [policy for policy in policies if policy.running], seconds)
        for policy in policies:
            if policy.running:
                self._fence.run(policy, doing, work, policy, measured)

    def _calibrate(self, policy: Policy, measured: Histograms) -> None:
        self._shadows.calibrate(policy, measured, unix_now())


def _part(batch: list[DuePolicy], own: OwnAnswers) -> tuple[list[DuePolicy], list[DuePolicy]]:
    """Return the policies whose own queries are answered or that have none, and the others."""
    ready: list[DuePolicy] = []
    late: list[DuePolicy] = []
    for due_policy in batch:
        task = own.get(due_policy[0].key)
        (ready if task is None or task.done() else late).append(due_policy)
    return ready, late


class _Breath:
    """Lets other tasks run where this task has kept the event loop for a while."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def take(self) -> None:
        if time.monotonic() - self._since > HELD_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()
