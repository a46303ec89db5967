"""The causal planner: what it draws from the past, that it sees nothing of the future, and what it reaches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.decision.forecaster.memory import calendar_of, nothing_learned
from rlscaler_core.decision.types import RATE_HISTORY
from rlscaler_rl.evaluation.days.causal import causal, known_services
from rlscaler_rl.evaluation.days.play import Days, played, prepared
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.planning.causal import KnownService, Starting
from rlscaler_rl.planning.futures import KnownPast, coming_jumps
from rlscaler_rl.planning.planner import PlanSettings, best_plan
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.workloads import Part

HOUR = 3600
MONDAY = 1_767_571_200.0


def hourly(name: str, rate: float = 30.0) -> ServiceLoad:
    """A load whose days are hours, with a wave and ten minutes of twice the load."""
    seconds = np.arange(5 * HOUR)
    values = rate * (1 + 0.3 * np.sin(seconds / 100) + ((seconds % HOUR) // 600 == 3))
    return ServiceLoad(
        name=name,
        group=name,
        drawn=False,
        seconds=lambda first, last: values[first:last],
        begin=MONDAY,
        offset=0,
        parts={Part.TRAIN: (0, 1), Part.TUNE: (2,), Part.TEST: (3, 4)},
        length=HOUR,
    )


@pytest.fixture(scope="module")
def load() -> ServiceLoad:
    return hourly("a")


@pytest.fixture(scope="module")
def days(load: ServiceLoad) -> Days:
    return prepared([(load, 3)])


@pytest.fixture(scope="module")
def services(days: Days, load: ServiceLoad) -> list[KnownService]:
    return known_services(days, [load])


def changed_after(days: Days, second: int) -> Days:
    """The same day with five times the load from a second on."""
    scenarios = days.scenarios.copy()
    scenarios.arrivals[:, second:] *= 5
    scenarios.rate[:, second:] *= 5
    return replace(days, scenarios=scenarios)


@pytest.mark.parametrize("second", [900, 1815])
def test_what_comes_later_changes_nothing_of_what_was_decided_before(days: Days, services, second: int):
    contender = causal(services)
    as_it_is, otherwise = (
        played(one, contender.make, timeline=SENSE_SECONDS) for one in (days, changed_after(days, second))
    )
    ticks = second // SENSE_SECONDS
    for column in ("desired", "weights_gpu", "ready"):
        before, after = (np.split(run.timeline[column][0], [ticks]) for run in (as_it_is, otherwise))
        np.testing.assert_array_equal(before[0], after[0])
    assert (as_it_is.timeline["desired"][0, ticks:] != otherwise.timeline["desired"][0, ticks:]).any()


@pytest.mark.long
def test_playing_twice_gives_the_same_and_so_does_playing_beside_another(days: Days, services, load: ServiceLoad):
    first, second = (played(days, causal(services).make).result.j for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = hourly("b", 80.0)
    both = prepared([(other, 3), (load, 3)])
    beside = played(both, causal(known_services(both, [load, other])).make).result.j
    assert beside[1] == first[0]


def test_it_is_above_perfect_foresight_and_below_the_worst_constant_replicas(days: Days, services):
    j = played(days, causal(services).make).result.j
    _, plan = best_plan(days.scenarios, [PlanSettings()])
    everything = float(days.scenarios.max_replicas[0] @ np.array([1.0, 0.25]))
    assert plan.result.j[0] < j[0] < everything / 2


def test_a_day_without_a_past_is_refused_with_the_remedy(load: ServiceLoad):
    with pytest.raises(EvaluationError, match="leave out --causal-plan"):
        known_services(prepared([(load, 0)]), [load])


def test_futures_are_what_came_after_the_same_situation():
    """Every quarter of an hour the load rises by half for a minute and then triples."""
    ticks = np.arange(4 * 720)
    phase = ticks % 180
    history = np.where(phase < 100, 20.0, np.where(phase < 112, 30.0, 90.0))
    past = KnownPast.of(history, 12, np.random.default_rng(0))
    before = history[180 * 8 + 111 - RATE_HISTORY + 1 : 180 * 8 + 112]
    quiet = history[180 * 8 + 60 - RATE_HISTORY + 1 : 180 * 8 + 61]
    rising, staying = past.futures(1.05 * before, 0.0, 10), past.futures(quiet, 0.0, 10)
    assert rising.shape == (10, 12)
    np.testing.assert_allclose(np.median(rising[:, 2:], axis=0), 94.5, rtol=0.02)
    np.testing.assert_allclose(np.median(staying, axis=0), 20.0, rtol=0.02)


def test_a_history_of_minutes_is_refused():
    with pytest.raises(ValueError, match=r"at least \d+ minutes"):
        KnownPast.of(np.full(100, 5.0), 12, np.random.default_rng(0))


def test_jumps_come_at_the_minutes_at_which_they_came_before():
    _, row = nothing_learned(1)
    calendar = calendar_of(row)
    calendar.seen_minutes[:], calendar.jumps[:], calendar.measured[:] = 14_400, 20, 20
    calendar.height[:], calendar.height_square[:] = 20 * np.log(3.0), 20 * np.log(3.0) ** 2
    calendar.hour_seen[:], calendar.day_seen[:], calendar.week_seen[:] = 20, 10, 2000
    calendar.hour_jumps[0, 30], calendar.day_jumps[0, 30] = 10, 9
    rng = np.random.default_rng(0)
    factors = coming_jumps(row, MONDAY + 29 * 60 + 10, 500, 24, rng)
    begins = 10  # the first stage whose middle is in the minute
    assert factors.shape == (500, 24)
    assert (factors[:, :begins] == 1).all()
    jumped = factors[:, begins + 1] > 1.2
    assert 0.4 < jumped.mean() < 0.99
    assert np.median(factors[jumped, begins + 1]) == pytest.approx(3.0, rel=0.15)
    assert (coming_jumps(row, MONDAY + 45 * 60 + 10, 500, 24, rng) > 1.2).any(axis=1).mean() < 0.1
    assert (coming_jumps(nothing_learned(1)[1], MONDAY, 500, 24, rng) == 1).all()


def test_replicas_that_start_are_known_by_when_they_will_be_ready():
    starting = Starting(np.array([[3, 1]]))

    def pods(gpu: int, cpu: int) -> np.ndarray:
        return np.array([[gpu, cpu]], np.int32)

    starting.order(pods(1, 1), pods(2, 2))
    starting.tick(pods(1, 1), pods(2, 2))
    starting.order(pods(1, 2), pods(4, 2))
    np.testing.assert_array_equal(starting.stages(0, 5), [[0, 0, 1, 2, 0], [0, 0, 0, 0, 0]])
    starting.order(pods(1, 2), pods(3, 2))
    np.testing.assert_array_equal(starting.stages(0, 5), [[0, 0, 1, 1, 0], [0, 0, 0, 0, 0]])
    starting.tick(pods(2, 2), pods(3, 2))
    np.testing.assert_array_equal(starting.stages(0, 5), [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0]])
    for _ in range(3):
        starting.tick(pods(2, 2), pods(3, 2))
    np.testing.assert_array_equal(starting.stages(0, 5), [[0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
