"""Step functions and the reading of raw records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlscaler_dev.demo.records import Run, Steps, read_records
from rlscaler_dev.demo.settings import CLIENT_TIMEOUT_MS
from rlscaler_dev.exceptions import RecordError

from .records_fixture import make_run


def steps(times: list[float], values: list[float]) -> Steps:
    return Steps(np.array(times), np.array(values, dtype=float)[:, None])


def test_a_value_holds_until_the_next_row_and_is_unknown_before_the_first() -> None:
    found = steps([1, 3], [10, 20]).at(np.array([0.5, 1.0, 2.9, 3.0, 99.0]))[:, 0]
    np.testing.assert_array_equal(found, [np.nan, 10, 10, 20, 20])


def test_integral_cuts_at_the_edges_and_at_the_changes() -> None:
    found = steps([0, 1.5, 2.25], [1, 3, 0]).integral(np.array([1.0, 2.0, 4.0]))[:, 0]
    np.testing.assert_allclose(found, [0.5 * 1 + 0.5 * 3, 0.25 * 3])


def test_changes_are_counted_within_the_window_only() -> None:
    found = steps([0, 1, 2, 3], [1, 2, 5, 4]).changes(1.0, 3.0)[:, 0]
    np.testing.assert_array_equal(found, [1, 3])


def write_records(folder: Path) -> None:
    make_run().write(folder / "run.json")
    (folder / "requests.csv").write_text(
        "scheduled_at,latency_ms,outcome,status,pool\n1.5,20.25,ok,200,gpu\n2.5,9,failed,503,cpu\n"
    )
    (folder / "offered.csv").write_text("t,offered_rps\n0,10\n1,100\n")
    (folder / "replicas.csv").write_text("time,pool,spec,existing,ready,starting\n0,gpu,2,2,1,1\n0,cpu,1,1,1,0\n")
    (folder / "routes.csv").write_text("time,gpu_weight,cpu_weight\n0,833,167\n1,500,500\n")
    (folder / "decisions.csv").write_text("time,kind,placement,unknown_required\n1.0,action,Balanced,0\n1.5,floor,,2\n")


def test_records_are_read_as_written(tmp_path: Path) -> None:
    write_records(tmp_path)
    records = read_records(tmp_path)
    assert records.run == make_run()
    np.testing.assert_array_equal(records.offered_rps, [10, 100])
    np.testing.assert_array_equal(records.requests.ok, [True, False])
    np.testing.assert_array_equal(records.requests.latency_ms, [20.25, CLIENT_TIMEOUT_MS])
    np.testing.assert_array_equal(records.replicas["gpu"].values, [[2, 2, 1, 1]])
    np.testing.assert_array_equal(records.routes.values, [[833, 167], [500, 500]])
    np.testing.assert_array_equal(records.decisions.by_actor, [True, False])
    np.testing.assert_array_equal(records.decisions.placement, [1, -1])
    np.testing.assert_array_equal(records.decisions.unknown, [0, 2])


def test_a_half_written_last_line_is_left_out(tmp_path: Path) -> None:
    write_records(tmp_path)
    with (tmp_path / "requests.csv").open("a") as file:
        file.write("3.5,2")
    assert len(read_records(tmp_path).requests) == 2


@pytest.mark.parametrize(
    "name", ["run.json", "offered.csv", "requests.csv", "replicas.csv", "routes.csv", "decisions.csv"]
)
def test_a_missing_record_is_named(tmp_path: Path, name: str) -> None:
    write_records(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(RecordError, match=name):
        read_records(tmp_path)


def test_a_missing_column_and_a_wrong_number_are_named(tmp_path: Path) -> None:
    write_records(tmp_path)
    (tmp_path / "decisions.csv").write_text("time,kind,placement\n1,action,\n")
    with pytest.raises(RecordError, match="unknown_required"):
        read_records(tmp_path)
    (tmp_path / "decisions.csv").write_text("time,kind,placement,unknown_required\nnoon,action,,0\n")
    with pytest.raises(RecordError, match="noon"):
        read_records(tmp_path)


def test_a_run_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"seed": 1}')
    with pytest.raises(RecordError, match=r"run\.json"):
        Run.read(tmp_path / "run.json")
