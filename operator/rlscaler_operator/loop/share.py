"""Sharing budgets: what the policies of a batch ask for goes to the arbiter, and its grants bound their decisions.

Every policy is decided for as if it were alone; what comes out is what it asks for. Where its grant is smaller, or
where more runs than is granted, it is decided for again with the grant, which the guard `grant` enforces. The operator
that holds the shard of a budget shares it; for policies of other budgets the grants hold that are in their statuses.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from rlscaler_core.api.budget import BudgetSpec
from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.arbiter.rules import RuleName
from rlscaler_core.arbiter.types import NO_MEMBER, Grants, Loans, Members, follow, make_budgets, of_resources
from rlscaler_core.arbiter.types import Budgets as Pools
from rlscaler_core.decision.batch import Outcome
from rlscaler_core.decision.types import Float, Int
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.loop.bounds import Bound, Proposal, Shares, bounds_of, note, shares_of
from rlscaler_operator.loop.members import Crowd, Held, Row, members_of, proposals
from rlscaler_operator.records.audit import AuditLog
from rlscaler_operator.records.sharing import BudgetObject, SharingLog, Told, alike
from rlscaler_operator.reporting.budgets import Absent, BudgetReporter
from rlscaler_operator.reporting.grants import Shared, Would, told_text, would_text
from rlscaler_operator.state.budgets import Budget, Budgets
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.share")

T = TypeVar("T")

BETWEEN_SECONDS = 1.0
"""Longest time until a replica that another shard's policy has gained or lost is noticed."""


class Asks(NamedTuple):
    """A budget that is to be shared, and all that its grants follow from."""

    budget: Budget
    spec: BudgetSpec
    amounts: tuple[float, ...]
    """What there is of each resource."""
    rows: list[Row]
    loans: Loans
    """What the arbiter remembers of the rows from the interval before."""

    def same(self, other: Asks) -> bool:
        """Say whether the grants of `other` follow from just the same."""
        if self.budget is not other.budget or self.spec is not other.spec or self.amounts != other.amounts:
            return False
        return self.rows == other.rows and alike(self.loans, other.loans)


class Granted(NamedTuple):
    """What the arbiter granted the members of a budget."""

    asks: Asks
    shared: Shared
    after: Loans
    """What the arbiter remembers from now on."""
    before: Loans
    """The loans that these followed from, less what members gave up."""


class Sharing:
    """Shares all budgets. What it remembers is in the budgets."""

    def __init__(
        self,
        registry: Registry,
        cache: WatchCache,
        budgets: Budgets,
        reporter: BudgetReporter,
        audit: AuditLog | None = None,
        clock: Callable[[], float] = time.monotonic,
        held: Held | None = None,
    ) -> None:
        """`audit` is where it is written down how budgets were shared; `held` says what this process acts for."""
        self.budgets, self._log, self._held = budgets, SharingLog(audit), held or Held()
        self._registry, self._reporter, self._clock = registry, reporter, clock
        self._crowd = Crowd(registry, cache, budgets, self._held)
        self._looked_at = -math.inf
        self._last: dict[str, Granted] = {}
        """What came out by budget, which holds for as long as all is the same that it followed from."""

    def share_batch(self, decided: Sequence[tuple[Policy, Outcome]]) -> Shares:
        """Share the budgets of the policies of a batch, which were decided for without a grant."""
        shares = Shares({}, {})
        if not len(self.budgets):
            for policy, _ in decided:
                policy.decision.selected_by(())
                policy.decision.tell(None)
            return shares
        here = {budget.name for budget in self.budgets if self._held.shares(budget.name)}
        touched: set[str] = set()
        proposals: list[Proposal] = []
        for policy, outcome in decided:
            names = self.budgets.names_of(policy.key)
            policy.decision.selected_by(names)
            touched.update(names)
            if len(names) == 1 and outcome.decision is not None:
                budget = self.budgets.of(policy.key)[0][0]
                proposals.append(Proposal(budget, policy, outcome, outcome.decision, budget.pool))
            else:
                policy.decision.tell(None)
        note(proposals)
        asking: dict[str, dict[Key, Proposal]] = defaultdict(dict)
        bounds: list[Bound] = []
        for proposal in proposals:
            told = None
            if proposal.budget.name in here:
                asking[proposal.budget.name][proposal.policy.key] = proposal
            else:
                bound = self._follow(proposal)
                bounds += [] if bound is None else [bound]
                told = self._crowd.membership(
                    proposal.budget, proposal.policy, None if bound is None else bound.granted
                )
            proposal.policy.decision.tell(told)
        shared = self._share([budget for budget in self.budgets if budget.name in touched & here])
        for name, (rows, one) in shared.items():
            bounds += bounds_of(asking[name], rows, one)
        return shares_of(bounds)

    def together(self, batch: list[T], key: Callable[[T], Key]) -> list[T]:
        """Order a batch by the budgets of its policies, so that few parts of it share the same budget."""
        if not len(self.budgets):
            return batch
        return sorted(batch, key=lambda one: self.budgets.names_of(key(one)))

    def share_between(self) -> None:
        """Share the budgets of which other shards hold policies: once a second, and when one of these says something.

        A policy of this process whose grant changes is due for a tick; the others read the status of the budget.
        """
        now = self._clock()
        if not self.budgets.news and now - self._looked_at < BETWEEN_SECONDS:
            return
        self._looked_at, self.budgets.news = now, False
        some = [one for one in self.budgets if self._held.shares(one.name) and self._crowd.travels(one)]
        before = {one.name: dict(zip(one.names, one.loans.granted.tolist(), strict=True)) for one in some}
        for name, (rows, shared) in self._share(some).items():
            for row, granted in zip(rows, shared.grants.granted.tolist(), strict=True):
                schedule = row.policy.timing.schedule
                if not row.elsewhere and schedule is not None and before[name].get(row.key) != granted:
                    schedule.hurry(time.monotonic())

    def _follow(self, proposal: Proposal) -> Bound | None:
        """What the status of a budget of another shard grants a policy; None where it does not bind anybody yet.

        One that is not in the status yet may keep what runs: it joined a moment ago, or no process shares now.
        """
        budget, policy, outcome, *_ = proposal
        if not budget.is_shared:
            return None
        told = budget.told.get(policy.key)
        row_acts = self._crowd.membership(budget, policy, None).acts
        if told is None:
            text = f"RLScalingBudget {budget.name}: not granted anything yet: it keeps what runs"
            return Bound(proposal, self._crowd.running(budget, policy), row_acts, lambda: text)
        if not row_acts and told.would_be_granted is not None:
            asked = budget.asked.get(policy.key, math.nan)
            outcome.granted = "" if math.isnan(asked) else would_text(budget.name, int(asked), told.would_be_granted)
            return Bound(proposal, told.would_be_granted, row_acts, partial(told_text, budget.name, told))
        return Bound(proposal, told.granted, row_acts, partial(told_text, budget.name, told))

    def _share(self, budgets: list[Budget]) -> dict[str, tuple[list[Row], Shared]]:
        """Have the arbiter share these budgets, all of one rule in one batch."""
        now, found = self._clock(), {}
        for rule in ("MaxMinFair", "Priority"):
            some: list[Asks] = []
            for one in budgets:
                if one.spec is None or one.spec.arbiter != rule or not (amounts := one.amounts):
                    continue
                crowd = self._crowd.rows(one)
                asks = Asks(one, one.spec, amounts, crowd, self._loans(one, crowd, now))
                last = self._last.get(one.name)
                if last is not None and last.asks.same(asks):
                    found[one.name] = crowd, self._keep(last, now)
                else:
                    some.append(asks)
            if some:
                for granted in self._granted(rule, some):
                    self._last[granted.asks.budget.name] = granted
                    found[granted.asks.budget.name] = granted.asks.rows, self._keep(granted, now)
        names = {one.name for one in self.budgets}
        self._log.forget(names)
        self._crowd.forget(names)
        for gone in self._last.keys() - names:
            del self._last[gone]
        return found

    def _granted(self, rule: RuleName, some: list[Asks]) -> Iterator[Granted]:
        """Have the arbiter share these budgets, which are of one rule, in one batch."""
        specs, rows = [one.spec for one in some], [one.rows for one in some]
        pools = make_budgets(
            len(some),
            amount=_table([one.amounts for one in some]),
            lend=[spec.lending.enabled for spec in specs],
            reclaim_intervals=[spec.lending.reclaim_intervals for spec in specs],
        )
        members, before = members_of(specs, rows), Loans.concat([one.loans for one in some])
        grants, after = arbitrate(rule, pools, members, before)
        would = _would_be(rule, pools, specs, rows, before)
        kept = _not_given_up(before, members)
        begin = 0
        for number, one in enumerate(some):
            here = slice(begin, begin + len(one.rows))
            resources = tuple(resource.name for resource in one.spec.shared)
            own, mine = of_resources(members.take(here), len(resources)), grants.take(here)
            own.budget[:] = 0
            mine.because[mine.because != NO_MEMBER] -= begin
            keys, acting = tuple(row.key for row in one.rows), tuple(row.acts for row in one.rows)
            pool = of_resources(pools.take([number]), len(resources))
            told = Told(rule, one.spec.pool, resources, keys, acting, pool, own, one.loans)
            then = after.take(here)
            shared = Shared(
                one.budget.name,
                one.spec,
                [(row.key, row.share) for row in one.rows],
                pool,
                own,
                mine,
                False,
                self._log.note(BudgetObject(one.budget.name, one.budget.uid, one.budget.generation), told, mine, then),
                any(row.elsewhere for row in one.rows),
                None if would is None else Would(proposals(one.rows), would.take(here)),
            )
            yield Granted(one, shared, then, replace(one.loans, granted=kept[here].copy()))
            begin += len(one.rows)

    def _loans(self, budget: Budget, rows: list[Row], now: float) -> Loans:
        """What the arbiter remembers of these members from the interval before; a new one begins when it is time."""
        assert budget.spec is not None
        if now - budget.began_at >= budget.spec.interval_seconds:
            budget.began_at, budget.before = now, budget.loans
        names = tuple(row.key for row in rows)
        if names != budget.names:
            budget.before = follow(budget.before, budget.names, names)
            budget.names = names
            for kept in (budget.asked, budget.starved):
                for gone in kept.keys() - set(names):
                    del kept[gone]
        return budget.before

    def _keep(self, granted: Granted, now: float) -> Shared:
        """Remember the grants, count the seconds in which they were too small, and report them."""
        budget, rows = granted.asks.budget, granted.asks.rows
        budget.loans, budget.before = granted.after, granted.before
        passed = 0.0 if budget.shared_at is None else now - budget.shared_at
        budget.shared_at = now
        shared = granted.shared._replace(begins=budget.began_at == now)
        for row, replicas in zip(rows, shared.grants.granted.tolist(), strict=True):
            if row.asked > replicas:
                budget.starved[row.key] = budget.starved.get(row.key, 0.0) + passed
        roster = self._crowd.roster(budget)
        absent = Absent(roster.several, roster.poolless, self._crowd.unitless(budget, rows))
        self._reporter.report(budget, shared, absent)
        return shared


def _table(amounts: Sequence[tuple[float, ...]]) -> Float:
    """The amounts (B, R) of budgets; what a budget does not have is 0."""
    wide = max(map(len, amounts))
    return np.array([each + (0.0,) * (wide - len(each)) for each in amounts], np.float64)


def _not_given_up(before: Loans, members: Members) -> Int:
    """The grants (M,) that the arbiter remembers, less what members gave up by asking for less.

    Others may have it from then on, so a member that asks for more again in the same interval waits for it like others.
    """
    asked = np.fmax(members.asked, members.minimum)
    return np.fmin(before.granted, np.where(np.isnan(members.asked), np.inf, asked)).astype(np.int32)


def _would_be(
    rule: RuleName, pools: Pools, specs: Sequence[BudgetSpec], rows: Sequence[Sequence[Row]], loans: Loans
) -> Grants | None:
    """What would be granted if those that do not act did; None where it is not known of any of them what it asks."""
    if not any(not math.isnan(row.proposed) for crowd in rows for row in crowd):
        return None
    grants, _ = arbitrate(rule, pools, members_of(specs, rows, if_all_acted=True), loans)
    return grants
