"""All comparisons of one operator: called once a sensing batch, for every policy in it."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.api import is_true
from rlscaler_core.api.conditions import CONFLICTED
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import Entry, Joins
from rlscaler_core.decision.decide import Kind
from rlscaler_core.decision.types import POOLS, Float, Params, Samples
from rlscaler_core.queueing.fluid import by_capacity
from rlscaler_operator.cluster.cache import Key
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.shadow.book import Book
from rlscaler_operator.shadow.calibration import Histogram
from rlscaler_operator.shadow.case import Case, asked, date_of, resumed
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS
from rlscaler_operator.shadow.twins import LONG_SECONDS, SHORT_SECONDS, hpa_params
from rlscaler_operator.shadow.verdict import demoted, judge
from rlscaler_operator.state.policy import Policy

log = logging.getLogger("rlscaler.shadow")

HPA_STACK = 1
"""The HPA formula looks at the newest observation only."""

FRESH_SECONDS = 300.0
"""How often a verdict is looked for and the status takes over today's figures."""

AT_ONCE = 25
"""Verdicts or calibrations in one batch: at midnight all are due, and nobody waits for one."""

DAY_SECONDS = 86400.0

BURN = ((SHORT_SECONDS, 14.4), (LONG_SECONDS, 6.0))
"""Memory and rate at which more late requests than the HPA formula's burn the error budget, and it cannot wait for a
day to end: the pages of "Alerting on SLOs", The Site Reliability Workbook, chapter 5: 2 % of a month's budget in one
hour, 5 % in six."""

MOST_EXCESS_PERCENT = 25.0
"""With a loose objective so many percentage points are too many all the same."""

LEAST_REQUESTS = 500.0


class Item(NamedTuple):
    """One policy of a sensing batch."""

    policy: Policy
    entry: Entry


def driver(policy: Policy) -> tuple[Params, ActorLike | None]:
    """What decides for a policy: its own spec and actor, or after a demotion the HPA formula."""
    if demoted(policy.spec.mode, policy.promotion):
        return hpa_params(policy.params()), None
    return policy.params(), policy.actor


class Shadows:
    """Keeps the virtual services. Nothing here can keep a policy from acting: what fails is logged and left out."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._books: dict[int, Book] = {}
        self._cases: dict[Key, Case] = {}
        self._complained = False

    def tick(self, items: Sequence[Item], joins: Joins[Samples] | None = None) -> None:
        """One sensing batch, after it was decided. `joins` may know the table of its samples. Never raises."""
        try:
            self._tick(items, joins or Joins())
            self._complained = False
        except Exception:
            if not self._complained:
                log.exception("comparing %d policies with their virtual services failed", len(items))
            self._complained = True

    def forget(self, key: Key) -> None:
        """A policy is gone, or is another one of the same name."""
        case = self._cases.pop(key, None)
        if case is not None:
            self._books[case.stack].release(case.row)

    def stand(self, policy: Policy, now: float) -> None:
        """Bring `policy.promotion` in line with its spec before it is decided for; `now` in unix seconds."""
        if policy.promotion is None or policy.promotion_of != (policy.generation, policy.actor):
            self._judge(policy, self._cases.get(policy.key), now)

    def due_for_calibration(self, policies: Iterable[Policy], now: float) -> list[Policy]:
        """Those whose window is over; `now` in unix seconds. A new window begins for them."""
        due = []
        for policy in policies:
            case = self._cases.get(policy.key)
            if case is not None and now >= case.calibrate_at:
                case.calibrate_at = now + WINDOW_SECONDS
                due.append(policy)
                if len(due) == AT_ONCE:
                    break
        return due

    def calibrate(self, policies: Iterable[Policy], measured: dict[Key, Histogram], now: float) -> None:
        """What was measured in the window that has just ended."""
        for policy in policies:
            case = self._cases.get(policy.key)
            if case is None or case.row < 0:
                continue
            meter = self._books[case.stack].real(case.row)
            service = (policy.subject.namespace, policy.subject.service)
            case.calibrate(meter, measured.get(service), float(policy.spec.slo.latency_milliseconds))
            self._judge(policy, case, now)

    def _tick(self, items: Sequence[Item], joins: Joins[Samples]) -> None:
        groups: dict[int, list[tuple[Item, Case]]] = defaultdict(list)
        for item in items:
            case = self._case(item)
            if case is not None:
                groups[case.stack].append((item, case))
        for stack, group in groups.items():
            book = self._books.setdefault(stack, Book(stack))
            book.admit([(case, item.policy.params(), item.entry.samples) for item, case in group if case.row < 0])
            members = [item for item, _ in group]
            samples = joins.join([item.entry.samples for item in members])
            self._step(book, members, [case for _, case in group], samples)

    def _case(self, item: Item) -> Case | None:
        """The policy's comparison as it should be now; None where there is nothing to compare."""
        policy, now = item.policy, float(item.entry.samples.time[0])
        self.stand(policy, now)
        promotion, case = policy.promotion, self._cases.get(policy.key)
        if promotion is None or (policy.actor is None and promotion.against == "Running"):
            return None
        acting = promotion.against == "HPAFormula"
        if case is not None and case.policy is policy and case.is_of(promotion):
            return case
        self.forget(policy.key)
        stack = HPA_STACK if acting or policy.actor is None else policy.actor.manifest.stack_size
        case = resumed(policy, acting, stack, now)
        # Not all at the same time: what was taken over together would be measured together for ever.
        case.calibrate_at = now + random.uniform(0, WINDOW_SECONDS)
        self._cases[policy.key] = case
        return case

    def _step(self, book: Book, items: list[Item], cases: list[Case], samples: Samples) -> None:
        rows = np.array([case.row for case in cases], np.intp)
        compared = ~samples.paused & np.array([not is_true(i.policy.conditions, CONFLICTED) for i in items])
        for row, case, item in zip(rows.tolist(), cases, items, strict=True):
            params = item.policy.params()
            if case.params is not params:
                book.set_params(row, params)
                case.params = params
        share = _shares(items, samples, book.params(rows))
        self._roll(book, items, cases, samples)
        book.meter(rows, samples, share, self._window_seconds, compared)
        groups: dict[tuple[Kind, bool, int], list[int]] = defaultdict(list)
        for i, (item, case) in enumerate(zip(items, cases, strict=True)):
            groups[item.entry.kind, case.acting, id(item.policy.actor)].append(i)
        for (kind, acting, _), numbers in groups.items():
            actor: ActorLike | None = None if acting else items[numbers[0]].policy.actor
            change = hpa_params if acting else None
            book.drive(rows[numbers], samples.take(numbers), actor, kind, compared[numbers], change)
        self._watch(book, items, cases, rows, samples)
        for row, case, item in zip(rows.tolist(), cases, items, strict=True):
            if item.entry.kind == "action":
                item.policy.today = case.day(book.sums(row))

    def _roll(self, book: Book, items: list[Item], cases: list[Case], samples: Samples) -> None:
        """Close the days that are over, and judge some of those that were not for a while."""
        stale = []
        for item, case, now in zip(items, cases, samples.time.tolist(), strict=True):
            if now >= case.day_ends:
                if (today := date_of(now)) != case.today:
                    case.close(book.sums(case.row), today)
                    book.reset(case.row)
                    case.judge_at = now
                case.day_ends = (now // DAY_SECONDS + 1) * DAY_SECONDS
            if now >= case.judge_at:
                stale.append((item, case, now))
        for item, case, now in stale[:AT_ONCE]:
            self._judge(item.policy, case, now)

    def _watch(
        self, book: Book, items: list[Item], cases: list[Case], rows: NDArray[np.intp], samples: Samples
    ) -> None:
        """Demote at once what burns its error budget far faster than the HPA formula would."""
        acting = np.array([case.acting and case.calibrated for case in cases])
        if not acting.any():
            return
        budget = np.array([100 - item.policy.spec.slo.objective for item in items])
        excess, seconds = book.excess(rows)
        for memory, (length, rate) in enumerate(BURN):
            requests, late = excess[:, memory, 0], -excess[:, memory, 1]
            most = np.minimum(rate * budget, MOST_EXCESS_PERCENT)
            counts = acting & (seconds >= length) & (requests >= LEAST_REQUESTS)
            for i in np.flatnonzero(counts & (100 * late > most * requests)).tolist():
                text = (
                    f"over {length / 3600:g} h {100 * late[i] / requests[i]:.1f} % more of the requests were late than "
                    "the HPA formula would have left late"
                )
                self._judge(items[i].policy, cases[i], float(samples.time[i]), text)

    def _judge(self, policy: Policy, case: Case | None, now: float, burning: str = "") -> None:
        """The verdict of now, with today's figures."""
        wanted, before = asked(policy), policy.promotion
        days = [] if before is None else before.evidence
        if case is not None and before is not None and case.is_of(before):
            days = case.days
            if case.row >= 0:
                days = [*days, case.day(self._books[case.stack].sums(case.row))]
        after = judge(before, wanted, days, datetime.fromtimestamp(now, UTC), burning)
        if case is not None:
            case.judge_at = now + FRESH_SECONDS
        if before is None or before.state != after.state:
            log.info("%s/%s: %s (%s)", *policy.key, after.state, after.reason)
        policy.promotion, policy.promotion_of = after, (policy.generation, policy.actor)


def _shares(items: list[Item], samples: Samples, params: Params) -> Float:
    """(N, 2) how the arrivals split between the pools, as measured; else by the capacity that is ready."""
    shares = by_capacity(params, samples.ready_replicas)
    rates = np.array([_rates(item.policy.readings["arrival_rate"].pools) for item in items])
    known = np.isfinite(rates).all(axis=1) & (rates.sum(axis=1) > 0)
    shares[known] = rates[known]
    return shares


def _rates(pools: Mapping[str, Reading]) -> list[float]:
    """(2,) by pool; 0 where nothing arrived."""
    return [pools[pool].value if pool in pools else 0.0 for pool in POOLS]
