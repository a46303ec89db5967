"""The forecast rule with what was learned of the service, and the same without."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.forecaster import outlook
from rlscaler_core.decision.forecaster.learn import learn
from rlscaler_core.decision.forecaster.memory import nothing_learned, recent_of
from rlscaler_core.decision.guards import STAGES
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.pooling import eased
from rlscaler_core.decision.rule import Rule, RuleSettings, rule_replicas
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Params, Samples, State

pytestmark = pytest.mark.slow

MONDAY, DAY, TICK = 1_767_571_200.0, 86400.0, 15.0
PLAIN = RuleSettings(late_price=0.0)


def params(**columns: Any) -> Params:
    given: dict[str, Any] = {"requests_per_second": (20.0, 4.0), "max_replicas": (20, 20)} | columns
    return make_params(1, **given)


def samples(time: float, rate: float, replicas: tuple[int, int] = (3, 1), **columns: Any) -> Samples:
    given: dict[str, Any] = {
        "time": time,
        "arrival_rate": rate,
        "cpu_utilization": 30.0,
        "gpu_utilization": 30.0,
        "memory_utilization": 50.0,
        "p95_ms": 100.0,
        "spec_replicas": replicas,
        "ready_replicas": replicas,
    }
    return make_samples(1, **(given | columns))


def after_jobs(days: float = 2.0) -> State:
    """A service with 20 requests/s, and 60 in the first minute of every half hour; now it is 00:20 and quiet."""
    spec, state, draw = params(), initial_state(1, 1), np.random.default_rng(5)
    recent, calendar = state.load_recent, state.load_calendar
    for time in np.arange(MONDAY, MONDAY + days * DAY + 1200, TICK):
        rate = draw.poisson(10 * (60 if time % 1800 < 60 else 20)) / 10
        recent, calendar = learn(spec, recent, calendar, np.array([time]), np.array([rate]), np.ones(1, np.bool_))
    return replace(state, load_recent=recent, load_calendar=calendar)


@pytest.fixture(scope="module")
def known() -> State:
    return after_jobs()


def capacity(state: State, at: float, settings: RuleSettings, rate: float = 20.0) -> float:
    """Requests/s of the replicas that the rule asks for `at` so many seconds after midnight."""
    time = MONDAY + 2 * DAY + at
    for back in (30.0, 20.0, 10.0, 0.0):
        now = samples(time - back, rate)
        state = sense(params(), state, now)
    return float(rule_replicas(params(), state, samples(time, rate), settings)[0] @ np.array([20.0, 4.0]))


def test_capacity_stands_before_a_jump_that_the_calendar_knows(known: State) -> None:
    before = capacity(known, 1800 - 50, RuleSettings())
    assert before > 60
    assert before > 1.8 * capacity(known, 1800 - 50, PLAIN)


def test_it_is_not_held_when_none_is_due(known: State) -> None:
    assert capacity(known, 1800 - 600, RuleSettings()) <= 1.4 * 20 < 60


def test_the_ceiling_leaves_what_stands_for_a_jump_that_the_calendar_knows(known: State) -> None:
    spec, state, replicas = params(interval_seconds=30.0), known, (2, 1)
    begin = MONDAY + 2 * DAY + 900
    kept = 0
    for tick in range(int((1800 - 900 - 20) / 10)):
        now = samples(begin + 10 * tick, 20.0, replicas)
        state = sense(spec, state, now)
        if tick % 3 == 0:
            decision, _, state = decide(spec, state, now, Rule())
            replicas = tuple(decision.desired[0].tolist())
            trail = decision.trail[0]
            kept = max(kept, int((trail[STAGES.index("pending")] - trail[STAGES.index("ceiling")]).sum()))
    assert kept == 0
    assert np.dot(replicas, (20.0, 4.0)) > 60


def test_a_forecast_stands_until_its_horizon_is_over() -> None:
    """A dip takes nothing away of what was held; a minute and a half later it is given back."""
    spec, state = params(), initial_state(1, 1)
    recent, calendar, draw = state.load_recent, state.load_calendar, np.random.default_rng(1)
    minutes = np.repeat(draw.gamma(16.0, 40 / 16.0, 120), 6)
    taken = MONDAY + 10.0 * np.arange(len(minutes) + 12)
    for time, rate in zip(taken, [*minutes, *[70.0] * 3, *[15.0] * 9], strict=True):
        recent, calendar = learn(spec, recent, calendar, np.array([time]), np.array([rate]), np.ones(1, np.bool_))
        if time == taken[len(minutes) + 2]:
            high = outlook.promised_rate(recent, np.array([0.9]))[0, 0]
        if time == taken[len(minutes) + 4]:
            assert outlook.promised_rate(recent, np.array([0.9]))[0, 0] == pytest.approx(high, rel=0.01)
    assert outlook.promised_rate(recent, np.array([0.9]))[0, 0] < 0.9 * high


def test_dear_replicas_and_cheap_lateness_prepare_less(known: State) -> None:
    dear, cheap = (capacity(known, 1800 - 50, RuleSettings(late_price=price)) for price in (5.0, 0.005))
    assert dear > cheap


def test_of_a_service_that_is_not_known_it_is_the_plain_rule() -> None:
    for rate in (0.0, 3.0, 20.0, 75.0):
        state = initial_state(1, 1)
        for tick in range(4):
            state = sense(params(), state, samples(MONDAY + 10 * tick, rate))
        asked = [
            rule_replicas(params(), state, samples(MONDAY + 30, rate), settings) for settings in (RuleSettings(), PLAIN)
        ]
        np.testing.assert_allclose(asked[0], asked[1], atol=1)


def test_without_room_for_a_forecaster_it_is_the_plain_rule_exactly() -> None:
    state = initial_state(1, 1, forecaster=False)
    for tick, rate in enumerate((10.0, 40.0, 20.0)):
        state = sense(params(), state, samples(MONDAY + 10 * tick, rate))
    now = samples(MONDAY + 20, 20.0)
    np.testing.assert_array_equal(
        rule_replicas(params(), state, now, RuleSettings()), rule_replicas(params(), state, now, PLAIN)
    )
    assert state.load_recent.shape == (1, 0)


def poisoned(kind: str) -> State:
    state = after_jobs(0.2)
    recent, calendar = state.load_recent.copy(), state.load_calendar.copy()
    if kind == "nan":
        recent[...], calendar[...] = np.nan, np.nan
    elif kind == "inf":
        recent[...], calendar[...] = np.inf, np.inf
    elif kind == "zero":
        recent[...], calendar[...] = 0, 0
    elif kind == "negative":
        recent[...], calendar[...] = -1, -1
    elif kind == "level of a millionth":
        kept = recent_of(recent)
        for part in (kept.fast, kept.slow, kept.peak):
            part[...] = 1e-6
    return replace(state, load_recent=recent, load_calendar=calendar)


@pytest.mark.parametrize("kind", ["nan", "inf", "zero", "negative", "level of a millionth"])
def test_a_damaged_memory_never_takes_capacity_that_the_load_needs(kind: str) -> None:
    """Whatever stands in the memory, the load of this moment is carried and the replicas stay finite and in range."""
    state, spec = poisoned(kind), params(max_replicas=(20, 20))
    with np.errstate(all="ignore"):
        now = samples(MONDAY + 2 * DAY, 100.0, (6, 2))
        decision, _, _ = decide(spec, sense(spec, state, now), now, Rule())
    assert decision.desired[0] @ np.array([20, 4]) * 0.8 >= eased(spec, np.array([100.0]))[0]
    assert (decision.desired <= 20).all()


def test_unknown_arrivals_hold_the_replicas_whatever_was_learned(known: State) -> None:
    now = samples(MONDAY + 2 * DAY + 1000, np.nan, (7, 5))
    decision, _, _ = decide(params(), sense(params(), known, now), now, Rule())
    assert decision.desired[0].tolist() == [7, 5]


def test_after_a_failover_without_the_memory_no_more_is_removed_than_the_plain_rule_would(known: State) -> None:
    """A state of another release is refused and learned again: the plain rule decides meanwhile, within a replica."""
    recent, calendar = nothing_learned(1)
    fresh = replace(known, load_recent=recent, load_calendar=calendar)
    assert capacity(fresh, 1800 - 50, RuleSettings()) >= capacity(fresh, 1800 - 50, PLAIN) - 4
