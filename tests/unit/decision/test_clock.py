"""A clock that is set back, or far forward, asks for no capacity and leaves nothing in the memory."""

from functools import cache

import numpy as np
import pytest

from rlscaler_core.api.status_memory import Expiry, Stabilization, StabilizationPool
from rlscaler_core.decision.batch import Entry, decide_all, fresh_state
from rlscaler_core.decision.forecaster.learn import HIGHEST_RATE, learn
from rlscaler_core.decision.forecaster.memory import nothing_learned, recent_of, sound
from rlscaler_core.decision.forecaster.storage import from_text, to_text
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Params, State
from rlscaler_core.vertical.recommend import Ranges, Usage, nothing_known, recommend
from rlscaler_operator.reporting.stabilization import restore, restore_forecaster

BEGIN = 1.7e9
PARAMS = make_params(
    1,
    present=np.array([[True, False]]),
    requests_per_second=np.array([[20.0, np.nan]]),
    max_replicas=np.array([[50, 1]]),
    cold_start_seconds=np.array([[45.0, 8.0]]),
    stabilization_seconds=(0.0, 300.0),
)


def looks(params: Params, state: State, begin: float, seconds: float, replicas: int) -> tuple[State, list[int]]:
    """Decide every 15 s at a constant load of 100 requests/s; return the state and the replicas wanted each time."""
    wanted, draw = [], np.random.default_rng(1)
    for time in np.arange(begin + 15, begin + seconds + 15, 15):
        samples = make_samples(
            1,
            time=np.array([time]),
            arrival_rate=100 * (1 + 0.03 * draw.standard_normal(1)),
            gpu_utilization=np.array([80.0]),
            memory_utilization=np.array([50.0]),
            p95_ms=np.array([300.0]),
            spec_replicas=np.array([[replicas, 0]]),
            ready_replicas=np.array([[replicas, 0]]),
        )
        outcome = decide_all([Entry(params, state, samples, "action", Rule())])[0]
        assert outcome.decision is not None, outcome.error
        state, replicas = outcome.state, int(outcome.decision.desired[0, 0])
        wanted.append(replicas)
    return state, wanted


@cache
def begun() -> tuple[State, int]:
    state, wanted = looks(PARAMS, fresh_state(Rule(), (7, 0), BEGIN), BEGIN, 600, 7)
    return state, wanted[-1]


@pytest.mark.parametrize("step", [-2, -60, -300, -3600, -26 * 3600, -3e8, 26 * 3600, 3e8])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_step_of_the_clock_is_a_gap(step: float, restarted: bool) -> None:
    state, replicas = begun()
    now = BEGIN + 600 + step
    if restarted:
        text = to_text(state.load_recent[0], state.load_calendar[0])
        state = fresh_state(Rule(), (replicas, 0), now)
        restore_forecaster(state, text)
    state, after = looks(PARAMS, state, now, 300, replicas)
    assert max(after) <= 8
    assert min(after) >= 5
    memory = recent_of(state.load_recent)
    levels = [float(part[0]) for part in (memory.fast, memory.slow, memory.peak, memory.long, memory.mean)]
    assert np.allclose(levels, 100, rtol=0.1)
    recent, calendar = sound(state.load_recent, state.load_calendar)
    recent_of(recent).issued[...] = memory.issued  # infinite where no forecast was due yet
    assert recent.tobytes() == state.load_recent.tobytes()
    assert calendar.tobytes() == state.load_calendar.tobytes()


def test_an_infinity_in_a_status_is_learned_again_and_the_rest_stays() -> None:
    state, _ = begun()
    recent, calendar = state.load_recent.copy(), state.load_calendar.copy()
    recent_of(recent).fast[0], recent_of(recent).mean[0], recent_of(recent).rises[0, 0, 0, 0] = np.inf, np.nan, 1e30
    restored = fresh_state(Rule(), (7, 0), BEGIN + 600)
    restore_forecaster(restored, to_text(recent[0], calendar[0]))
    memory = recent_of(restored.load_recent)
    assert (memory.fast[0], memory.mean[0], memory.rises[0, 0, 0, 0]) == (0, 0, 0)
    assert memory.slow[0] == recent_of(recent).slow[0]
    _, after = looks(PARAMS, restored, BEGIN + 600, 300, 7)
    assert max(after) <= 8


def test_an_absurd_rate_teaches_nothing() -> None:
    memory = nothing_learned(1)
    for number, rate in enumerate((100.0, 1e39, 2 * HIGHEST_RATE)):
        memory = learn(PARAMS, *memory, np.array([BEGIN + 15 * number]), np.array([rate]), np.array([True]))
    assert recent_of(memory[0]).fast[0] == 100


def test_a_clock_that_runs_forward_changes_no_bit() -> None:
    state, _ = begun()
    again = from_text(to_text(state.load_recent[0], state.load_calendar[0]))
    recent_of(again[0]).issued[...] = 0
    healed = sound(*again)
    assert (healed[0].tobytes(), healed[1].tobytes()) == (again[0].tobytes(), again[1].tobytes())


def test_ages_stay_true_when_the_clock_is_set_back() -> None:
    state = initial_state(1, 1)
    state.rate_time[0, -1] = state.event_time[0, 0, 0] = state.counted_time[0] = BEGIN
    samples = make_samples(
        1, time=np.array([BEGIN - 3600]), spec_replicas=np.array([[1, 0]]), ready_replicas=np.array([[1, 0]])
    )
    moved = sense(make_params(1), state, samples)
    assert (moved.rate_time[0, -1], moved.event_time[0, 0, 0]) == (BEGIN - 3600, BEGIN - 3600)
    assert moved.counted_time[0] == BEGIN - 3600
    assert state.rate_time[0, -1] == BEGIN


def test_entries_of_a_clock_that_was_ahead_hold_for_one_window() -> None:
    params = make_params(
        1, has_behavior=True, stabilization_seconds=(0.0, 300.0), rules=np.full((2, 4, 3), (1.0, 4.0, 60.0))
    )
    ahead = Expiry.model_validate({"value": 9, "expires": "2030-01-01T00:00:00Z"})
    written = Stabilization(gpu=StabilizationPool(recommendations=[ahead], changes=[ahead]))
    state = restore(initial_state(1, 1), params, written, BEGIN)
    assert (state.recommendation_time[0, 0, 0], state.recommendation[0, 0, 0]) == (BEGIN, 9)
    assert (state.event_time[0, 0, 0], state.event_change[0, 0, 0]) == (BEGIN, 9)


def test_a_size_of_a_clock_that_was_ahead_is_lowered_in_time() -> None:
    full = np.ones((1, 2))
    ranges, memory = Ranges(least=0.1 * full, most=10 * full, step=0.1 * full), nothing_known(1)
    for number in range(40):
        usage = Usage(np.array([BEGIN + 1e8 + 60 * number]), np.array([[8.0, 8.0]]))
        memory = recommend(ranges, memory, usage)
    for number in range(40):
        memory = recommend(ranges, memory, Usage(np.array([BEGIN + 3600 * number]), np.array([[1.0, 1.0]])))
    assert memory.size[0, 1] < 2
