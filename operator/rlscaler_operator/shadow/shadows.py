"""All comparisons of one operator: called once a sensing batch, for every policy in it."""

from __future__ import annotations

import logging
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.api import is_true
from rlscaler_core.api.conditions import CONFLICTED
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import Entry, Joins
from rlscaler_core.decision.belief import believed
from rlscaler_core.decision.decide import Kind
from rlscaler_core.decision.types import POOLS, Float, Params, Samples
from rlscaler_core.queueing.fluid import by_capacity
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.sensing.measure import REQUEST_RATE
from rlscaler_operator.shadow.calibration import Histograms, histogram_of
from rlscaler_operator.shadow.comparison import Comparison, date_of, requirements_of, resumed
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS
from rlscaler_operator.shadow.service_times import ServiceTimes, service_times
from rlscaler_operator.shadow.simulation import LONG_SECONDS, SHORT_SECONDS, hpa_params
from rlscaler_operator.shadow.table import SimulationTable
from rlscaler_operator.shadow.verdict import REMEDY, demoted, next_promotion
from rlscaler_operator.state.policy import Policy

log = logging.getLogger("rlscaler.shadow")

HPA_STACK = 1
"""The HPA formula looks at the newest observation only."""

FAILED = "ComparisonFailed"
"""Reason of a policy that cannot be compared."""

APART_SECONDS = 3600.0
"""Time for which policies are compared apart after the last failure."""

FRESH_SECONDS = 300.0
"""Time between two verdicts, at which the status takes over today's figures."""

AT_ONCE = 25
"""Verdicts or calibrations in one batch: at midnight all are due, and nothing waits for one."""

DAY_SECONDS = 86400.0

BURN = ((SHORT_SECONDS, 14.4), (LONG_SECONDS, 6.0))
"""Memory and rate at which more late requests than the HPA formula's burn the error budget, and it cannot wait for a
day to end: the pages of "Alerting on SLOs", The Site Reliability Workbook, chapter 5: 2 % of a month's budget in one
hour, 5 % in six."""

MOST_EXCESS_PERCENT = 25.0
"""Percentage points that are too many even with a loose objective."""

LEAST_REQUESTS = 500.0


class ComparedPolicy(NamedTuple):
    """One policy of a sensing batch."""

    policy: Policy
    entry: Entry
    granted: tuple[int, int] | None = None
    """Replicas by pool that a shared budget leaves the virtual service, -1 = any number; None without a budget."""


def params_and_actor(policy: Policy) -> tuple[Params, ActorLike | None]:
    """Return the parameters and actor of a policy: its own spec and actor, or after a demotion the HPA formula."""
    if demoted(policy.spec.mode, policy.promotion.status):
        return hpa_params(policy.params()), None
    return policy.params(), policy.decision.actor


class Shadows:
    """Keeps the virtual services. Nothing here can keep a policy from acting: failures are logged and left out."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._tables: dict[int, SimulationTable] = {}
        self._comparisons: dict[Key, Comparison] = {}
        self._groups: dict[Key, str] = {}
        """Policies that are compared apart from others after a failure, by the name of their group."""
        self._rejoin_at = -math.inf
        """Unix time at which all are compared together again."""

    def tick(self, items: Sequence[ComparedPolicy], joins: Joins[Samples] | None = None) -> None:
        """Compare a sensing batch, after it was decided. `joins` may know the table of its samples. Never raises.

        Policies whose comparison fails together are compared by halves at the next ticks, until the one at fault is
        alone: a tick that is run twice would count twice.
        """
        groups: dict[str, list[ComparedPolicy]] = defaultdict(list)
        for item in items:
            groups[self._groups.get(item.policy.key, "")].append(item)
        for name, group in groups.items():
            now = float(group[0].entry.samples.time[0])
            if self._groups and now >= self._rejoin_at:
                self._groups.clear()
            try:
                self._tick(group, (joins if len(group) == len(items) else None) or Joins())
            except Exception as error:
                self._divide(name, group, error, now)

    def _divide(self, name: str, group: Sequence[ComparedPolicy], error: Exception, now: float) -> None:
        """Have the halves of a group that failed compared apart; of one policy the failure is its verdict."""
        self._rejoin_at = now + APART_SECONDS
        for number, item in enumerate(group):
            self._groups[item.policy.key] = f"{name}{'01'[2 * number >= len(group)]}" if len(group) > 1 else name
        if len(group) > 1:
            log.warning("comparing %d policies failed: each half is compared apart: %r", len(group), error)
            return
        policy, text = group[0].policy, f"the comparison failed: {error!r}; report it with the policy and this log"
        status = policy.promotion.status
        if status is not None and status.reason != FAILED:
            log.error("%s/%s: %s", *policy.key, text, exc_info=error)
            failed = status.model_copy(update={"reason": FAILED, "message": text})
            policy.promotion.set_status(failed, policy.observed.generation, policy.decision.actor)

    def forget(self, key: Key) -> None:
        """Forget a policy that is gone, or is another one of the same name."""
        comparison = self._comparisons.pop(key, None)
        if comparison is not None:
            self._tables[comparison.stack].release(comparison.row)

    def ensure_promotion(self, policy: Policy, now: float) -> None:
        """Bring `policy.promotion.status` in line with its spec before it is decided for; `now` in unix seconds."""
        wanted = (policy.observed.generation, policy.decision.actor)
        if policy.promotion.status is None or policy.promotion.valid_for != wanted:
            self._update_promotion(policy, self._comparisons.get(policy.key), now)

    def due_for_calibration(self, policies: Iterable[Policy], now: float) -> list[Policy]:
        """Return the policies whose window is over; `now` in unix seconds. A new window begins for them."""
        due = []
        for policy in policies:
            comparison = self._comparisons.get(policy.key)
            if comparison is not None and now >= comparison.calibrate_at:
                comparison.calibrate_at = now + WINDOW_SECONDS
                due.append(policy)
                if len(due) == AT_ONCE:
                    break
        return due

    def calibrate(self, policy: Policy, measured: Histograms, now: float) -> None:
        """Calibrate the model by the measurements of the window that has just ended."""
        comparison = self._comparisons.get(policy.key)
        if comparison is None or comparison.row < 0:
            return
        meter = self._tables[comparison.stack].real(comparison.row)
        histogram = histogram_of(measured, policy.subject)
        times = service_times(measured, policy.subject, WINDOW_SECONDS)
        comparison.calibrate(meter, histogram, float(policy.spec.slo.latency_milliseconds), times)
        self._update_promotion(policy, comparison, now)

    def _tick(self, items: Sequence[ComparedPolicy], joins: Joins[Samples]) -> None:
        groups: dict[int, list[tuple[ComparedPolicy, Comparison]]] = defaultdict(list)
        for item in items:
            comparison = self._comparison(item)
            if comparison is not None:
                groups[comparison.stack].append((item, comparison))
        for stack, group in groups.items():
            table = self._tables.setdefault(stack, SimulationTable(stack))
            table.admit(
                [
                    (comparison, _own_params(item), item.entry.samples)
                    for item, comparison in group
                    if comparison.row < 0
                ]
            )
            members = [item for item, _ in group]
            samples = _within_grants(members, joins.join([item.entry.samples for item in members]))
            self._step(table, members, [comparison for _, comparison in group], samples)

    def _comparison(self, item: ComparedPolicy) -> Comparison | None:
        """Return the policy's comparison as it should be now; None where there is nothing to compare."""
        policy, now = item.policy, float(item.entry.samples.time[0])
        self.ensure_promotion(policy, now)
        promotion, comparison = policy.promotion.status, self._comparisons.get(policy.key)
        if promotion is None or (policy.decision.actor is None and promotion.against == "Running"):
            return None
        acting = promotion.against == "HPAFormula"
        if comparison is not None and comparison.policy is policy and comparison.is_of(promotion):
            return comparison
        before = comparison
        self.forget(policy.key)
        stack = HPA_STACK if acting or policy.decision.actor is None else policy.decision.actor.manifest.stack_size
        comparison = resumed(policy, acting, stack, now)
        if before is not None and before.policy is policy and before.basis == comparison.basis:
            # A change of the side that acts does not change the service; an edit may.
            comparison.capacity_factor = before.capacity_factor
        # Not all at the same time: what was taken over together would be measured together for ever.
        comparison.calibrate_at = now + random.uniform(0, WINDOW_SECONDS)
        self._comparisons[policy.key] = comparison
        return comparison

    def _step(
        self, table: SimulationTable, items: list[ComparedPolicy], comparisons: list[Comparison], samples: Samples
    ) -> None:
        rows = np.array([comparison.row for comparison in comparisons], np.intp)
        held = [is_true(item.policy.report.conditions, CONFLICTED) for item in items]
        # Beside a policy that does not act it makes no difference what sets the replicas that really run.
        should_act = np.array([comparison.acting for comparison in comparisons])
        compared = ~samples.paused & ~(should_act & np.array(held))
        for row, comparison, item in zip(rows.tolist(), comparisons, items, strict=True):
            if comparison.params is None or item.entry.kind == "action":
                comparison.params = _own_params(item)
                table.set_params(row, comparison.params)
        share = _shares(items, samples, table.params(rows))
        self._close_days(table, items, comparisons, samples)
        requests = _requests(items, samples)
        times = ServiceTimes(*map(np.stack, zip(*(comparison.times for comparison in comparisons), strict=True)))
        capacity_factor = np.array([comparison.capacity_factor for comparison in comparisons])
        table.advance_meters(rows, samples, share, self._window_seconds, compared, requests, times, capacity_factor)
        groups: dict[tuple[Kind, bool, int], list[int]] = defaultdict(list)
        for i, (item, comparison) in enumerate(zip(items, comparisons, strict=True)):
            groups[item.entry.kind, comparison.acting, id(item.policy.decision.actor)].append(i)
        for (kind, acting, _), numbers in groups.items():
            actor: ActorLike | None = None if acting else items[numbers[0]].policy.decision.actor
            change = hpa_params if acting else None
            table.scale_virtual(rows[numbers], samples.take(numbers), actor, kind, compared[numbers], change)
        self._demote_burning(table, items, comparisons, rows, samples)
        for row, comparison, item in zip(rows.tolist(), comparisons, items, strict=True):
            if item.entry.kind == "action":
                item.policy.promotion.today = comparison.day(table.sums(row))

    def _close_days(
        self, table: SimulationTable, items: list[ComparedPolicy], comparisons: list[Comparison], samples: Samples
    ) -> None:
        """Close the days that are over, and update some of the verdicts that are due."""
        stale = []
        for item, comparison, now in zip(items, comparisons, samples.time.tolist(), strict=True):
            if now >= comparison.day_ends:
                if (today := date_of(now)) != comparison.today:
                    comparison.close(table.sums(comparison.row), today)
                    table.reset(comparison.row)
                    comparison.update_at = now
                comparison.day_ends = (now // DAY_SECONDS + 1) * DAY_SECONDS
            if now >= comparison.update_at:
                stale.append((item, comparison, now))
        for item, comparison, now in stale[:AT_ONCE]:
            self._update_promotion(item.policy, comparison, now)

    def _demote_burning(
        self,
        table: SimulationTable,
        items: list[ComparedPolicy],
        comparisons: list[Comparison],
        rows: NDArray[np.intp],
        samples: Samples,
    ) -> None:
        """Demote policies at once that burn their error budget far faster than the HPA formula would."""
        acting = np.array([comparison.acting and comparison.calibrated for comparison in comparisons])
        if not acting.any():
            return
        budget = np.array([100 - item.policy.spec.slo.objective for item in items])
        excess, seconds = table.excess(rows)
        for memory, (length, rate) in enumerate(BURN):
            requests, late = excess[:, memory, 0], -excess[:, memory, 1]
            # Late shares in percent: burn rate times error budget (100 - objective), with an upper limit for loose
            # objectives.
            most = np.minimum(rate * budget, MOST_EXCESS_PERCENT)
            counts = acting & (seconds >= length) & (requests >= LEAST_REQUESTS)
            for i in np.flatnonzero(counts & (100 * late > most * requests)).tolist():
                text = (
                    f"over {length / 3600:g} h {100 * late[i] / requests[i]:.1f} % more of the requests were late than "
                    "the HPA formula would have left late"
                )
                self._update_promotion(items[i].policy, comparisons[i], float(samples.time[i]), text)

    def _update_promotion(self, policy: Policy, comparison: Comparison | None, now: float, burning: str = "") -> None:
        """Update the verdict, with today's figures."""
        wanted, before = requirements_of(policy), policy.promotion.status
        days, remedy = [] if before is None else before.evidence, REMEDY
        if comparison is not None and before is not None and comparison.is_of(before):
            days = comparison.days
            if comparison.row >= 0:
                days = [*days, comparison.day(self._tables[comparison.stack].sums(comparison.row))]
            remedy = comparison.remedy()
        after = next_promotion(before, wanted, days, datetime.fromtimestamp(now, UTC), burning, remedy)
        if comparison is not None:
            comparison.update_at = now + FRESH_SECONDS
        if before is None or before.state != after.state:
            log.info("%s/%s: %s (%s)", *policy.key, after.state, after.reason)
        policy.promotion.set_status(after, policy.observed.generation, policy.decision.actor)


def _within_grants(items: list[ComparedPolicy], samples: Samples) -> Samples:
    """Bound the virtual services by the grants of shared budgets: acting policies would have had no more."""
    if all(item.granted is None for item in items):
        return samples
    granted = [(-1, -1) if item.granted is None else item.granted for item in items]
    return replace(samples, granted_replicas=np.array(granted, np.int32))


def _own_params(item: ComparedPolicy) -> Params:
    """Return the parameters of a virtual service: it has the capacity that is believed of the real one."""
    params = believed(item.policy.params(), item.entry.state)
    return replace(params, learns_capacity=np.zeros_like(params.learns_capacity))


def _shares(items: list[ComparedPolicy], samples: Samples, params: Params) -> Float:
    """Return the shares (N, 2) of the arrivals between the pools, as measured; else by the capacity that is ready."""
    shares = by_capacity(params, samples.ready_replicas)
    measured = (item.policy.decision.readings["arrival_rate"].pools for item in items)
    # A pool that is not counted got nothing.
    rates = np.array([[pools[pool].value if pool in pools else 0.0 for pool in POOLS] for pools in measured])
    known = np.isfinite(rates).all(axis=1) & (rates.sum(axis=1) > 0)
    # Measured shares where both pools are counted, else shares by ready capacity.
    shares[known] = rates[known]
    return shares


def _requests(items: list[ComparedPolicy], samples: Samples) -> Float:
    """Return the requests/s (N,) that arrive; NaN where the load has another unit and they are unknown."""
    rates = samples.arrival_rate.copy()
    for i, item in enumerate(items):
        beside = item.policy.decision.readings.get(REQUEST_RATE)
        if beside is not None:
            fresh = beside.age_seconds <= item.policy.spec.metrics.max_age_seconds
            rates[i] = beside.value if fresh else math.nan
    return rates
