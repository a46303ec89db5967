import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_operator.schedule import LONGEST_BREAK_SECONDS, Breaker, Due, Schedule, earliest


def test_a_new_policy_senses_at_once_and_acts_after_an_interval():
    schedule = Schedule.starting(30, 5, now=101.0)
    assert schedule.due(101.0) is Due.SENSE
    assert 30 <= schedule.next_action - 101.0 <= 40


@given(st.integers(10, 300), st.integers(1, 60), st.floats(0, 1e6))
def test_actions_keep_their_interval_and_ticks_come_between(interval, sense, start):
    schedule = Schedule.starting(interval, min(sense, interval), start)
    actions, ticks, now = [], [], start
    while len(actions) < 4:
        due = schedule.due(now)
        assert due is not Due.NOTHING
        (actions if due is Due.ACTION else ticks).append(now)
        schedule.done(due, now)
        assert schedule.next() > now
        now = schedule.next()
    assert [b - a for a, b in itertools.pairwise(actions)] == pytest.approx([interval] * 3)
    gaps = [b - a for a, b in zip(sorted(actions + ticks), sorted(actions + ticks)[1:], strict=False)]
    assert max(gaps) <= 2 * min(sense, interval) + 1e-6


def test_policies_with_one_sense_interval_share_their_ticks():
    first, second = Schedule.starting(30, 5, 101.0), Schedule.starting(60, 5, 103.7)
    first.done(Due.SENSE, 103.0)
    second.done(Due.SENSE, 103.8)
    assert first.next_sense == pytest.approx(second.next_sense, abs=5.0)
    assert (second.next_sense - first.next_sense) % 5 == pytest.approx(0)


def test_missed_actions_are_skipped():
    schedule = Schedule.starting(30, 5, 0.0)
    late = schedule.next_action + 95
    schedule.done(Due.ACTION, late)
    assert late < schedule.next_action <= late + 30


def test_a_shorter_interval_shortens_the_wait():
    schedule = Schedule.starting(300, 5, 0.0).retimed(10, 5, 20.0)
    assert schedule.next_action <= 40
    assert schedule.retimed(10, 5, 21.0) is schedule


def test_a_change_of_readiness_hurries_the_next_tick_not_twice_a_second():
    schedule = Schedule.starting(30, 5, 0.0)
    schedule.done(Due.SENSE, 10.0)
    schedule.hurry(10.2)
    assert schedule.next_sense == 11.0


def test_earliest():
    assert earliest([], 7.0) == 7.0
    assert earliest([Schedule(30, 5, 12.0, 40.0), Schedule(30, 5, 9.0, 40.0)], 0.0) == 9.0


def test_a_policy_that_keeps_failing_is_left_alone_for_a_while_and_not_for_long():
    breaker = Breaker()
    pauses = []
    for _ in range(12):
        breaker.failed(100.0)
        pauses.append(breaker.until - 100.0)
    assert pauses[:6] == [float("-inf"), float("-inf"), 1.0, 2.0, 4.0, 8.0]
    assert set(pauses[6:]) == {LONGEST_BREAK_SECONDS}
    breaker.succeeded()
    assert breaker.until < 0
    breaker.failed(200.0)
    assert breaker.until < 200.0
