"""What every arbiter promises for any input, and over 100,000 intervals in which everything changes."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.arbiter.features import Signals
from rlscaler_core.arbiter.learned import Learned
from rlscaler_core.arbiter.rules import RULES, RuleName
from rlscaler_core.arbiter.types import (
    Budgets,
    Grants,
    Loans,
    Members,
    follow,
    make_budgets,
    make_members,
    no_loans,
    of_resources,
)
from rlscaler_core.decision.types import Rows
from tests.harness.arbiters import arbitrary_arbiter

NETWORKS = ("drawn network 1", "drawn network 2", "broken network")
"""Arbiters that learned nothing: with drawn weights, and one that gives NaN for everything."""
ALL = tuple(RULES)
EVERY = (*ALL, *NETWORKS)
BUDGETS, STEPS = 200, 500
"""100,000 intervals of one budget."""

EPSILON = 1e-6


def random_case(rng: np.random.Generator, b: int, m: int, r: int = 1) -> tuple[Budgets, Members, Loans]:
    """Anything that the tables take, half of the budgets too small for their guarantees; of `r` resources."""
    budgets = make_budgets(
        b,
        amount=rng.choice([0.0, 3.0, 7.5, 16.0, 40.0], b),
        lend=rng.random(b) > 0.2,
        reclaim_intervals=rng.integers(1, 5, b),
    )
    asked = rng.integers(0, 15, m).astype(float)
    asked[rng.random(m) < 0.15] = np.nan
    asked[rng.random(m) < 0.05] = np.inf
    members = make_members(
        m,
        budget=rng.integers(0, b, m),
        asked=asked,
        current=rng.integers(0, 10, m),
        minimum=rng.integers(0, 3, m),
        units=rng.choice([0.5, 1.0, 1.0, 2.0, 8.0], m),
        guaranteed=rng.choice([0.0, 0.0, 1.0, 2.5, 6.0], m),
        ceiling=rng.choice([np.inf, np.inf, 4.0, 0.0], m),
        weight=rng.choice([1.0, 1.0, 2.0, 0.1], m),
        priority=rng.integers(-1, 3, m),
    )
    whole = rng.integers(-1, 12, m).astype(np.int32)
    if r > 1:
        budgets, members = with_resources(rng, budgets, members, r)
    return budgets, members, Loans(whole, *(rng.integers(0, 6, m).astype(np.int32) for _ in range(3)))


def with_resources(rng: np.random.Generator, budgets: Budgets, members: Members, r: int) -> tuple[Budgets, Members]:
    """Add resources: a budget may lack some, a replica may take none of some, and guarantees are of different sizes."""
    b, m = len(budgets), len(members)
    there = rng.random((b, r)) < 0.85
    there[:, 0] = True
    more = rng.choice([2.0, 12.0, 64.0, 100.0], (b, r - 1))
    amount = np.where(there, np.hstack([budgets.amount, more]), 0.0)
    units = np.hstack([members.units, rng.choice([0.0, 0.5, 2.0, 8.0, 12.0], (m, r - 1))])
    units[:, 0] *= (rng.random(m) > 0.15) | (units[:, 1:] * there[members.budget, 1:] == 0).all(axis=1)
    units *= there[members.budget]
    guaranteed = np.where(members.guaranteed > 0, rng.choice([1.0, 6.0, 20.0], (m, r)), 0.0)
    guaranteed[:, :1] = members.guaranteed
    ceiling = np.hstack([members.ceiling, rng.choice([np.inf, np.inf, 16.0], (m, r - 1))])
    return replace(budgets, amount=amount), replace(members, units=units, guaranteed=guaranteed, ceiling=ceiling)


def fewest(units: np.ndarray, each: np.ndarray) -> np.ndarray:
    """Whole replicas (M,) of `each` (M, R) that the units (M, R) are enough for."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(each > 0, units / each, np.inf)
    return np.floor(found.min(axis=1) + EPSILON)


def used(budgets: Budgets, members: Members, replicas: np.ndarray) -> np.ndarray:
    total = np.zeros(budgets.amount.shape)
    np.add.at(total, members.budget, np.asarray(replicas)[:, None] * members.units)
    return total


def wants(budgets: Budgets, members: Members, loans: Loans) -> tuple[np.ndarray, np.ndarray]:
    """The replicas asked for, within ceiling and amount, and those of them that are guaranteed."""
    held = np.where(loans.granted >= 0, loans.granted, members.current)
    asked = np.maximum(np.where(np.isnan(members.asked), held, members.asked), members.minimum)
    cap = fewest(np.minimum(members.ceiling, budgets.amount[members.budget]), members.units)
    wanted = np.minimum(asked, cap)
    return wanted, np.minimum(wanted, fewest(members.guaranteed, members.units))


def copied(table: Rows) -> list[np.ndarray]:
    return [getattr(table, field.name).copy() for field in fields(table)]


@pytest.mark.parametrize("rule", EVERY)
@given(seed=st.integers(0, 2**32 - 1), b=st.integers(1, 4), m=st.integers(1, 12), r=st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_the_promises_of_one_interval(rule: str, seed: int, b: int, m: int, r: int) -> None:
    budgets, members, loans = random_case(np.random.default_rng(seed), b, m, r)
    before = [copied(table) for table in (budgets, members, loans)]
    grants, after = share(rule, budgets, members, loans)
    for table, columns in zip((budgets, members, loans), before, strict=True):
        for now, then in zip(copied(table), columns, strict=True):
            np.testing.assert_array_equal(now, then, err_msg="what was passed in has changed")
    wanted, guaranteed = wants(budgets, members, loans)
    for replicas in (grants.granted, grants.due):
        assert (replicas >= 0).all()
        assert (replicas <= wanted).all(), "more than asked for, than the ceiling, or than the amount"
        assert (used(budgets, members, replicas) <= budgets.amount + EPSILON).all(), "more than the amount"
    enough = (used(budgets, members, guaranteed) <= budgets.amount + EPSILON).all(axis=1)
    at_once = budgets.reclaim_intervals - np.array([short_of(members, loans, i) for i in range(b)]) <= 1
    assert (grants.due >= guaranteed)[enough[members.budget]].all()
    assert (grants.granted >= guaranteed)[(enough & at_once)[members.budget]].all()
    beyond = (grants.granted > np.maximum(np.maximum(members.current, guaranteed), loans.granted)) & (
        grants.granted > 0
    )
    there = used(budgets, members, np.maximum(members.current, grants.granted))
    for row in np.flatnonzero(beyond):
        budget, takes = members.budget[row], members.units[row] > 0
        assert (there[budget] <= budgets.amount[budget] + EPSILON)[takes].all(), "lent where others run"
    np.testing.assert_array_equal(after.granted, grants.granted)


def short_of(members: Members, loans: Loans, budget: int) -> int:
    rows = loans.short_intervals[members.budget == budget]
    return int(rows.min()) if len(rows) else 0


@pytest.mark.parametrize("rule", ALL)
@given(seed=st.integers(0, 2**32 - 1), r=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_batch_gives_what_each_budget_gives_alone(rule: RuleName, seed: int, r: int) -> None:
    budgets, members, loans = random_case(np.random.default_rng(seed), 4, 14, r)
    together, _ = arbitrate(rule, budgets, members, loans)
    for number in range(4):
        rows = np.flatnonzero(members.budget == number)
        own = members.take(rows)
        own.budget[:] = 0
        there = 1 + int(np.flatnonzero(budgets.amount[number] > 0).max(initial=0))
        one, own = of_resources(budgets.take([number]), there), of_resources(own, there)
        alone, _ = arbitrate(rule, one, own, loans.take(rows))
        np.testing.assert_array_equal(alone.granted, together.granted[rows])
        np.testing.assert_array_equal(alone.reason, together.reason[rows])
        named = together.because[rows]
        np.testing.assert_array_equal(np.where(alone.because >= 0, rows[alone.because], -1), named)


@cache
def network(name: str) -> Learned:
    return arbitrary_arbiter(NETWORKS.index(name), broken=name.startswith("broken"))


def share(name: str, budgets: Budgets, members: Members, loans: Loans) -> tuple[Grants, Loans]:
    """Share by a rule, or as a network bids; of the members' signals half are lost."""
    if name in RULES:
        return arbitrate(name, budgets, members, loans)
    rng = np.random.default_rng(len(members))
    table = np.where(rng.random((3, len(members))) < 0.5, np.nan, rng.exponential(2.0, (3, len(members))))
    bids = network(name).bids(budgets, members, loans, Signals(*table))
    assert bids.usable.all() != name.startswith("broken")
    return arbitrate(bids.order, budgets, members, loans)


class World:
    """Budgets in which loads change, members join and leave, and amounts shrink and grow again.

    Replicas follow grants as Deployments do: up at once, down by at most one replica an interval; nothing is killed.
    """

    def __init__(self, seed: int, *, enough: bool, resources: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.enough, self.resources = enough, resources
        self.reclaim = self.rng.integers(1, 6, BUDGETS)
        self.budgets, self.members, _ = random_case(self.rng, BUDGETS, 6 * BUDGETS, resources)
        self.names = list(range(len(self.members)))
        self.members.ceiling[:] = np.where(self.members.ceiling == 0, 9.0, self.members.ceiling)

    def change(self) -> None:
        """Let an interval pass in what the members ask for, which there are, and how much there is."""
        rng, members = self.rng, self.members
        m = len(members)
        members.asked = np.where(rng.random(m) < 0.3, rng.integers(0, 15, m), members.asked).astype(float)
        members.asked[rng.random(m) < 0.02] = np.nan
        if rng.random() < 0.3:
            stays = rng.random(m) > 0.02
            _, new, _ = random_case(rng, BUDGETS, max(1, int((~stays).sum())), self.resources)
            new.current[:] = 0
            self.names = [name for name, keep in zip(self.names, stays, strict=True) if keep]
            self.names += [max(self.names, default=0) + 1 + i for i in range(len(new))]
            self.members = Members.concat([members.take(stays), new])
        self.budgets = make_budgets(BUDGETS, amount=self.amount(), lend=True, reclaim_intervals=self.reclaim)

    def amount(self) -> np.ndarray:
        """Nodes come and go; with `enough`, what remains is never less than the guarantees."""
        least = used(self.budgets, self.members, fewest(self.members.guaranteed, self.members.units))
        nodes = 8.0 * self.rng.integers(0, 6, BUDGETS)[:, None]
        changed = np.where(self.rng.random(BUDGETS)[:, None] < 0.05, nodes, self.budgets.amount)
        return np.maximum(changed, least) if self.enough else changed

    def follow(self, grants: Grants) -> None:
        current = self.members.current
        asked = np.where(np.isnan(self.members.asked), current, self.members.asked)
        target = np.minimum(asked, grants.granted).astype(np.int32)
        self.members.current = np.where(target >= current, target, current - 1).astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "resources"), [*((rule, 1) for rule in EVERY), ("MaxMinFair", 2), (NETWORKS[0], 2)])
def test_no_guarantee_is_broken_in_100_000_intervals(rule: str, resources: int) -> None:
    """A member that asks for its guarantee has it within the intervals of the loan, and with one interval at once."""
    world = World(seed=7, enough=True, resources=resources)
    loans, names, missing = no_loans(len(world.members)), world.names, dict.fromkeys(world.names, 0)
    violations = asked_for = lent = 0
    steps = STEPS if resources == 1 else STEPS // 4
    for _ in range(steps):
        world.change()
        loans, names = follow(loans, names, world.names), world.names
        members = world.members
        _, guaranteed = wants(world.budgets, members, loans)
        grants, loans = share(rule, world.budgets, members, loans)
        assert (used(world.budgets, members, grants.granted) <= world.budgets.amount + EPSILON).all()
        below = (grants.granted < guaranteed).tolist()
        missing = {name: missing.get(name, 0) + 1 if less else 0 for name, less in zip(names, below, strict=True)}
        waited = np.array([missing[name] for name in names])
        violations += int((waited >= world.reclaim[members.budget]).sum())
        asked_for += int((guaranteed > 0).sum())
        lent += int((grants.borrowed > 0).sum())
        world.follow(grants)
    assert violations == 0
    assert asked_for > steps * BUDGETS
    assert lent > steps * BUDGETS / 2


@pytest.mark.parametrize("rule", EVERY)
def test_with_fewer_units_than_guarantees_nobody_borrows(rule: str) -> None:
    world = World(seed=11, enough=False)
    loans, names, short_budgets = no_loans(len(world.members)), world.names, 0
    for _ in range(60):
        world.change()
        loans, names = follow(loans, names, world.names), world.names
        members = world.members
        _, guaranteed = wants(world.budgets, members, loans)
        grants, loans = share(rule, world.budgets, members, loans)
        assert (used(world.budgets, members, grants.granted) <= world.budgets.amount + EPSILON).all()
        too_few = (used(world.budgets, members, guaranteed) > world.budgets.amount + EPSILON).any(axis=1)
        rows = too_few[members.budget]
        assert (grants.due <= guaranteed)[rows].all()
        short_budgets += int(too_few.sum())
        world.follow(grants)
    assert short_budgets > 100
