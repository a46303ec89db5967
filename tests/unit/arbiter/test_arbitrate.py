"""Who gets what in cases that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.arbiter.arbitrate import arbitrate, is_bound, jain, requested
from rlscaler_core.arbiter.rules import RULES, RuleName
from rlscaler_core.arbiter.types import NO_MEMBER, Grants, Loans, Reason, follow, make_budgets, make_members, no_loans
from rlscaler_core.decision.exceptions import ColumnError
from rlscaler_core.decision.types import Flag

ALL = tuple(RULES)


def grants(rule: RuleName = "MaxMinFair", amount: float = 8, budget: dict | None = None, **columns: object) -> Grants:
    m = len(np.atleast_1d(columns["asked"]))
    return arbitrate(rule, make_budgets(1, amount=amount, **(budget or {})), make_members(m, **columns), no_loans(m))[0]


@pytest.mark.parametrize("rule", ALL)
def test_all_get_what_they_ask_for_where_there_is_enough(rule: RuleName) -> None:
    got = grants(rule, asked=[3, 0, 5], guaranteed=[1, 4, 0])
    assert got.granted.tolist() == [3, 0, 5]
    assert got.borrowed.tolist() == [2, 0, 5]
    assert set(got.reason) == {Reason.ALL}


@pytest.mark.parametrize("rule", ALL)
def test_a_guarantee_is_kept_against_any_ask_weight_and_priority(rule: RuleName) -> None:
    got = grants(rule, asked=[100, 3], guaranteed=[0, 3], weight=[1000, 0.001], priority=[9, 0], current=[5, 0])
    assert got.granted.tolist() == [5, 3]
    assert got.reason.tolist() == [Reason.GUARANTEE, Reason.ALL]
    assert got.because.tolist() == [1, NO_MEMBER]


def test_the_rest_is_shared_by_weight() -> None:
    assert grants(amount=9, asked=[9, 9], weight=[2, 1]).granted.tolist() == [6, 3]


def test_who_asks_for_little_gets_it_and_the_others_share_what_it_leaves() -> None:
    assert grants(amount=10, asked=[1, 9, 9]).granted.tolist() == [1, 5, 4]


def test_a_higher_priority_goes_first_and_equal_ones_share() -> None:
    got = grants("Priority", amount=8, asked=[9, 4, 9], priority=[0, 5, 0])
    assert got.granted.tolist() == [2, 4, 2]
    assert got.reason.tolist() == [Reason.SHARE, Reason.ALL, Reason.SHARE]


def test_proportional_gives_the_same_part_of_each_ask() -> None:
    assert grants("Proportional", amount=6, asked=[9, 3]).granted.tolist() == [5, 1]


def test_first_come_leaves_what_is_there_and_gives_the_rest_to_the_longest_wait() -> None:
    members = make_members(3, asked=[8, 8, 8], current=[4, 2, 0])
    loans = no_loans(3)
    loans.waited_intervals[:] = 1, 2, 7
    got, _ = arbitrate("FirstCome", make_budgets(1, amount=8), members, loans)
    assert got.granted.tolist() == [4, 2, 2]


def test_a_replica_that_does_not_fit_leaves_its_room_to_smaller_ones() -> None:
    assert grants(amount=7, asked=[5, 5], units=[4, 1]).granted.tolist() == [1, 3]


def test_a_ceiling_is_the_reason_where_it_is() -> None:
    got = grants(asked=[6, 1], ceiling=[2, np.inf])
    assert got.granted.tolist() == [2, 1]
    assert got.reason.tolist() == [Reason.CEILING, Reason.ALL]


def test_a_member_that_has_all_there_is_is_told_so() -> None:
    assert grants(amount=4, asked=[6]).reason.tolist() == [Reason.AMOUNT]


def test_a_guarantee_that_is_larger_than_the_amount_is_not_called_the_whole_amount() -> None:
    got = grants(amount=2, asked=[4, 2], guaranteed=[4, 0])
    assert got.granted.tolist() == [2, 0]
    assert got.promised.tolist() == [4, 0]
    assert got.reason.tolist() == [Reason.TOO_FEW, Reason.GUARANTEE]


def test_what_is_too_little_for_a_replica_of_a_guarantee_is_not_lent() -> None:
    assert grants(amount=5, asked=[3, 3], guaranteed=[6, 0], units=[2, 1]).granted.tolist() == [2, 0]


def test_minimum_replicas_are_asked_for_and_not_forced() -> None:
    got = grants(amount=4, asked=[0, 4], minimum=[3, 0], guaranteed=[0, 3])
    assert got.granted.tolist() == [1, 3]
    assert got.reason.tolist() == [Reason.GUARANTEE, Reason.SHARE]


def test_too_few_for_all_guarantees_are_shared_by_weight_among_them_alone() -> None:
    got = grants(amount=6, asked=[6, 6, 6], guaranteed=[6, 6, 0], weight=[2, 1, 50])
    assert got.granted.tolist() == [4, 2, 0]
    assert got.reason.tolist()[:2] == [Reason.TOO_FEW, Reason.TOO_FEW]


def test_what_is_not_lent_stays_free() -> None:
    assert grants(asked=[8, 0], guaranteed=[0, 3], budget={"lend": False}).granted.tolist() == [5, 0]
    assert grants(asked=[8, 0], guaranteed=[0, 3]).granted.tolist() == [8, 0]


def test_an_unknown_ask_keeps_the_last_grant_or_what_runs() -> None:
    members = make_members(2, asked=[np.nan, np.nan], current=[1, 2])
    loans = no_loans(2)
    loans.granted[0] = 4
    got, _ = arbitrate("MaxMinFair", make_budgets(1, amount=8), members, loans)
    assert got.granted.tolist() == [4, 2]


def test_an_unknown_ask_takes_nothing_from_a_guarantee() -> None:
    got = grants(asked=[np.nan, 6], current=[8, 0], guaranteed=[0, 6])
    assert got.granted.tolist() == [2, 6]


@pytest.mark.parametrize(("intervals", "expected"), [(1, [(2, 6)]), (3, [(6, 2), (4, 4), (2, 6)])])
def test_a_loan_is_given_back_within_its_intervals(intervals: int, expected: list[tuple[int, int]]) -> None:
    budgets = make_budgets(1, amount=8, reclaim_intervals=intervals)
    members = make_members(2, asked=[8, 0], guaranteed=[0, 6])
    got, loans = arbitrate("MaxMinFair", budgets, members, no_loans(2))
    assert got.granted.tolist() == [8, 0]
    seen = []
    for _ in expected:
        members = make_members(2, asked=[8, 6], guaranteed=[0, 6], current=got.granted)
        got, loans = arbitrate("MaxMinFair", budgets, members, loans)
        seen.append(tuple(got.granted.tolist()))
    assert seen == expected
    assert got.due.tolist() == [2, 6]


def test_growth_beyond_guarantees_waits_for_what_still_runs() -> None:
    members = make_members(2, asked=[2, 8], current=[8, 0])
    got = arbitrate("MaxMinFair", make_budgets(1, amount=8), members, no_loans(2))[0]
    assert got.granted.tolist() == [2, 0]
    assert got.due.tolist() == [2, 6]
    assert got.reason.tolist() == [Reason.ALL, Reason.RETURNING]
    members = make_members(2, asked=[2, 8], current=[8, 0], guaranteed=[0, 3])
    got = arbitrate("MaxMinFair", make_budgets(1, amount=8), members, no_loans(2))[0]
    assert got.granted.tolist() == [2, 3]


def test_who_joins_and_leaves_does_not_disturb_the_loans_of_others() -> None:
    loans = Loans(*(np.array(column, np.int32) for column in ([5, 7], [1, 2], [3, 4], [0, 6])))
    now = follow(loans, ["a", "b"], ["new", "b"])
    assert now.granted.tolist() == [-1, 7]
    assert now.borrowed_intervals.tolist() == [0, 2]
    assert len(follow(loans, ["a", "b"], [])) == 0


def test_budgets_share_nothing() -> None:
    budgets = make_budgets(2, amount=[2, 9])
    members = make_members(3, budget=[1, 0, 1], asked=[9, 9, 9])
    assert arbitrate("MaxMinFair", budgets, members, no_loans(3))[0].granted.tolist() == [5, 2, 4]


@pytest.mark.parametrize("rule", ALL)
def test_nobody_and_nothing(rule: RuleName) -> None:
    assert len(arbitrate(rule, make_budgets(0, amount=1), make_members(0), no_loans(0))[0]) == 0
    assert grants(rule, amount=0, asked=[3]).granted.tolist() == [0]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": np.nan}, "weight"),
        ({"units": 0}, "units"),
        ({"guaranteed": -1}, "guaranteed"),
        ({"ceiling": np.nan}, "ceiling"),
        ({"current": -1}, "current"),
        ({"minimum": -1}, "minimum"),
        ({"budget": -1}, "budget"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(columns: dict[str, float], named: str) -> None:
    with pytest.raises(ColumnError, match=rf"Members\.{named}\[0\]"):
        make_members(1, **columns)


@pytest.mark.parametrize("columns", [{"amount": np.nan}, {"amount": -1}, {"amount": 1, "reclaim_intervals": 0}])
def test_a_budget_that_makes_no_sense_is_refused(columns: dict[str, float]) -> None:
    with pytest.raises(ColumnError, match=r"Budgets\."):
        make_budgets(1, **columns)


def test_a_member_of_no_budget_is_refused() -> None:
    with pytest.raises(ColumnError, match="there are 1 budgets"):
        arbitrate("MaxMinFair", make_budgets(1, amount=1), make_members(1, budget=1), no_loans(1))


def test_jains_index() -> None:
    assert jain(np.array([2.0, 4.0]), np.array([1.0, 2.0])) == pytest.approx(1.0)
    assert jain(np.array([4.0, 0.0]), np.array([1.0, 1.0])) == pytest.approx(0.5)
    assert np.isnan(jain(np.zeros(2), np.ones(2)))


def test_an_action_says_what_is_asked_for_and_the_floor_may_raise_it_until_the_next() -> None:
    before = np.array([np.nan, 5.0, 5.0, 5.0, np.nan])
    action = np.array([True, True, False, False, False])
    desired = np.array([3, 2, 4, 7, 6], np.int32)
    got = requested(before, action, desired, np.zeros(5, np.int32))
    np.testing.assert_array_equal(got, [3, 2, 5, 7, 6])


def test_an_action_on_unknown_data_asks_for_nothing_that_is_known() -> None:
    held = np.array([Flag.HELD_UNKNOWN | Flag.FLOOR, Flag.HELD_UNKNOWN], np.int32)
    got = requested(np.array([4.0, 4.0]), np.array([True, False]), np.array([2, 6], np.int32), held)
    np.testing.assert_array_equal(got, [np.nan, 6])


def test_bound_is_who_acts_and_wants_or_runs_more_than_it_is_granted() -> None:
    desired, base = np.array([4, 3, 3, 4, 4]), np.array([1, 4, 3, 4, 9])
    granted, acts = np.full(5, 3), np.array([True, True, True, False, True])
    assert is_bound(desired, base, granted, acts).tolist() == [True, True, False, False, True]
