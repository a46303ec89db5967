"""Drawn pools, the comparison on them, and its command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_rl.results.document import write
from rlscaler_rl.tenants.cli import tenants as command
from rlscaler_rl.tenants.compare import ARRANGEMENTS, FIGURES, RIVALS, Comparison, compare, report
from rlscaler_rl.tenants.draw import Request, draw

SMALL = Request(tenants=3, pools=3, hours=1, tightness=0.8, loads=("jobs_1", "random_1", "servegen_large"), seed=4)


@pytest.fixture(scope="module")
def table():
    return compare(SMALL, lambda text: None)


@pytest.mark.parametrize("tightness", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("number", [2, 9])
def test_what_is_guaranteed_and_runs_at_first_fits_in_the_pool(tightness, number):
    drawn = draw(Request(number, 4, 1, tightness, ("jobs_1", "worldcup")))
    guaranteed = drawn.tenants.guaranteed.reshape(4, number)
    assert (guaranteed >= 1).all()
    assert (guaranteed.sum(axis=1) <= drawn.gpus).all()
    initial = drawn.scenarios.initial[:, 0].reshape(4, number)
    assert (initial >= 1).all()
    assert (initial.sum(axis=1) <= drawn.gpus).all()


def test_a_larger_tenant_has_a_larger_load_and_share():
    drawn = draw(Request(8, 8, 1, 1.0, ("steady_1",)))
    mean = drawn.scenarios.mean_rate().reshape(8, 8)
    np.testing.assert_allclose(mean / drawn.sizes, 16, rtol=0.05, err_msg="a GPU answers 16 requests/s at 80 %")
    order = np.argsort(drawn.sizes, axis=1)
    sorted_shares = np.take_along_axis(drawn.tenants.guaranteed.reshape(8, 8), order, axis=1)
    assert (np.diff(sorted_shares, axis=1) >= 0).all()


def test_a_seed_draws_the_same_pools_and_another_one_others():
    again, other = draw(SMALL), draw(Request(3, 3, 1, 0.8, SMALL.loads, seed=5))
    np.testing.assert_array_equal(draw(SMALL).scenarios.arrivals, again.scenarios.arrivals)
    assert not np.array_equal(again.sizes, other.sizes)
    more = draw(Request(3, 4, 1, 0.8, SMALL.loads, seed=4))
    np.testing.assert_array_equal(more.scenarios.arrivals[:9], again.scenarios.arrivals)


@pytest.mark.slow
def test_the_table_has_every_arrangement_and_figure(table):
    assert [row.name for row in table.rows] == [one.name for one in ARRANGEMENTS]
    for row in table.rows:
        assert set(row.figures) == set(FIGURES)
        for name, figure in row.figures.items():
            assert figure.low <= figure.mean <= figure.high, (row.name, name)
            assert figure.mean == pytest.approx(np.mean(row.pools[name]))
        assert set(row.against) == set(RIVALS) - {row.name}


@pytest.mark.slow
def test_what_must_hold_whatever_the_loads_are(table):
    rows = {row.name: row for row in table.rows}
    alone = rows.pop("alone")
    assert alone.figures["smallest"].mean == alone.figures["jain"].mean == 1.0
    assert alone.figures["below"].mean == 0.0
    for row in rows.values():
        assert (np.array(row.pools["allocated"]) <= 100 + 1e-6).all()
        assert (np.array(row.pools["busy"]) <= np.array(row.pools["allocated"]) + 1e-6).all()
        assert (np.array(row.pools["worst"]) >= np.array(row.pools["late"]) - 1e-9).all()
        assert ((np.array(row.pools["jain"]) > 1 / 3) & (np.array(row.pools["jain"]) <= 1 + 1e-9)).all()


@pytest.mark.slow
def test_the_files_read_back_as_they_were(table, tmp_path):
    write(table, report(table), tmp_path, "table")
    assert Comparison.model_validate_json((tmp_path / "table.json").read_text()) == table
    text = (tmp_path / "table.md").read_text()
    assert text.splitlines() == report(table)
    assert "| weighted max-min |" in text


@pytest.mark.slow
def test_as_json_standard_output_has_the_table_alone(tmp_path):
    words = ["compare", "--tenants", "2", "--pools", "3", "--hours", "1", "--loads", "jobs_1, random_1"]
    done = CliRunner().invoke(command, [*words, "--out", str(tmp_path), "-o", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads((tmp_path / "table.json").read_text())
    assert "3 pools of 2 tenants" in done.stderr


def test_a_load_that_is_not_there_is_named(tmp_path):
    done = CliRunner().invoke(command, ["compare", "--loads", "nobody", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "nobody" in done.output
