"""Weights of a route against the requests that the pools answered."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rlscaler_dev.demo.records import DECISION_COLUMNS, REPLICA_COLUMNS, ROUTE_COLUMNS
from rlscaler_dev.e2e.traffic import stretches, summarise
from tests.unit.demo.records_fixture import START, make_run


def write(path: Path, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 s at 80 : 20, of which the pools answer 3 : 1, then weights that never had requests enough."""
    data = tmp_path / "data"
    data.mkdir()
    make_run(duration_s=120.0).write(data / "run.json")
    write(data / "offered.csv", ("t", "offered_rps"), [(second, 4) for second in range(120)])
    requests = [
        (f"{START + i / 4:.3f}", 100.0, "ok", 200, "cpu" if i % 4 == 0 else "gpu") for i in range(400)
    ]  # fmt: skip
    write(data / "requests.csv", ("scheduled_at", "latency_ms", "outcome", "status", "pool"), requests)
    write(
        data / "replicas.csv",
        ("time", "pool", *REPLICA_COLUMNS),
        [(START, pool, 1, 1, 1, 0) for pool in ("gpu", "cpu")],
    )
    write(
        data / "routes.csv", ("time", *ROUTE_COLUMNS), [(START - 9, 80, 20), (START + 100, 0, 0), (START + 110, 1, 3)]
    )
    write(data / "decisions.csv", DECISION_COLUMNS, [])
    return tmp_path


def test_a_stretch_has_the_weights_in_force_and_who_answered_after_they_settled(folder: Path) -> None:
    (found,) = stretches(folder)
    assert (found.begin, found.end, found.gpu_weight) == (0.0, 100.0, 0.8)
    assert (found.gpu, found.cpu) == (288, 96)  # without the first four seconds
    assert found.gpu_share == pytest.approx(0.75)


def test_the_error_is_that_of_the_shares(folder: Path) -> None:
    summary = summarise(stretches(folder))
    assert summary["mean_error"] == pytest.approx(0.05)
    assert summary["gpu_weight_range"] == [0.8, 0.8]
    assert summary["stretches"][0]["gpu_requests"] == 288


def test_a_run_without_requests_says_nothing_of_traffic() -> None:
    assert summarise([]) == {"mean_error": None, "gpu_weight_range": None, "stretches": []}
