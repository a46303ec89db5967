"""Worlds that days are played in: the exact one as before, and the uncertain one that nobody is told of."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_rl.baselines.hpa import Hpa, KedaRequestRate
from rlscaler_rl.baselines.kpa import Kpa
from rlscaler_rl.evaluation.days import cli as command
from rlscaler_rl.evaluation.days.by_error import ByError, by_error, draw, tables
from rlscaler_rl.evaluation.days.play import played, prepared
from rlscaler_rl.evaluation.days.service_load import from_library, stretch
from rlscaler_rl.evaluation.days.setting import EXACT, UNCERTAIN, Setting
from rlscaler_rl.evaluation.days.world import prepared_in
from rlscaler_rl.simulation.scenario import as_measured_for
from tests.unit.days.made_up import day_table, load

SHORT = 900


def test_the_exact_world_is_the_nominal_service_bit_by_bit():
    chosen = [(load("a", length=SHORT), 1)]
    plain, exact = prepared(chosen), prepared_in(EXACT, chosen)
    for column in fields(plain.scenarios):
        np.testing.assert_array_equal(getattr(plain.scenarios, column.name), getattr(exact.scenarios, column.name))
    for name, column in plain.past._asdict().items():
        np.testing.assert_array_equal(column, getattr(exact.past, name))
    assert exact.settings == (Setting(),)


@pytest.fixture(scope="module")
def uncertain():
    return prepared_in(UNCERTAIN, [(load("a", length=SHORT), 1), (load("b", length=SHORT), 1)])


def test_the_uncertain_world_plays_every_error_with_both_pools_and_one_and_lets_half_of_the_rows_drift(uncertain):
    assert len(uncertain.settings) == 2 * 2 * 5
    assert {setting.scrape for setting in uncertain.settings} == {15}
    for pools in ("both", "gpu"):
        rows = [setting for setting in uncertain.settings if setting.pools == pools]
        assert sorted(setting.error for setting in rows) == sorted(2 * UNCERTAIN.errors)
        assert sum(setting.drift > 0 for setting in rows) == len(rows) // 2
    both = np.array([setting.pools == "both" for setting in uncertain.settings])
    assert (uncertain.scenarios.present[:, 1] == both).all()
    assert (uncertain.scenarios.start_seconds == (120.0, 46.0)).all()


def test_the_declared_number_says_nothing_of_the_error_and_the_past_is_the_same(uncertain):
    scenarios = uncertain.scenarios
    assert (scenarios.params().requests_per_second == (20.0, 4.0)).all()
    errors = np.array([setting.error for setting in uncertain.settings])
    np.testing.assert_allclose(scenarios.rps[:, 0], 20.0 * (1 + errors))
    same = [i for i, item in enumerate(uncertain.settings) if item.pools == "both" and uncertain.loads[i] == "a"]
    for column in (uncertain.past.load_recent, uncertain.past.load_calendar, scenarios.arrivals):
        np.testing.assert_array_equal(column[same], np.broadcast_to(column[same[0]], column[same].shape))


@pytest.mark.parametrize(("autoscaler", "scrape"), [(Hpa, 2), (Kpa, 2), (KedaRequestRate, 15)])
def test_hpa_and_knative_do_not_wait_for_prometheus(uncertain, autoscaler, scrape):
    assert (as_measured_for(autoscaler(), uncertain.scenarios).scrape == scrape).all()


def test_a_recorded_hour_is_one_stretch_of_its_own_seconds_at_both_scrapes():
    code = stretch("azure_code", 240.0, 0.45)
    assert code is not None
    assert (code.length, code.by_second, code.drawn) == (57 * 60, True, False)
    assert np.percentile(code.seconds(0, code.length), 99) == pytest.approx(0.45 * 240, rel=0.02)
    assert {setting.scrape for setting in UNCERTAIN.settings(code.by_second, 0)} == {2, 15}
    assert stretch("servegen_small", 240.0, 0.45) is None
    assert from_library("servegen_small", 240.0).by_second


@pytest.mark.slow
def test_a_fall_in_the_middle_of_the_day_makes_the_second_half_late():
    world = replace(UNCERTAIN, errors=(0.0,), drift=0.0, fall=0.5, pools=("gpu",))
    steady = replace(load("a", length=SHORT), seconds=lambda first, last: np.full(last - first, 60.0))
    run = played(prepared_in(world, [(steady, 0)]), lambda rate: Hpa(), timeline=5)
    late = run.timeline["late_share"][0]
    assert late[: SHORT // 10].mean() < 0.05 < late[SHORT // 10 : SHORT // 10 + 12].mean()


def table_of_errors():
    table = day_table(
        {"rule": [3.0, 4.0], "hpa": [4.0, 2.0], "keda": [5.0, 5.0]}, {"hpa": "untuned", "keda": "untuned"}
    )
    settings = [Setting(scrape=15, error=error) for error in (-0.2, 0.0)]
    loads = [load.model_copy(update={"days": [0, 0], "settings": settings, "seconds": 3600}) for load in table.loads]
    scores = [score.rows([0, 0]).model_copy(update={"j": [2 * score.j[0], score.j[0]]}) for score in table.scores]
    return table.model_copy(update={"loads": loads, "scores": scores})


def test_the_table_by_error_has_each_contender_at_each_error_and_the_lead_over_the_best(tmp_path):
    result = by_error(table_of_errors())
    assert ByError.model_validate_json(result.model_dump_json()).leads == result.leads
    cell = next(cell for cell in result.cells if (cell.error, cell.contender) == (-0.2, "rule"))
    assert cell.j.mean == pytest.approx(7.0)
    assert cell.gpu_starts.mean == pytest.approx(2.0 * 24), "a stretch of an hour counts as if it lasted a day"
    lead = result.leads[0]
    assert (lead.error, lead.worst_load, lead.worst) == (-0.2, "load1", pytest.approx(100.0))
    assert lead.percent.mean == pytest.approx((-25.0 + 100.0) / 2)
    lines = [line for part in tables(result) for line in part.markdown()]
    assert any(line.startswith("| -20 % | RULE | 7.00") for line in lines)
    other = by_error(table_of_errors(), "hpa")
    assert tables(other)[0].title.startswith("HPA against the best")
    assert next(cell for cell in other.cells if cell.contender == "hpa").leader_percent is None
    draw(result, tmp_path / "errors.png")
    assert (tmp_path / "errors.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_command_plays_the_uncertain_world_and_writes_its_table_and_picture(tmp_path):
    words = ["--loads", "azure_code", "--errors", "-20", "--pools", "gpu", "--out", str(tmp_path)]
    done = CliRunner().invoke(command.days, words)
    assert done.exit_code == 0, done.output
    result = ByError.model_validate_json((tmp_path / "errors.json").read_text())
    assert {(cell.pools, cell.error) for cell in result.cells} == {("gpu", -0.2)}
    assert "GPU alone" in (tmp_path / "days.md").read_text()
    assert (tmp_path / "errors.png").is_file()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--errors", "much"], "percents by commas"),
        (["--errors", "-95"], "-90 to 900 %"),
        (["--world", "exact", "--errors", "-20"], "only with --world uncertain"),
    ],
)
def test_errors_that_cannot_be_played_are_refused(tmp_path, words, named):
    done = CliRunner().invoke(command.days, ["--loads", "azure_code", *words, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert named in done.output
