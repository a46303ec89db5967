"""What the arbiter is told of a decision, and who is decided for again."""

from __future__ import annotations

import numpy as np

from rlscaler_core.arbiter.proposals import asked_for, is_bound
from rlscaler_core.decision.types import Flag

NAN = np.nan


def test_an_action_says_what_is_asked_for_and_the_floor_may_raise_it_until_the_next() -> None:
    before = np.array([NAN, 5.0, 5.0, 5.0, NAN])
    action = np.array([True, True, False, False, False])
    desired = np.array([3, 2, 4, 7, 6], np.int32)
    got = asked_for(before, action, desired, np.zeros(5, np.int32))
    np.testing.assert_array_equal(got, [3, 2, 5, 7, 6])


def test_an_action_on_unknown_data_asks_for_nothing_that_is_known() -> None:
    held = np.array([Flag.HELD_UNKNOWN | Flag.FLOOR, Flag.HELD_UNKNOWN], np.int32)
    got = asked_for(np.array([4.0, 4.0]), np.array([True, False]), np.array([2, 6], np.int32), held)
    np.testing.assert_array_equal(got, [NAN, 6])


def test_bound_is_who_acts_and_wants_or_runs_more_than_it_is_granted() -> None:
    desired, base = np.array([4, 3, 3, 4, 4]), np.array([1, 4, 3, 4, 9])
    granted, acts = np.full(5, 3), np.array([True, True, True, False, True])
    assert is_bound(desired, base, granted, acts).tolist() == [True, True, False, False, True]
