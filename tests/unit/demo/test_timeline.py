"""The second-by-second table and the figures of a run, on records small enough to check by hand."""

from __future__ import annotations

import csv
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from rlscaler_dev.demo.results import summarise
from rlscaler_dev.demo.timeline import Timeline, build_timeline

from .records_fixture import KEYS, make_decisions, make_records, make_requests, make_run


@pytest.fixture
def timeline() -> Timeline:
    return build_timeline(make_records())


def test_requests_count_in_the_second_of_their_schedule(timeline: Timeline) -> None:
    np.testing.assert_array_equal(timeline.sent, [2, 2, 0, 1])
    np.testing.assert_array_equal(timeline.ok, [2, 1, 0, 1])
    np.testing.assert_array_equal(timeline.failed, [0, 1, 0, 0])
    np.testing.assert_array_equal(timeline.late, [0, 1, 0, 0])


def test_percentiles_count_failures_and_are_unknown_without_requests(timeline: Timeline) -> None:
    np.testing.assert_allclose(timeline.p50_ms, [200, 3250, np.nan, 50])
    np.testing.assert_allclose(timeline.p95_ms, [290, 4825, np.nan, 50])


def test_replicas_and_placement_are_those_at_the_end_of_the_second(timeline: Timeline) -> None:
    np.testing.assert_array_equal(timeline.gpu_spec, [1, 3, 3, 3])
    np.testing.assert_array_equal(timeline.gpu_ready, [1, 1, 1, 3])
    np.testing.assert_array_equal(timeline.gpu_starting, [0, 2, 2, 0])
    np.testing.assert_array_equal(timeline.cpu_spec, [2, 1, 1, 1])
    np.testing.assert_array_equal(timeline.gpu_weight, [500, 500, 900, 900])
    np.testing.assert_array_equal(timeline.placement, [1, 1, 0, 0])


def test_cost_counts_every_existing_pod_from_its_creation(timeline: Timeline) -> None:
    gpu = np.array([1, 1 * 0.5 + 3 * 0.5, 3, 3])
    cpu = np.array([2, 2, 1.5, 1])
    np.testing.assert_allclose(timeline.cost, np.cumsum(gpu * 2.5 + cpu * 0.625) / 3600)


def test_the_csv_names_placements_and_leaves_unknown_cells_empty(timeline: Timeline, tmp_path: Path) -> None:
    timeline.write(tmp_path / "timeline.csv")
    with (tmp_path / "timeline.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [column.name for column in fields(Timeline)]
    assert [row["placement"] for row in rows] == ["Balanced", "Balanced", "PreferGPU", "PreferGPU"]
    assert [row["p50_ms"] for row in rows] == ["200", "3250", "", "50"]


def test_summary_has_exactly_the_promised_figures() -> None:
    summary = summarise(make_records())
    assert list(summary) == KEYS
    assert (summary["requests"], summary["failures"]) == (5, 1)
    assert summary["goodput_rps"] == pytest.approx(3 / 4)
    assert summary["slo_violation_ratio"] == pytest.approx(2 / 5)
    assert summary["p50_ms"] == pytest.approx(300)
    assert summary["gpu_replica_seconds"] == pytest.approx(1.5 * 1 + 2.5 * 3)
    assert summary["cpu_replica_seconds"] == pytest.approx(2.5 * 2 + 1.5 * 1)
    assert summary["cost"] == pytest.approx((9 * 2.5 + 6.5 * 0.625) / 3600, abs=1e-5)
    assert (summary["scale_ups"], summary["scale_downs"]) == (1, 1)
    assert (summary["decisions"], summary["unknown_observations"]) == (2, 2)


def test_decisions_of_an_hpa_are_its_changes_of_scale() -> None:
    summary = summarise(make_records(run=make_run(contender="hpa"), decisions=make_decisions()))
    assert (summary["decisions"], summary["unknown_observations"]) == (2, 0)


def test_a_run_without_requests_has_no_figures_instead_of_zeros() -> None:
    summary = summarise(make_records(requests=make_requests()))
    assert summary["p95_ms"] is None
    assert summary["slo_violation_ratio"] is None
    assert summarise(make_records(requests=make_requests((1, 5000, False))))["slo_violation_ratio"] == 1
