import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_operator.state.schedule import ACTIONS_AT_ONCE, LONGEST_BREAK_SECONDS, Breaker, Due, Schedule, spread


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


def test_a_few_policies_act_together():
    schedules = [Schedule.starting(30, 1, 0.0) for _ in range(ACTIONS_AT_ONCE)]
    assert spread([(one, Due.ACTION) for one in schedules], 2.0) == ACTIONS_AT_ONCE * [Due.ACTION]


@pytest.mark.parametrize(("interval", "sense"), [(30, 1), (30, 5), (10, 5), (30, 30), (60, 7)])
def test_very_many_that_were_created_together_come_apart_and_keep_their_interval(interval, sense):
    schedules = [Schedule.starting(interval, sense, 0.0) for _ in range(1000)]
    acted = {id(one): [] for one in schedules}
    at_once, now = {}, 0.0
    while now < 6 * interval:
        due = [(one, what) for one in schedules if (what := one.due(now, 0.05)) is not Due.NOTHING]
        for (one, _), what in zip(due, spread(due, sum(one.share for one in schedules)), strict=True):
            if what is Due.ACTION:
                acted[id(one)].append(now)
                at_once[now] = at_once.get(now, 0) + 1
            one.done(what, now)
        now = min(one.next() for one in schedules)
    first = [times[0] for times in acted.values()]
    assert max(first) - min(first) <= interval / 2 + sense
    assert max(at_once.values()) <= max(ACTIONS_AT_ONCE, 2000 * sense / interval + 1)
    for times in acted.values():
        assert len(times) >= 4
        gaps = [b - a for a, b in itertools.pairwise(times)]
        assert max(gaps) <= 1.5 * interval + sense
        assert gaps[-1] == pytest.approx(interval)


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
