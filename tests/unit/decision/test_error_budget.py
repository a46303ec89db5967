"""The error budget: bounded, monotone in what is left, still where nothing is known, and each row for itself."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.decision.error_budget import (
    AMPLE,
    HIGHEST_FACTOR,
    LEAST_ALLOWED,
    LONGEST_SECONDS,
    LOWEST_FACTOR,
    SECONDS_TO_DOUBLE,
    budget_left,
    count,
    price_factor,
    wanted_factor,
)
from rlscaler_core.decision.forecaster.learn import learn
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.rule import RuleSettings, rule_replicas
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Params, Samples, State

COUNTED, DAY = 600.0, 86400.0
COLUMNS = ("counted_requests", "counted_late", "counted_time", "counted_slo_ms", "price_factor")


def params(n: int = 1, **columns: Any) -> Params:
    return make_params(n, **({"objective": 0.99, "requests_per_second": (20.0, 4.0)} | columns))


def samples(time: float, requests: Any = np.nan, late: Any = np.nan, n: int = 1, **columns: Any) -> Samples:
    given: dict[str, Any] = {"spec_replicas": 2, "ready_replicas": 2, "arrival_rate": 20.0, "p95_ms": 100.0}
    return make_samples(n, **(given | {"time": time, "counted_requests": requests, "counted_late": late} | columns))


def after(
    share_late: float, seconds: float, spec: Params, per_minute: float = 1200.0, state: State | None = None
) -> State:
    """A service that gets so many requests every minute, of which a share is late; counted every ten minutes."""
    state = initial_state(1, 1) if state is None else state
    begin = 0.0 if np.isnan(state.counted_time[0]) else float(state.counted_time[0])
    for time in np.arange(begin + COUNTED, begin + seconds + 1, COUNTED):
        requests = per_minute * COUNTED / 60
        state = count(spec, state, samples(time, requests, share_late * requests))
    return state


def factor(state: State) -> float:
    return float(state.price_factor[0])


def test_a_budget_that_is_left_is_spent_and_one_that_is_spent_is_saved():
    spec = params()
    assert factor(after(0.0, 4 * DAY, spec)) == LOWEST_FACTOR
    assert factor(after(0.02, 2 * DAY, spec)) == HIGHEST_FACTOR
    assert factor(after(0.0075, 2 * DAY, spec)) == pytest.approx(float(wanted_factor(np.array([0.25]))[0]), rel=1e-6)


def test_it_moves_slowly_and_saves_sooner_than_it_spends():
    spec = params()
    assert factor(after(0.0, DAY, spec)) == pytest.approx(0.5, rel=0.01)
    assert factor(after(0.05, SECONDS_TO_DOUBLE, spec)) == pytest.approx(
        2.0, rel=0.03
    )  # nothing moves at the first count


@given(st.floats(-50, 1), st.floats(-50, 1))
def test_the_wanted_factor_falls_as_more_is_left_and_stays_within_its_bounds(one: float, other: float):
    low, high = sorted((one, other))
    little, much = wanted_factor(np.array([low, high]))
    assert LOWEST_FACTOR <= much <= little <= HIGHEST_FACTOR
    if low < 0 and high > AMPLE:
        assert (little, much) == (HIGHEST_FACTOR, LOWEST_FACTOR)


counts = st.tuples(
    st.floats(0, 1e6) | st.sampled_from([np.nan, np.inf, -1.0]),
    st.floats(0, 2) | st.sampled_from([np.nan, np.inf, -1.0]),
    st.floats(-1e5, 1e6) | st.just(np.nan),
    st.sampled_from([100.0, 1000.0]),
    st.sampled_from([np.nan, 0.5, 0.9, 0.99, 0.99999]),
)


@settings(deadline=None)
@given(st.lists(counts, min_size=1, max_size=30))
def test_whatever_is_counted_the_factor_stays_within_its_bounds_and_moves_no_faster_than_it_may(ticks: Any):
    state, time = initial_state(1, 1), 0.0
    for requests, share, step, slo_ms, objective in ticks:
        time += step
        before = factor(state)
        state = count(params(slo_ms=slo_ms, objective=objective), state, samples(time, requests, share * requests))
        time = 0.0 if np.isnan(time) else time
        assert LOWEST_FACTOR <= factor(state) <= HIGHEST_FACTOR
        most = 2 ** (LONGEST_SECONDS / SECONDS_TO_DOUBLE)
        assert 1 / most - 1e-9 <= factor(state) / before <= most + 1e-9
        assert 0 <= state.counted_late[0] <= state.counted_requests[0]
        assert np.isfinite(state.counted_requests[0])


@given(st.floats(0, 1), st.floats(0, 1), st.floats(LOWEST_FACTOR, HIGHEST_FACTOR), st.floats(0, 1000))
def test_of_two_services_that_with_fewer_late_requests_never_gets_the_higher_price(
    one: float, other: float, begin: float, elapsed: float
):
    late = np.sort([one, other]) * 10_000
    state = replace(initial_state(2, 1), price_factor=np.full(2, begin), counted_time=np.zeros(2))
    state = replace(state, counted_slo_ms=np.full(2, 1000.0))
    made = count(params(2), state, samples(elapsed, 10_000.0, late, n=2))
    assert made.price_factor[0] <= made.price_factor[1]


@pytest.mark.parametrize(
    ("requests", "late"),
    [(np.nan, np.nan), (np.nan, 3.0), (100.0, np.nan), (0.0, 0.0), (np.inf, 1.0), (100.0, -1.0), (-5.0, 0.0)],
)
def test_what_is_not_known_changes_nothing(requests: float, late: float):
    state = after(0.001, 3600, params())
    assert count(params(), state, samples(9000.0, requests, late)) is state


def test_a_gap_counts_for_ten_minutes_only():
    state = after(0.0, DAY, params())
    before, gone = factor(state), float(state.counted_time[0]) + 5 * DAY
    moved = factor(count(params(), state, samples(gone, 1200.0, 0.0)))
    assert moved == pytest.approx(before * 0.5 ** (LONGEST_SECONDS / DAY))


def test_a_service_with_little_traffic_keeps_its_price_until_its_requests_can_say_anything():
    quiet = after(0.0, 10 * DAY, params(objective=0.999), per_minute=100 / 1440)
    assert factor(quiet) == 1.0
    assert np.isnan(budget_left(quiet.counted_requests, quiet.counted_late, np.array([0.999])))[0]
    assert quiet.counted_requests[0] * 0.001 < LEAST_ALLOWED
    known = after(0.0, 10 * DAY, params(objective=0.99), per_minute=100 / 1440)
    assert factor(known) < 1.0


def test_an_edited_objective_is_judged_by_what_was_counted_already_and_approached_slowly():
    state = after(0.002, 5 * DAY, params(objective=0.99))
    assert factor(state) == LOWEST_FACTOR
    edited = after(0.002, COUNTED, params(objective=0.999), state=state)
    assert budget_left(edited.counted_requests, edited.counted_late, np.array([0.999]))[0] == pytest.approx(
        -1.0, abs=0.01
    )
    assert LOWEST_FACTOR < factor(edited) < 1.03 * LOWEST_FACTOR
    assert factor(after(0.002, 2 * DAY, params(objective=0.999), state=edited)) == HIGHEST_FACTOR


def test_an_edited_latency_begins_to_count_anew_and_keeps_the_price_meanwhile():
    state = after(0.0, 2 * DAY, params())
    edited = count(params(slo_ms=500.0), state, samples(float(state.counted_time[0]) + COUNTED, 100.0, 1.0))
    assert (edited.counted_requests[0], edited.counted_late[0]) == (100.0, 1.0)
    assert factor(edited) == factor(state)


def test_a_price_that_is_fixed_is_not_touched_but_lateness_is_counted():
    spec = params(objective=np.nan)
    state = after(0.05, DAY, spec)
    assert factor(state) == 1.0
    assert state.counted_late[0] > 0
    steered = replace(state, price_factor=np.full(1, 8.0))
    assert price_factor(spec, steered)[0] == 1.0
    assert price_factor(params(), steered)[0] == 8.0


def test_rows_do_not_touch_and_inputs_stay_as_they_are():
    draw = np.random.default_rng(3)
    n = 7
    spec = params(n, objective=draw.choice([np.nan, 0.9, 0.999], n))
    state = initial_state(n, 1)
    for tick in range(40):
        requests = np.where(draw.random(n) < 0.3, np.nan, draw.uniform(0, 1e5, n))
        now = samples(60.0 * tick, requests, requests * draw.uniform(0, 0.05, n), n=n)
        before = state.copy()
        alone = State.concat([count(spec.take([i]), state.take([i]), now.take([i])) for i in range(n)])
        together = count(spec, state, now)
        for name in COLUMNS:
            np.testing.assert_array_equal(getattr(alone, name), getattr(together, name))
        for field in fields(State):
            np.testing.assert_array_equal(getattr(before, field.name), getattr(state, field.name))
        state = together


@pytest.mark.slow
def test_the_rule_holds_more_where_a_late_request_is_worth_more():
    # Starts are free: a price of them holds the replicas of the highest load lately, at any price of lateness.
    free = {"start_seconds": 0.0}
    draw, spec, state = np.random.default_rng(5), params(**free), initial_state(1, 1)
    recent, calendar = state.load_recent, state.load_calendar
    for tick in range(3000):
        now, rate = np.array([15.0 * tick]), np.array([draw.gamma(4.0, 10.0)])
        recent, calendar = learn(spec, recent, calendar, now, rate, np.ones(1, np.bool_))
    state = replace(state, load_recent=recent, load_calendar=calendar)
    for tick in range(3000, 3004):
        now = samples(15.0 * tick, arrival_rate=40.0)
        state = sense(spec, state, now)
    factors = (LOWEST_FACTOR, 1.0, HIGHEST_FACTOR)
    states = [replace(state, price_factor=np.full(1, one)) for one in factors]
    asked = [float(rule_replicas(spec, one, now, RuleSettings())[0] @ np.array([20.0, 4.0])) for one in states]
    assert asked[0] < asked[1] < asked[2]
    fixed = [rule_replicas(params(objective=np.nan, **free), one, now, RuleSettings()) for one in states]
    np.testing.assert_array_equal(fixed[0], fixed[2])
