"""Members whose replicas hold 1, 2, 4 and 8 GPUs, as the pods of Alibaba's openb do, share one pool."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.arbiter.rules import RULES, RuleName
from rlscaler_core.arbiter.types import Budgets, Members, make_budgets, make_members, no_loans

SIZES = (1, 2, 4, 8)
POOLS, EACH, INTERVALS = 25, 8, 80
"""2,000 intervals of one pool for each rule, with two members of each size."""


def pools(rng: np.random.Generator, b: int) -> tuple[Budgets, Members]:
    """Pools of whole GPUs that are enough for guarantees, some of which are no whole number of replicas."""
    m = EACH * b
    units = np.tile(np.repeat(SIZES, EACH // len(SIZES)), b).astype(float)
    guaranteed = rng.integers(0, 4, m) * units + rng.choice([0, 0, 3], m)
    budget = np.repeat(np.arange(b), EACH)
    amount = np.bincount(budget, guaranteed, b) + rng.integers(0, 12, b)
    members = make_members(m, budget=budget, units=units, guaranteed=guaranteed, weight=rng.uniform(0.5, 4.0, m))
    members.priority = rng.integers(0, 3, m).astype(np.int32)
    return make_budgets(b, amount=amount, reclaim_intervals=rng.integers(1, 6, b)), members


def gpus(members: Members, replicas: np.ndarray, b: int) -> np.ndarray:
    return np.bincount(members.budget, replicas * members.units[:, 0], b)


@pytest.mark.parametrize("rule", tuple(RULES))
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_whole_replicas_of_each_guarantee_are_granted_and_no_gpu_is_left_that_a_replica_fits_in(
    rule: RuleName, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    budgets, members = pools(rng, 2)
    members.asked = rng.integers(0, 8, len(members)).astype(float)
    grants, _ = arbitrate(rule, budgets, members, no_loans(len(members)))
    own = members.guaranteed[:, 0] // members.units[:, 0]
    assert (grants.granted >= np.minimum(members.asked, own)).all()
    left = budgets.amount[:, 0] - gpus(members, grants.granted, 2)
    assert (left >= 0).all()
    fitting = members.units[:, 0] <= left[members.budget]
    assert (grants.granted == members.asked)[fitting].all()


@pytest.mark.parametrize("rule", tuple(RULES))
def test_loans_of_large_and_small_replicas_are_given_back_in_time(rule: RuleName) -> None:
    """Replicas follow grants up at once and down one an interval; no guarantee waits longer than its loan may last."""
    rng = np.random.default_rng(5)
    budgets, members = pools(rng, POOLS)
    own = (members.guaranteed[:, 0] // members.units[:, 0]).astype(np.int32)
    loans, waited = no_loans(len(members)), np.zeros(len(members), np.int64)
    lent_to, returned = np.zeros(len(members), np.bool_), 0
    for _ in range(INTERVALS):
        changes = rng.random(len(members)) < 0.15
        members.asked = np.where(changes, rng.choice([0, 9], len(members)), np.nan_to_num(members.asked))
        grants, loans = arbitrate(rule, budgets, members, loans)
        assert (gpus(members, grants.granted, POOLS) <= budgets.amount[:, 0]).all()
        below = grants.granted < np.minimum(members.asked, own)
        waited = np.where(below, waited + 1, 0)
        assert (waited < budgets.reclaim_intervals[members.budget]).all()
        lent_to |= grants.borrowed > 0
        returned += int(below.sum())
        target = np.minimum(members.asked, grants.granted).astype(np.int32)
        members.current = np.where(target >= members.current, target, members.current - 1).astype(np.int32)
    for size in SIZES:
        assert lent_to[members.units[:, 0] == size].any(), f"nobody with {size} GPUs a replica borrowed"
    assert returned > 20, "hardly a guarantee had to wait for what was lent"
