"""The members of a budget and their requests: policies of this process, and policies of other shards.

The owner of a budget is the operator that holds the budget's shard. It learns the requests of policies of other shards
from their `status.budget`, and their operators read the grants in the status of the budget. A smaller grant is on its
way until the other operator has written that it holds no more: until then the larger number counts as running, so that
no other member grows into its place. No clock of another machine is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlscaler_core.api.budget import BudgetSpec
from rlscaler_core.api.budget_members import NOTHING, MemberShare, Terms
from rlscaler_core.api.status_memory import BudgetMembership
from rlscaler_core.arbiter.types import Members, make_members
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.exceptions import ShareError
from rlscaler_operator.loop.diagnose import acts
from rlscaler_operator.state.budgets import Budget, BudgetRegistry
from rlscaler_operator.state.grants import Request
from rlscaler_operator.state.ownership import Claim
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry


class Owner(NamedTuple):
    """The budgets and policies whose shards this process holds; by default all."""

    of_budget: Callable[[str], bool] = lambda _: True
    """Whether this process shares the budget of that name."""
    of_policy: Callable[[Key], bool] = lambda _: True
    """Whether this process decides for that policy."""


class SelectedPolicy(NamedTuple):
    """A policy that a budget selects: the part of its request that stays the same from one tick to the next."""

    key: Key
    share: MemberShare
    policy: Policy
    target: Key
    """The Deployment of the pool."""
    terms: tuple[Terms, ...]
    """Guarantee and ceiling of each resource."""


class Selection(NamedTuple):
    """The policies that a budget selects, valid as long as no spec and no label changes."""

    version: tuple[int, int]
    members: list[SelectedPolicy]
    """The policies that share the budget."""
    several: Mapping[Key, tuple[str, ...]]
    """Policies that other budgets select too, with the names of all of these budgets: one of them acts."""
    without_pool: Sequence[Key]
    """Policies without a target in the pool of the budget."""


class _Standing(NamedTuple):
    """The part of a request that may change at every tick; the fields are those of `Request`."""

    acts: bool
    running: int
    replicas: float
    replicas_if_acting: float


class BudgetMembers:
    """Finds the members of budgets and their requests."""

    def __init__(self, registry: Registry, cache: WatchCache, budgets: BudgetRegistry, owner: Owner) -> None:
        self._registry, self._cache, self._budgets, self._owner = registry, cache, budgets, owner
        self._selections: dict[str, Selection] = {}

    def selection(self, budget: Budget) -> Selection:
        """Return the policies that a budget selects: its members, and those on which it does not act."""
        version = self._budgets.revision, self._registry.revision
        selection = self._selections.get(budget.name)
        if selection is None or selection.version != version:
            selection = self._selections[budget.name] = self._select(budget, version)
        return selection

    def _select(self, budget: Budget, version: tuple[int, int]) -> Selection:
        assert budget.spec is not None
        members, without_pool = [], []
        several: dict[Key, tuple[str, ...]] = {}
        for key, share in self._budgets.policies_of(budget).items():
            policy, names = self._registry.get(key), self._budgets.names_of(key)
            if len(names) > 1:
                several[key] = names
            elif policy is not None and (target := _target(policy, budget.spec.pool)) is not None:
                members.append(SelectedPolicy(key, share, policy, target, budget.spec.terms(share)))
            elif policy is not None:
                without_pool.append(key)
        return Selection(version, members, several, without_pool)

    def budget_of(self, key: Key) -> Budget | None:
        """Return the budget that acts on a policy: of several the one that it was in, and else the first by name.

        A policy that a budget selects no more, because its labels have changed, stays in it until it has given back all
        replicas but `minReplicas`. An edit of the budget itself lets it go at once.
        """
        selecting = [budget for budget, _ in self._budgets.budgets_of(key)]
        if len(selecting) == 1 and key in selecting[0].incumbents:
            return selecting[0]
        former = sorted((b for b in self._budgets if key in b.incumbents), key=lambda budget: budget.name)
        eligible = [budget for budget in former if budget in selecting or self._holds(budget, key)]
        return next(iter(eligible or selecting), None)

    def _holds(self, budget: Budget, key: Key) -> bool:
        """Return whether a former member still has replicas that it has not given back."""
        policy = self._registry.get(key)
        if policy is None or budget.spec is None or budget.shared_generation != budget.generation:
            return False
        return self.running(budget, policy) > _minimum(budget, policy)

    def left(self, budget: Budget, key: Key) -> bool:
        """Return whether a budget selects a policy no more."""
        return key not in self._budgets.policies_of(budget)

    def _all(self, budget: Budget) -> list[SelectedPolicy]:
        """Return the members, those on which several budgets have a claim included."""
        selection, selected = self.selection(budget), self._budgets.policies_of(budget)
        members = [member for member in selection.members if self.budget_of(member.key) is budget]
        claimed = {key: selected[key] for key in selection.several}
        claimed |= {key: share for key, share in budget.incumbents.items() if key not in selected}
        for key, share in claimed.items():
            if self.budget_of(key) is budget and (member := self._member(budget, key, share)) is not None:
                members.append(member)
        return _within_amounts(budget, members)

    def _member(self, budget: Budget, key: Key, share: MemberShare) -> SelectedPolicy | None:
        """Return a member of a budget; without a guarantee where the budget selects it no more."""
        policy = self._registry.get(key)
        assert budget.spec is not None
        target = None if policy is None else _target(policy, budget.spec.pool)
        if policy is None or target is None:
            return None
        terms = budget.spec.terms(share)
        return SelectedPolicy(key, share, policy, target, _unguaranteed(terms) if self.left(budget, key) else terms)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the selections of all budgets but these."""
        for gone in self._selections.keys() - names:
            del self._selections[gone]

    def requests(self, budget: Budget) -> list[Request]:
        """Return the requests of a budget's members as of now, without members whose replicas take none of it."""
        requests, failed = [], {}
        for member in self._all(budget):
            units = self._units(budget, member)
            if any(units):
                own, running = self._owner.of_policy(member.key), self._running(member.target)
                try:
                    standing = (self._own if own else self._remote)(budget, member.policy, running)
                    minimum = _minimum(budget, member.policy)
                except Exception as error:
                    what = f"work out what policy {'/'.join(member.key)} asks of RLScalingBudget {budget.name}"
                    failed[member.key] = ShareError(what, error)
                    # It is held, so what runs is all that it takes: its failure costs no other member anything.
                    running = max(running, 0 if own else budget.largest_readable(member.key, None))
                    standing, minimum = _Standing(False, running, float(running), math.nan), 0
                requests.append(
                    Request(member.key, member.share, member.policy, member.terms, units, *standing, not own, minimum)
                )
        budget.failed_members = failed
        return requests

    def without_units(self, budget: Budget, requests: Sequence[Request]) -> list[Key]:
        """Return the members that have none of the `requests`: their pod templates request none of the resources.

        A member whose target does not exist yet is left out.
        """
        members = self.selection(budget).members
        if len(members) == len(requests):
            return []
        keys = {request.key for request in requests}
        return [m.key for m in members if m.key not in keys and m.target in self._cache.deployments]

    def _units(self, budget: Budget, member: SelectedPolicy) -> tuple[float, ...]:
        """Return the units of each resource that one replica takes: as stated, or as the pod template requests."""
        stated = tuple(terms.units for terms in member.terms)
        if None not in stated:
            return stated  # type: ignore[return-value]  # mypy does not see that none of them is None
        assert budget.spec is not None
        deployment = self._cache.deployments.get(member.target)
        requests: Mapping[str, float] = {} if deployment is None else deployment.requests
        names = [resource.name for resource in budget.spec.shared]
        return tuple(
            requests.get(name, 0.0) if units is None else units for name, units in zip(names, stated, strict=True)
        )

    def has_remote(self, budget: Budget) -> bool:
        """Return whether another shard decides for some policy of a budget."""
        return any(not self._owner.of_policy(key) for key in self._budgets.policies_of(budget))

    def membership(self, budget: Budget, policy: Policy, granted: int | None) -> BudgetMembership:
        """Return `status.budget` of a policy that follows the grant of another shard; `granted` None = not bound."""
        standing = self._own(budget, policy, self.running(budget, policy))
        held = standing.running if granted is None or not standing.acts else max(standing.running, granted)
        replicas = standing.replicas if standing.acts else standing.replicas_if_acting
        return BudgetMembership(
            name=budget.name,
            asked=None if math.isnan(replicas) else int(replicas),
            held=held,
            round=budget.latest.get("round"),
            acts=standing.acts,
        )

    def running(self, budget: Budget, policy: Policy) -> int:
        """Return a policy's replicas in the pool of the budget; 0 where its target does not exist."""
        assert budget.spec is not None
        target = _target(policy, budget.spec.pool)
        return 0 if target is None else self._running(target)

    def _running(self, target: Key) -> int:
        deployment = self._cache.deployments.get(target)
        return 0 if deployment is None else deployment.replicas

    def _own(self, budget: Budget, policy: Policy, running: int) -> _Standing:
        assert budget.spec is not None
        requested = budget.requested.get(policy.key, math.nan)
        if not (policy.running and acts(policy) and policy.ownership.holder is None):
            # A policy that does not act takes its part of the budget, and nothing bounds it.
            return _Standing(False, running, float(running), requested if policy.running else math.nan)
        # Ordered replicas count as running before the Deployment shows them.
        return _Standing(True, max(running, policy.decision.desired.get(budget.spec.pool, 0)), requested, math.nan)

    def _remote(self, budget: Budget, policy: Policy, running: int) -> _Standing:
        membership = self._budgets.membership(budget, policy.key)
        held = max(running, budget.largest_readable(policy.key, None if membership is None else membership.round))
        if membership is None:
            # Its operator has written nothing yet: with an unknown request the member keeps its last grant.
            return _Standing(False, held, math.nan, math.nan)
        requested = math.nan if membership.asked is None else float(membership.asked)
        held = max(held, membership.held)
        if membership.acts:
            return _Standing(True, held, requested, math.nan)
        return _Standing(False, held, float(running), requested)


def _within_amounts(budget: Budget, members: list[SelectedPolicy]) -> list[SelectedPolicy]:
    """Return the members, those without a guarantee for which the guarantees of others leave no room.

    Of each entry one policy has its guarantee in any case, and so has each that had it before: where the amount became
    smaller, the arbiter shares it. A further policy has it only where the guarantees of all entries and of the policies
    before it leave room, the older ones first.
    """
    spec, amounts = budget.spec, budget.amounts
    by_entry: dict[str, list[SelectedPolicy]] = {}
    for member in members:
        if any(term.guaranteed for term in member.terms):
            by_entry.setdefault(member.share.name, []).append(member)
    if spec is None or amounts is None or all(len(same) == 1 for same in by_entry.values()):
        return members
    room = list(amounts)
    for share in spec.members:
        room = [left - term.guaranteed for left, term in zip(room, spec.terms(share), strict=True)]

    def order(member: SelectedPolicy) -> tuple[bool, Claim]:
        return member.key not in budget.guaranteed, member.policy.facts.claim

    without: set[Key] = set()
    for member in sorted((m for same in by_entry.values() for m in sorted(same, key=order)[1:]), key=order):
        after = [left - term.guaranteed for left, term in zip(room, member.terms, strict=True)]
        if min(after) < 0 and member.key not in budget.guaranteed:
            without.add(member.key)
        else:
            room = after
    return [m._replace(terms=_unguaranteed(m.terms)) if m.key in without else m for m in members]


def _unguaranteed(terms: tuple[Terms, ...]) -> tuple[Terms, ...]:
    return tuple(term._replace(guaranteed=0.0) for term in terms)


def members_of(
    specs: Sequence[BudgetSpec], requests: Sequence[Sequence[Request]], if_all_acted: bool = False
) -> Members:
    """Return the arbiter's table of all members, budget after budget.

    With `if_all_acted` policies that do not act request the replicas that they would request if they did.
    """
    rows = [(number, request) for number, of_budget in enumerate(requests) for request in of_budget]
    minimum = [request.minimum * (request.acts or if_all_acted) for _, request in rows]
    shares = [request.share for _, request in rows]
    # The table is as wide as the budget with the most resources; further columns of other budgets are 0.
    wide = max((len(spec.shared) for spec in specs), default=1)
    terms = [request.terms + (NOTHING,) * (wide - len(request.terms)) for _, request in rows]
    units = [request.units + (0.0,) * (wide - len(request.units)) for _, request in rows]
    return make_members(
        len(rows),
        budget=np.array([number for number, _ in rows], np.int32),
        asked=np.array([_replicas(request, if_all_acted) for _, request in rows], np.float64),
        current=np.array([request.running for _, request in rows], np.int32),
        minimum=np.array(minimum, np.int32),
        units=np.array(units, np.float64).reshape(-1, wide),
        guaranteed=np.array([[term.guaranteed for term in each] for each in terms], np.float64).reshape(-1, wide),
        ceiling=np.array([[term.ceiling for term in each] for each in terms], np.float64).reshape(-1, wide),
        weight=np.array([share.weight for share in shares], np.float64),
        priority=np.array([share.priority for share in shares], np.int32),
    )


def _replicas(request: Request, if_all_acted: bool) -> float:
    acting = if_all_acted and not math.isnan(request.replicas_if_acting)
    return request.replicas_if_acting if acting else request.replicas


def _minimum(budget: Budget, policy: Policy) -> int:
    """Return the minReplicas of a policy in the pool of the budget; 0 where its spec cannot be used."""
    return 0 if policy.observed.parsed is None else int(policy.params().min_replicas[0, budget.pool])


def _target(policy: Policy, pool: str) -> Key | None:
    """Return the Deployment of a pool; None where the policy has none, or cannot be used."""
    facts = policy.observed.facts
    return None if facts is None else dict(facts.targets).get(pool)
