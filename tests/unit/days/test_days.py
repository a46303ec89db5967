"""Days of load: who meets what, what is known before, and what a table says of it. An hour stands for a day here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.decision.forecaster.memory import recent_of
from rlscaler_core.decision.rule import BY_LOAD, Rule, RuleSettings
from rlscaler_core.decision.types import Placement
from rlscaler_core.models import load_bundled
from rlscaler_loadgen.traces import Trace
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.evaluation.days import cli as command
from rlscaler_rl.evaluation.days.compare import Request, compare
from rlscaler_rl.evaluation.days.play import Days, covered, played, prepared
from rlscaler_rl.evaluation.days.service_load import ServiceLoad, from_library, own
from rlscaler_rl.evaluation.days.table import DayTable
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.simulation.episode import Run
from rlscaler_rl.workloads import Part
from tests.unit.days.made_up import HOUR, load


def steady_load(name: str, rate: float) -> ServiceLoad:
    """The same without jumps."""
    return replace(load(name), seconds=lambda first, last: np.full(last - first, rate))


@pytest.fixture(scope="module")
def day() -> Days:
    return prepared([(load("a"), 3)])


@pytest.fixture(scope="module")
def ruled(day: Days) -> Run:
    """The day as the forecast rule plays it."""
    return played(day, lambda rate: load_bundled("rule"))


@pytest.mark.slow
def test_all_contenders_meet_the_same_arrivals_and_a_day_does_not_depend_on_those_beside_it(day, ruled):
    beside = prepared([(load("b", 50.0), 4), (load("a"), 3)])
    np.testing.assert_array_equal(day.scenarios.arrivals[0], beside.scenarios.arrivals[1])
    second = played(beside, lambda rate: load_bundled("rule")).result
    assert ruled.result.j[0] == second.j[1]
    hpa = played(day, lambda rate: Hpa())
    assert hpa.ledger.requests[0] == day.scenarios.arrivals[0].sum()


@pytest.mark.slow
def test_the_rules_split_makes_fewer_requests_late_at_the_same_cost():
    """The same replicas on loads that fill them: what is won is won by who answers."""
    steady = [steady_load(str(rate), rate) for rate in (40.0, 85.0, 130.0)]
    days = prepared([(one, number) for one in steady for number in (3, 4)])
    balanced, split = (
        played(days, lambda rate, placement=placement: Rule(RuleSettings(placement=placement))).result
        for placement in (Placement.BALANCED, BY_LOAD)
    )
    # Fewer late requests leave a higher belief about the capacity, and that other replicas.
    assert (split.cost <= 1.01 * balanced.cost).all()
    assert (balanced.late_percent > 0.1).all()
    assert (split.late_percent < 0.6 * balanced.late_percent).all()


@pytest.mark.slow
def test_the_past_of_a_day_ends_before_it_begins_and_holds_nothing_of_it(day):
    times = day.past.rate_time[0]
    assert np.nanmax(times) < day.past.epoch[0]
    np.testing.assert_allclose(np.nanmean(day.past.rate_value[0]), 30.0, rtol=0.1)
    changed = load("a")
    values = np.concatenate([changed.seconds(0, 3 * HOUR), np.full(2 * HOUR, 500.0)])
    later = prepared([(replace(changed, seconds=lambda first, last: values[first:last]), 3)])
    np.testing.assert_array_equal(day.past.load_recent, later.past.load_recent)
    np.testing.assert_array_equal(day.past.load_calendar, later.past.load_calendar)


@pytest.mark.slow
def test_playing_twice_gives_the_same_and_leaves_the_past_as_it_was(day, ruled):
    before = day.past.load_recent.copy()
    again = played(day, lambda rate: load_bundled("rule"))
    np.testing.assert_array_equal(ruled.result.j, again.result.j)
    np.testing.assert_array_equal(before, day.past.load_recent)


@pytest.mark.slow
def test_the_first_hours_of_a_day_are_the_day_until_then(day):
    short = day.first(HOUR // 2)
    whole, half = (played(part, lambda rate: Hpa(), timeline=5) for part in (day, short))
    assert half.ledger.requests[0] == day.scenarios.arrivals[0, : HOUR // 2].sum()
    np.testing.assert_array_equal(half.timeline["desired"], whole.timeline["desired"][:, : HOUR // 10])


@pytest.mark.slow
def test_coverage_is_of_the_forecasts_of_the_day_alone_and_of_those_that_learn(day, ruled):
    assert recent_of(day.past.load_recent).judged.sum() == 0
    assert recent_of(day.past.load_recent).rises.sum() > 0
    share = covered(ruled)[0]
    assert (np.diff(share, axis=1) >= 0).all()
    assert (share[:, 2] > 0.8).all()
    assert np.isnan(covered(played(day, lambda rate: Hpa()))).all()


@pytest.mark.slow
def test_a_load_of_the_library_is_scaled_by_its_train_days_alone():
    found = from_library("worldcup", 240.0, share=0.5)
    train = np.concatenate([found.day(number) for number in found.parts[Part.TRAIN]])
    assert np.quantile(train, 0.99) == pytest.approx(120.0, rel=0.2)
    assert set(found.parts[Part.TRAIN]).isdisjoint(found.parts[Part.TEST])


@pytest.mark.parametrize(
    ("minutes", "said"), [(60, "at least 2 h are needed, export a longer time"), (119, "119 min of history")]
)
def test_a_history_that_is_too_short_is_refused_with_the_remedy(minutes: int, said: str):
    with pytest.raises(EvaluationError, match=said):
        own(Trace(np.full(minutes, 5.0), 60.0), "short.csv")


def test_a_history_of_hours_is_judged_on_its_last_part_and_one_of_days_on_whole_days():
    hours = own(Trace(np.full(600, 5.0), 60.0), "hours")
    assert hours.length == 4 * HOUR
    assert hours.parts[Part.TEST] == (1,)
    days = own(Trace(np.full(5 * 1440 + 30, 5.0), 60.0), "days")
    assert days.length == 24 * HOUR
    assert days.parts[Part.TEST] == (3, 4)
    assert days.offset + 5 * days.length == (5 * 1440 + 30) * 60


@pytest.mark.slow
def test_a_comparison_on_the_past_of_loads_has_every_contender_on_every_load(monkeypatch):
    told: list[str] = []
    request = Request("own", [load("a", length=900), load("b", 60.0, length=900)], days=1, tuned=("hpa",), trials=4)
    found = compare(request, told.append)
    names = {row.contender for row in found.scores if row.load == "b"}
    assert {"rule", "hpa", "keda", "kpa", "hindsight", "static", "hpa_tuned"} <= names
    assert set(found.settings["hpa_tuned"]) == {"a", "b"}
    assert told
    assert DayTable.model_validate_json(found.model_dump_json()) == found


@pytest.mark.slow
def test_as_json_standard_output_has_the_table_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_load", lambda name, capacity, share, folder: load(name, 0.2 * capacity, length=900))
    words = ["--loads", "a, b", "--days", "1", "--model", "bundled", "--out", str(tmp_path / "out"), "-o", "json"]
    done = CliRunner().invoke(command.days, words)
    assert done.exit_code == 0, done.output
    assert "the past of" in done.stderr
    found = DayTable.model_validate_json(done.stdout)
    assert found == DayTable.model_validate_json((tmp_path / "out" / "days.json").read_text())
    assert [load.name for load in found.loads] == ["a", "b"]
    assert (tmp_path / "out" / "model-card-network_1.md").read_text().startswith("# Model card: ppo")


@pytest.mark.slow
def test_a_recorded_load_of_ones_own_is_scaled_to_the_service_and_keeps_its_calendar(tmp_path):
    rows = [f"{1_772_733_600_000 + 60_000 * i},{10 + i % 5},{i}" for i in range(121)]
    (tmp_path / "own.csv").write_text("\n".join(["Time,chat,search", *rows]) + "\n")
    found = command._recorded(tmp_path / "own.csv", "chat", 0.5)
    assert found.epoch(0) == 1_772_733_600 + found.offset
    assert np.percentile(found.day(0), 99) == pytest.approx(0.5 * command._capacity(), rel=0.3)
    for words, said in ((["--series", "chat"], "only with --history"), (["--loads", "a"], "leave out --loads")):
        own = ["--history", str(tmp_path / "own.csv")] if "--loads" in words else []
        done = CliRunner().invoke(command.days, [*own, *words, "--out", str(tmp_path / "out")])
        assert done.exit_code == 2
        assert said in done.stderr
