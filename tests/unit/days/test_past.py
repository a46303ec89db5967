"""What is chosen on the past of loads. An hour stands for a day here."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.baselines.simple import Static, StaticSettings
from rlscaler_rl.evaluation.days import past
from rlscaler_rl.evaluation.days.past import TUNABLE, Chosen, cheapest_static, tuned
from rlscaler_rl.evaluation.days.play import Days, played, prepared
from tests.unit.days.test_days import load


def two_loads() -> Days:
    """Two tune days of one load between which another one has its only one."""
    return prepared([(load("a"), 2), (load("b", 90.0), 2), (load("a"), 3)])


def chosen(name: str, settings: dict[str, dict]) -> Chosen:
    tunable = TUNABLE[name]
    return Chosen(name, name, "tuned", lambda many, rate: tunable.controllers(many, rate, 1), settings)


@pytest.mark.slow
def test_constant_replicas_are_the_cheapest_that_carry_the_tune_days_of_each_load():
    tune = two_loads()
    static = cheapest_static(tune)
    assert static.settings["a"] != static.settings["b"]
    j = static.play(tune).j
    for replicas in ((1, 1), (10, 10), (2, 4), (6, 1)):
        settings = StaticSettings(tuple((np.array(replicas) - 1) / 9))
        other = played(tune, lambda rate, chosen=settings: Static(chosen)).result.j
        assert j[[0, 2]].mean() <= other[[0, 2]].mean()
        assert j[1] <= other[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hpa", "rule"])
def test_what_is_tuned_is_at_least_as_good_as_its_default_on_the_days_that_it_was_tuned_on(name: str):
    tune = two_loads()
    found = tuned(name, tune, trials=14)
    default = chosen(name, dict.fromkeys("ab", TUNABLE[name].default)).play(tune).j
    j = found.play(tune).j
    assert j[[0, 2]].mean() <= default[[0, 2]].mean()
    assert j[1] <= default[1]
    assert set(found.settings) == {"a", "b"}


@pytest.mark.slow
def test_a_load_that_is_tuned_beside_others_gets_what_it_gets_alone(monkeypatch: pytest.MonkeyPatch):
    tune = two_loads()
    together = tuned("hpa", tune, trials=16).settings
    monkeypatch.setattr(past, "ROWS", 3)
    assert tuned("hpa", tune.take(np.array([1])), trials=16).settings["b"] == together["b"]
    assert tuned("hpa", tune.take(np.array([0, 2])), trials=16).settings["a"] == together["a"]


@pytest.mark.slow
def test_days_of_other_intervals_are_played_together_as_alone():
    days = two_loads()
    default = TUNABLE["rule"].default
    both = chosen("rule", {"a": {**default, "interval": 30}, "b": {**default, "interval": 10}})
    j = both.play(days).j
    for name, rows in (("a", [0, 2]), ("b", [1])):
        alone = played(days.take(np.array(rows)), both.on(name).make).result.j
        np.testing.assert_array_equal(j[rows], alone)


@pytest.mark.slow
def test_settings_as_they_come_are_the_contender_as_it_comes():
    days = two_loads()
    hpa = chosen("hpa", dict.fromkeys("ab", TUNABLE["hpa"].default)).play(days)
    np.testing.assert_array_equal(hpa.j, played(days, lambda rate: Hpa()).result.j)


OTHERWISE = {
    "loading": 0.7,
    "caution": 3.0,
    "jump_caution": 0.03,
    "interval": 10,
    "target_utilization": 0.4,
    "reactive_floor": False,
    "up_window": 60,
    "down_window": 600,
    "min_gpu": 5,
    "min_cpu": 8,
    "placement": 0,
}


@pytest.mark.long
def test_every_setting_that_is_searched_of_the_rule_acts_on_a_service_with_a_past():
    """Trials that turn what does nothing there would leave the rule less tuned than its rivals."""
    assert set(OTHERWISE) == set(TUNABLE["rule"].space)
    days = prepared([(load("a", days=9), 8)])
    default = TUNABLE["rule"].default
    as_it_comes = chosen("rule", {"a": default}).play(days)
    for name, value in OTHERWISE.items():
        other = chosen("rule", {"a": {**default, name: value}}).play(days)
        assert (other.cost[0], other.late_percent[0]) != (as_it_comes.cost[0], as_it_comes.late_percent[0]), name
