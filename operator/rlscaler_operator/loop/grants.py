"""Sharing budgets: from the requests of a batch of policies to the grants that bound their decisions.

Every policy is decided as if it were alone; the result is its request. Where its grant is smaller, or where more
replicas run than are granted, the tick decides again with the grant, which the guard `grant` enforces. The owner of a
budget shares it; policies of other budgets follow the grants in the statuses of these budgets.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from rlscaler_core.api.budget import BudgetSpec
from rlscaler_core.arbiter.arbitrate import arbitrate, is_bound, requested
from rlscaler_core.arbiter.rules import RuleName
from rlscaler_core.arbiter.types import NO_MEMBER, Grants, Loans, Members, follow, make_budgets, of_resources
from rlscaler_core.decision.batch import Outcome
from rlscaler_core.decision.types import GPU, Decision, Float, Int
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.exceptions import ShareError
from rlscaler_operator.loop.budget_members import BudgetMembers, Owner, members_of
from rlscaler_operator.records.audit import AuditLog
from rlscaler_operator.records.sharing import ArbiterInput, BudgetObject, SharingLog
from rlscaler_operator.reporting.budgets import BudgetReporter
from rlscaler_operator.reporting.grants import describe_grant, describe_if_acting, describe_status_grant, if_acting_text
from rlscaler_operator.state.budgets import Budget, BudgetRegistry
from rlscaler_operator.state.grants import BudgetGrants, BudgetRequest, Excluded, Request
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.share")

T = TypeVar("T")

BETWEEN_SECONDS = 1.0
"""Longest time until a replica that another shard's policy has gained or lost is noticed."""


class Proposal(NamedTuple):
    """A policy of a budget, and its decision without a grant."""

    budget: Budget
    policy: Policy
    outcome: Outcome
    decision: Decision


class Grant(NamedTuple):
    """The grant of one policy: replicas in the pool of its budget."""

    proposal: Proposal
    replicas: int
    acts: bool
    """Whether the grant can bound the policy; the grant of a policy that does not act bounds its virtual service."""
    describe: Callable[[], str]
    """Returns the requested replicas, the granted ones, and the reason why it is not more, as a sentence."""
    sharing_id: str = ""
    """ID of the record in the decision log; empty where no log is kept."""
    binds: bool = False
    """Whether the policy acts and wants or runs more than this, so that it is decided again with the grant."""

    @property
    def by_pool(self) -> tuple[int, int]:
        """Replicas of the GPU and the CPU pool; -1 = any number."""
        return (self.replicas, -1) if self.proposal.budget.pool == GPU else (-1, self.replicas)


class Sharing:
    """Shares all budgets. Its memory is in the budgets (`state.budgets`)."""

    def __init__(
        self,
        registry: Registry,
        cache: WatchCache,
        budgets: BudgetRegistry,
        reporter: BudgetReporter,
        audit: AuditLog | None = None,
        clock: Callable[[], float] = time.monotonic,
        owner: Owner | None = None,
    ) -> None:
        """Keep the parts; `audit` is the decision log, and `owner` the budgets and policies of this process."""
        self.budgets, self._log, self._owner = budgets, SharingLog(audit), owner or Owner()
        self._registry, self._reporter, self._clock = registry, reporter, clock
        self._members = BudgetMembers(registry, cache, budgets, self._owner)
        self._between_at = -math.inf
        self._last: dict[str, BudgetGrants] = {}
        """The last grants by budget, valid as long as the request that they follow from stays the same."""

    def share_batch(self, decided: Sequence[tuple[Policy, Outcome]]) -> dict[Key, Grant]:
        """Return the grants of the policies of a batch, which were decided without a grant."""
        owned = {budget.name for budget in self.budgets if self._owner.of_budget(budget.name)}
        proposals, touched = self._proposals(decided)
        _remember_requests(proposals)
        to_share: dict[str, dict[Key, Proposal]] = defaultdict(dict)
        grants: list[Grant] = []
        for proposal in proposals:
            budget, policy, membership = proposal.budget, proposal.policy, None
            if budget.name in owned:
                to_share[budget.name][policy.key] = proposal
            else:
                grant = self._grant_in_status(proposal)
                grants += [] if grant is None else [grant]
                membership = self._members.membership(budget, policy, None if grant is None else grant.replicas)
            policy.decision.set_membership(membership)
        shared = self._share([budget for budget in self.budgets if budget.name in touched & owned])
        for name, of_budget in shared.items():
            grants += _grants_of(to_share[name], of_budget)
        return _with_binding(grants)

    def _proposals(self, decided: Sequence[tuple[Policy, Outcome]]) -> tuple[list[Proposal], set[str]]:
        """Return the proposals of the policies with a budget, and the names of all budgets of the batch."""
        proposals: list[Proposal] = []
        touched: set[str] = set()
        for policy, outcome in decided:
            names, budget = self.budgets.names_of(policy.key), self._members.budget_of(policy.key)
            # The budget that it was in is shared again without it.
            touched.update((*names, policy.decision.budget, "" if budget is None else budget.name))
            policy.decision.set_budgets(names, "" if budget is None else budget.name)
            if budget is not None and outcome.decision is not None:
                proposals.append(Proposal(budget, policy, outcome, outcome.decision))
            else:
                policy.decision.set_membership(None)
        return proposals, touched

    def sorted_by_budget(self, batch: list[T], key: Callable[[T], Key]) -> list[T]:
        """Order a batch by the budgets of its policies, so that few parts of it share the same budget."""
        if not len(self.budgets):
            return batch
        return sorted(batch, key=lambda item: self.budgets.names_of(key(item)))

    def share_between(self) -> None:
        """Share the budgets with members of other shards: once a second, and when one of their requests changes.

        A policy of this process whose grant changes is due for a tick; other shards read the status of the budget.
        """
        now = self._clock()
        if not self.budgets.memberships_changed and now - self._between_at < BETWEEN_SECONDS:
            return
        self._between_at, self.budgets.memberships_changed = now, False
        budgets = [b for b in self.budgets if self._owner.of_budget(b.name) and self._members.has_remote(b)]
        before = {b.name: dict(zip(b.members, b.loans.granted.tolist(), strict=True)) for b in budgets}
        for name, shared in self._share(budgets).items():
            for member, granted in zip(shared.request.members, shared.grants.granted.tolist(), strict=True):
                schedule = member.policy.timing.schedule
                if not member.remote and schedule is not None and before[name].get(member.key) != granted:
                    schedule.hurry(time.monotonic())

    def _grant_in_status(self, proposal: Proposal) -> Grant | None:
        """Return the grant of a policy in the status of another shard's budget; None before the budget is shared."""
        budget, policy, outcome, _ = proposal
        if not (budget.is_shared or budget.standing.waiting):
            return None
        member = budget.status_members.get(policy.key)
        acts = self._members.membership(budget, policy, None).acts
        if member is None:
            # It joined a moment ago, or no process shares the budget now.
            why = f"shared by the operator of Lease {budget.claim.lease} alone" if budget.standing.waiting else "yet"
            text = f"RLScalingBudget {budget.name}: not granted anything ({why}): it keeps what runs"
            return Grant(proposal, self._members.running(budget, policy), acts, lambda: text)
        policy.decision.set_unguaranteed(bool(member.unguaranteed))
        replicas = member.granted
        if not acts and member.would_be_granted is not None:
            replicas, requested = member.would_be_granted, budget.requested.get(policy.key, math.nan)
            outcome.granted = "" if math.isnan(requested) else if_acting_text(budget.name, int(requested), replicas)
        return Grant(proposal, replicas, acts, partial(describe_status_grant, budget.name, member))

    def _share(self, budgets: list[Budget]) -> dict[str, BudgetGrants]:
        """Return the grants of these budgets by name; the arbiter shares all budgets of one rule in one call."""
        now, shared = self._clock(), {}
        for rule in ("MaxMinFair", "Priority"):
            changed: list[BudgetRequest] = []
            for budget in budgets:
                if budget.spec is None or budget.spec.arbiter != rule or not (amounts := budget.amounts):
                    continue
                request = self._reporter.attempt(budget, partial(self._request, budget, budget.spec, amounts, now))
                if request is None:
                    continue
                last = self._last.get(budget.name)
                if last is not None and last.request.same(request):
                    shared[budget.name] = last
                else:
                    changed.append(request)
            for grants in self._arbitrated(rule, changed):
                self._last[grants.request.budget.name] = shared[grants.request.budget.name] = grants
        by_budget = {
            name: self._reporter.attempt(of.request.budget, partial(self._keep, of, now)) for name, of in shared.items()
        }
        names = {budget.name for budget in self.budgets}
        self._log.keep_only(names)
        self._members.keep_only(names)
        for gone in self._last.keys() - names:
            del self._last[gone]
        return {name: grants for name, grants in by_budget.items() if grants is not None}

    def failure(self, policy: Policy) -> ShareError | None:
        """Return why the share of a policy in its budget is not known; None where it is, and without a budget."""
        budget = self.budgets.get(policy.decision.budget)
        if budget is None or not self._owner.of_budget(budget.name):
            return None
        return budget.failed or budget.failed_members.get(policy.key)

    def _request(self, budget: Budget, spec: BudgetSpec, amounts: tuple[float, ...], now: float) -> BudgetRequest:
        members = self._members.requests(budget)
        return BudgetRequest(budget, spec, amounts, members, self._loans_before(budget, members, now))

    def _arbitrated(self, rule: RuleName, requests: list[BudgetRequest]) -> list[BudgetGrants]:
        """Return the grants of budgets of one rule; where the arbiter fails for all at once, each is tried alone."""
        try:
            return list(self._arbitrate(rule, requests)) if requests else []
        except Exception as error:
            if len(requests) == 1:
                self._reporter.failed(requests[0].budget, error)
                return []
            log.warning("%d RLScalingBudgets could not be shared at once: each is tried: %r", len(requests), error)
        return [grants for request in requests for grants in self._arbitrated(rule, [request])]

    def _arbitrate(self, rule: RuleName, requests: list[BudgetRequest]) -> Iterator[BudgetGrants]:
        """Have the arbiter share budgets of one rule in one call, and yield the grants of each budget."""
        specs, rows = [request.spec for request in requests], [request.members for request in requests]
        pools = make_budgets(
            len(requests),
            amount=_table([request.amounts for request in requests]),
            lend=[spec.lending.enabled for spec in specs],
            reclaim_intervals=[spec.lending.reclaim_intervals for spec in specs],
        )
        members, before = members_of(specs, rows), Loans.concat([request.loans for request in requests])
        grants, after = arbitrate(rule, pools, members, before)
        if_all_acted: Grants | None = None
        if any(not math.isnan(member.replicas_if_acting) for of_budget in rows for member in of_budget):
            if_all_acted, _ = arbitrate(rule, pools, members_of(specs, rows, if_all_acted=True), before)
        retained = _not_given_up(before, members)
        begin = 0
        for number, request in enumerate(requests):
            here, resources = slice(begin, begin + len(request.members)), len(request.resources)
            of_budget = BudgetGrants(
                request,
                of_resources(pools.take([number]), resources),
                of_resources(members.take(here), resources),
                grants.take(here),
                after.take(here),
                replace(request.loans, granted=retained[here].copy()),
                if_all_acted=None if if_all_acted is None else if_all_acted.take(here),
            )
            # Row numbers of the batch become row numbers of this budget alone.
            of_budget.members.budget[:] = 0
            of_budget.grants.because[of_budget.grants.because != NO_MEMBER] -= begin
            yield of_budget._replace(sharing_id=self._record(rule, of_budget))
            begin += len(request.members)

    def _record(self, rule: RuleName, shared: BudgetGrants) -> str:
        """Write the grants of a budget to the decision log, and return the ID of the record."""
        request, budget = shared.request, shared.request.budget
        keys, acting = tuple(m.key for m in request.members), tuple(m.acts for m in request.members)
        given = ArbiterInput(
            rule, request.spec.pool, request.resources, keys, acting, shared.pool, shared.members, request.loans
        )
        subject = BudgetObject(budget.name, budget.uid, budget.generation)
        return self._log.note(subject, given, shared.grants, shared.loans)

    def _loans_before(self, budget: Budget, members: list[Request], now: float) -> Loans:
        """Return the loans of these members from the interval before; begin a new interval when it is time."""
        assert budget.spec is not None
        if now - budget.interval_began_at >= budget.spec.interval_seconds:
            budget.interval_began_at, budget.loans_before = now, budget.loans
        keys = tuple(member.key for member in members)
        if keys != budget.members:
            budget.loans_before = follow(budget.loans_before, budget.members, keys)
            budget.members = keys
            for by_member in (budget.requested, budget.starved_seconds):
                for gone in by_member.keys() - set(keys):
                    del by_member[gone]
        return budget.loans_before

    def _keep(self, grants: BudgetGrants, now: float) -> BudgetGrants:
        """Remember the loans, count the seconds in which grants were too small, and report the grants."""
        budget, members = grants.request.budget, grants.request.members
        budget.loans, budget.loans_before = grants.loans, grants.loans_before
        passed = 0.0 if budget.shared_at is None else now - budget.shared_at
        budget.shared_at = now
        for member, replicas in zip(members, grants.grants.granted.tolist(), strict=True):
            if member.replicas > replicas:
                budget.starved_seconds[member.key] = budget.starved_seconds.get(member.key, 0.0) + passed
        grants = grants._replace(begins=budget.interval_began_at == now)
        selection, spec = self._members.selection(budget), grants.request.spec
        without_units = self._members.without_units(budget, members)
        left = [member.key for member in members if self._members.left(budget, member.key)]
        poor = [m.key for m in members if m.terms != spec.terms(m.share) and m.key not in left]
        budget.shared({m.key: m.share for m in members}, {m.key for m in members} - {*left, *poor})
        for member in members:
            if not member.remote:
                member.policy.decision.set_unguaranteed(member.key in poor)
        excluded = Excluded(selection.several, selection.without_pool, without_units, left, poor)
        self._reporter.report(budget, grants, excluded)
        budget.failed = None
        return grants


def _remember_requests(proposals: Sequence[Proposal]) -> None:
    """Remember the replicas that actions request, and those to which the floor raises a request until the next one."""
    before = np.array([p.budget.requested.get(p.policy.key, math.nan) for p in proposals])
    action = np.array([p.outcome.entry.kind == "action" for p in proposals], bool)
    desired = np.array([p.decision.desired[0, p.budget.pool] for p in proposals], np.int32)
    flags = np.array([p.decision.flags[0] for p in proposals], np.int32)
    for proposal, replicas in zip(proposals, requested(before, action, desired, flags).tolist(), strict=True):
        proposal.budget.requested[proposal.policy.key] = replicas


def _grants_of(proposals: Mapping[Key, Proposal], shared: BudgetGrants) -> Iterator[Grant]:
    """Yield the grants of those members of a budget of this process that are in the batch."""
    for row, (member, granted) in enumerate(zip(shared.request.members, shared.grants.granted.tolist(), strict=True)):
        if (proposal := proposals.get(member.key)) is None:
            continue
        proposal.outcome.sharing = shared.sharing_id
        if not member.acts and (if_acting := shared.granted_if_acting(row)) is not None:
            granted, proposal.outcome.granted = if_acting, describe_if_acting(shared, row)
        yield Grant(proposal, granted, member.acts, partial(describe_grant, shared, row), shared.sharing_id)


def _with_binding(grants: Sequence[Grant]) -> dict[Key, Grant]:
    """Return the grants by policy, with `binds`."""
    desired = np.array([g.proposal.decision.desired[0, g.proposal.budget.pool] for g in grants], np.int32)
    base = np.array([g.proposal.decision.base[0, g.proposal.budget.pool] for g in grants], np.int32)
    replicas, acts = np.array([g.replicas for g in grants], np.int32), np.array([g.acts for g in grants], bool)
    binds = is_bound(desired, base, replicas, acts).tolist()
    return {grant.proposal.policy.key: grant._replace(binds=b) for grant, b in zip(grants, binds, strict=True)}


def _table(amounts: Sequence[tuple[float, ...]]) -> Float:
    """Return the amounts (B, R) of budgets; the amount of a resource that a budget does not have is 0."""
    wide = max(map(len, amounts))
    return np.array([each + (0.0,) * (wide - len(each)) for each in amounts], np.float64)


def _not_given_up(before: Loans, members: Members) -> Int:
    """Return the grants (M,) that the arbiter remembers, less the replicas that members gave up by requesting fewer.

    Others may have these from then on: a member that requests more again in the same interval waits like the others.
    """
    replicas = np.fmax(members.asked, members.minimum)
    return np.fmin(before.granted, np.where(np.isnan(members.asked), np.inf, replicas)).astype(np.int32)
