"""The policies that share a budget, as the arbiter is told of them: those of this process, and those of other shards.

A budget is shared by the operator that holds its shard. Of policies of other shards it knows what their operators say
in `status.budget` of the policy, and these read their grants in the status of the budget. A smaller grant is on its way
until the other operator has said that it holds no more: until then the larger number counts as running, so that no
other member grows into its place. No clock of another machine is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlscaler_core.api.budget import BudgetSpec
from rlscaler_core.api.budget_members import NOTHING, MemberShare, Terms
from rlscaler_core.api.status import BudgetMembership
from rlscaler_core.arbiter.types import Members, make_members
from rlscaler_core.decision.types import Float
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.loop.diagnose import acts
from rlscaler_operator.state.budgets import Budget, Budgets
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry


class Held(NamedTuple):
    """Whose shards this process holds now; by default all."""

    shares: Callable[[str], bool] = lambda _: True
    """Whether this process shares the budget of that name."""
    decides: Callable[[Key], bool] = lambda _: True
    """Whether this process decides for that policy."""


class Place(NamedTuple):
    """The place of one policy in a budget: what does not change from one tick to the next."""

    key: Key
    share: MemberShare
    policy: Policy
    target: Key
    """The Deployment of the pool."""
    terms: tuple[Terms, ...]
    """Its terms for each resource."""


class Roster(NamedTuple):
    """The policies that a budget selects. It holds for as long as no spec and no label changes."""

    version: tuple[int, int]
    places: list[Place]
    """Those that share it."""
    several: Mapping[Key, tuple[str, ...]]
    """Those that other budgets select too, with the names of all."""
    poolless: Sequence[Key]
    """Those without a target in its pool."""


class Row(NamedTuple):
    """One policy that shares a budget."""

    key: Key
    share: MemberShare
    policy: Policy
    terms: tuple[Terms, ...]
    """Its terms for each resource."""
    units: tuple[float, ...]
    """What one replica takes of each resource."""
    acts: bool
    """Whether it keeps to its grant; otherwise it takes what runs."""
    running: int
    """Replicas that run, were ordered, or may be ordered by a grant that another shard still acts on."""
    asked: float
    """Replicas; NaN = not known."""
    proposed: float
    """What it would ask for if it acted; NaN = not known, or it acts."""
    elsewhere: bool
    """Whether another shard decides for it."""
    minimum: int
    """Replicas that it asks for at least if it acts."""


class Crowd:
    """Finds the rows of budgets."""

    def __init__(self, registry: Registry, cache: WatchCache, budgets: Budgets, held: Held) -> None:
        self._registry, self._cache, self._budgets, self._held = registry, cache, budgets, held
        self._rosters: dict[str, Roster] = {}

    def roster(self, budget: Budget) -> Roster:
        """The policies that a budget selects: selected by no other one and with a pool of its kind, or why not."""
        version = self._budgets.revision, self._registry.revision
        found = self._rosters.get(budget.name)
        if found is None or found.version != version:
            found = self._rosters[budget.name] = self._made(budget, version)
        return found

    def _made(self, budget: Budget, version: tuple[int, int]) -> Roster:
        assert budget.spec is not None
        places, poolless = [], []
        several: dict[Key, tuple[str, ...]] = {}
        for key, share in self._budgets.selected(budget).items():
            policy, names = self._registry.get(key), self._budgets.names_of(key)
            if len(names) > 1:
                several[key] = names
            elif policy is not None and (target := _target(policy, budget.spec.pool)) is not None:
                places.append(Place(key, share, policy, target, budget.spec.terms(share)))
            elif policy is not None:
                poolless.append(key)
        return Roster(version, places, several, poolless)

    def forget(self, names: Collection[str]) -> None:
        """Forget all budgets but these."""
        for gone in self._rosters.keys() - names:
            del self._rosters[gone]

    def rows(self, budget: Budget) -> list[Row]:
        """The policies that share a budget, as they are now; without those of which a replica takes nothing of it."""
        rows = []
        for place in self.roster(budget).places:
            units = self._units(budget, place)
            if any(units):
                said = self._here if self._held.decides(place.key) else self._there
                rows.append(said(budget, place, units, self._runs(place.target)))
        return rows

    def unitless(self, budget: Budget, rows: Sequence[Row]) -> list[Key]:
        """The policies that are not among the `rows` of a budget: their pod templates request none of its resources.

        One whose target is not there yet is not among them.
        """
        places = self.roster(budget).places
        if len(places) == len(rows):
            return []
        sharing = {row.key for row in rows}
        return [p.key for p in places if p.key not in sharing and p.target in self._cache.deployments]

    def _units(self, budget: Budget, place: Place) -> tuple[float, ...]:
        """What one replica takes of each resource: as it is stated, or as the pod template requests it."""
        stated = tuple(terms.units for terms in place.terms)
        if None not in stated:
            return stated  # type: ignore[return-value]  # mypy does not see that none of them is None
        assert budget.spec is not None
        deployment = self._cache.deployments.get(place.target)
        requests: Mapping[str, float] = {} if deployment is None else deployment.requests
        names = [one.name for one in budget.spec.shared]
        return tuple(
            requests.get(name, 0.0) if units is None else units for name, units in zip(names, stated, strict=True)
        )

    def travels(self, budget: Budget) -> bool:
        """Whether another shard decides for some policy of a budget."""
        return any(not self._held.decides(key) for key in self._budgets.selected(budget))

    def membership(self, budget: Budget, policy: Policy, granted: int | None) -> BudgetMembership:
        """What the shard that shares a budget is told of a policy that acts by this grant; None = it is not bound."""
        place = Place(policy.key, MemberShare(name="member"), policy, policy.key, ())
        row = self._here(budget, place, (), self.running(budget, policy))
        most = row.running if granted is None or not row.acts else max(row.running, granted)
        asked = row.asked if row.acts else row.proposed
        return BudgetMembership(
            name=budget.name,
            asked=None if math.isnan(asked) else int(asked),
            held=most,
            round=budget.latest.get("round"),
            acts=row.acts,
        )

    def running(self, budget: Budget, policy: Policy) -> int:
        """Replicas of a policy in the pool of the budget; 0 where its target is not there."""
        assert budget.spec is not None
        target = _target(policy, budget.spec.pool)
        return 0 if target is None else self._runs(target)

    def _runs(self, target: Key) -> int:
        deployment = self._cache.deployments.get(target)
        return 0 if deployment is None else deployment.replicas

    def _here(self, budget: Budget, place: Place, units: tuple[float, ...], running: int) -> Row:
        """A policy that does not act asks for what runs: it takes its part of the budget, and gets no limit."""
        assert budget.spec is not None
        policy = place.policy
        member = place.key, place.share, policy, place.terms, units
        asked, least = budget.asked.get(policy.key, math.nan), _minimum(budget, policy)
        if not (policy.running and acts(policy) and policy.ownership.holder is None):
            proposed = asked if policy.running else math.nan
            return Row(*member, False, running, float(running), proposed, False, least)
        ordered = max(running, policy.decision.desired.get(budget.spec.pool, 0))
        return Row(*member, True, ordered, asked, math.nan, False, least)

    def _there(self, budget: Budget, place: Place, units: tuple[float, ...], running: int) -> Row:
        """A policy of another shard that has said nothing yet keeps its last grant."""
        member = place.key, place.share, place.policy, place.terms, units
        said, least = self._budgets.membership(budget, place.key), _minimum(budget, place.policy)
        held = max(running, budget.readable(place.key, None if said is None else said.round))
        if said is None:
            return Row(*member, False, held, math.nan, math.nan, True, least)
        asked, held = math.nan if said.asked is None else float(said.asked), max(held, said.held)
        if said.acts:
            return Row(*member, True, held, asked, math.nan, True, least)
        return Row(*member, False, held, float(running), asked, True, least)


def members_of(specs: Sequence[BudgetSpec], rows: Sequence[Sequence[Row]], if_all_acted: bool = False) -> Members:
    """The table of all members, budget after budget; `if_all_acted`: as if those that do not act did."""
    every = [(number, row) for number, crowd in enumerate(rows) for row in crowd]
    least = [row.minimum * (row.acts or if_all_acted) for _, row in every]
    shares = [row.share for _, row in every]
    wide = max((len(spec.shared) for spec in specs), default=1)
    terms = [row.terms + (NOTHING,) * (wide - len(row.terms)) for _, row in every]
    units = [row.units + (0.0,) * (wide - len(row.units)) for _, row in every]
    return make_members(
        len(every),
        budget=np.array([number for number, _ in every], np.int32),
        asked=np.array([_asked(row, if_all_acted) for _, row in every], np.float64),
        current=np.array([row.running for _, row in every], np.int32),
        minimum=np.array(least, np.int32),
        units=np.array(units, np.float64).reshape(-1, wide),
        guaranteed=np.array([[one.guaranteed for one in each] for each in terms], np.float64).reshape(-1, wide),
        ceiling=np.array([[one.ceiling for one in each] for each in terms], np.float64).reshape(-1, wide),
        weight=np.array([share.weight for share in shares], np.float64),
        priority=np.array([share.priority for share in shares], np.int32),
    )


def proposals(rows: Sequence[Row]) -> Float:
    """What the members (M,) would ask for if they acted; NaN for those that act, and where it is not known."""
    return np.array([row.proposed for row in rows], np.float64)


def _asked(row: Row, if_all_acted: bool) -> float:
    return row.proposed if if_all_acted and not math.isnan(row.proposed) else row.asked


def _minimum(budget: Budget, policy: Policy) -> int:
    """The minReplicas of a policy in the pool of the budget; 0 where its spec cannot be used."""
    return 0 if policy.observed.parsed is None else int(policy.params().min_replicas[0, budget.pool])


def _target(policy: Policy, pool: str) -> Key | None:
    """The Deployment of a pool; None where the policy has none, or cannot be used."""
    facts = policy.observed.facts
    return None if facts is None else dict(facts.targets).get(pool)
