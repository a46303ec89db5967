"""What a run reports, from outcomes that are known."""

from __future__ import annotations

import csv
import io
from typing import Any, get_args

import numpy as np
import pytest

from rlscaler_loadgen import cli, patterns
from rlscaler_loadgen.patterns import poisson_arrivals
from rlscaler_loadgen.results import Recorder
from rlscaler_loadgen.settings import LoadSettings


def recorder(duration: int = 3, **files: Any) -> Recorder:
    return Recorder(np.full(duration, 2.0), slo_ms=1000, timeout_ms=5000, started_at=100.0, **files)


def rows(file: io.StringIO) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.getvalue())))


def test_outcomes_exclude_each_other_and_failures_count_as_the_timeout() -> None:
    made = recorder()
    for scheduled, latency_ms, status in [
        (0.1, 200, 200),
        (0.2, 1000, 200),
        (0.3, 1001, 200),
        (0.4, 5001, 200),
        (1.5, 3, 503),
        (1.6, 5000, 0),
    ]:
        made.sent(scheduled)
        made.ended(scheduled + latency_ms / 1000, scheduled, latency_ms, status, "gpu")
    made.sent(2.0)
    result = made.finish(3.0)
    assert (result["requests"], result["ok"], result["late"], result["failures"]) == (7, 2, 1, 3)
    assert result["unfinished"] == 1
    assert result["goodput_rps"] == pytest.approx(2 / 3, abs=1e-4)
    assert result["slo_violation_ratio"] == pytest.approx(4 / 7, abs=1e-6)
    assert result["p50_ms"] == pytest.approx(np.percentile([200, 1000, 1001, 5000, 5000, 5000], 50))
    assert result["answered_p95_ms"] == pytest.approx(np.percentile([200, 1000, 1001], 95))


def test_timeline_has_every_second_and_loses_no_request() -> None:
    timeline, requests = io.StringIO(), io.StringIO()
    made = recorder(4, timeline=timeline, requests=requests)
    for scheduled in (0.5, 0.6, 2.2):
        made.sent(scheduled, lag_ms=7)
    made.ended(0.6, 0.5, 100, 200, "gpu")
    made.flush(2.5)
    assert [row["time"] for row in rows(timeline)] == ["0", "1"]
    made.ended(3.5, 0.6, 2900, 200, "cpu")
    made.ended(6.4, 2.2, 4200, 200, "cpu")
    made.finish(6.4)
    table = rows(timeline)
    assert [int(row["time"]) for row in table] == list(range(7))
    assert [row["sent"] for row in table] == ["2", "0", "1", "0", "0", "0", "0"]
    assert [row["late"] for row in table] == ["0", "0", "0", "1", "0", "0", "1"]
    assert table[0] | {"p50_ms": "", "p95_ms": ""} == {
        "time": "0", "timestamp": "100.000", "rate": "2.0", "sent": "2", "ok": "1", "late": "0", "failed": "0",
        "p50_ms": "", "p95_ms": "", "dispatch_lag_ms": "7",
    }  # fmt: skip
    assert table[1]["p95_ms"] == ""
    assert rows(requests)[1] == {
        "scheduled_at": "100.6000", "latency_ms": "2900", "outcome": "ok", "status": "200", "pool": "cpu",
    }  # fmt: skip


def test_nothing_sent_is_unknown_and_not_zero() -> None:
    result = recorder().finish(3.0)
    assert result["p95_ms"] is None
    assert result["slo_violation_ratio"] == 0
    assert result["generator_late"] is False


def test_an_interrupted_run_is_rated_over_the_time_it_had() -> None:
    made = recorder(100)
    made.sent(0.5)
    made.ended(0.6, 0.5, 100, 200)
    result = made.finish(2.0, interrupted=True)
    assert result["interrupted"] is True
    assert result["goodput_rps"] == 0.5


def test_counts_per_second_are_poisson() -> None:
    times = poisson_arrivals(np.full(5000, 20.0), np.random.default_rng(1))
    counts = np.bincount(times.astype(int), minlength=5000)
    assert counts.mean() == pytest.approx(20, abs=0.3)
    assert counts.var() == pytest.approx(20, abs=1.5)
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.02)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PATTERN": "ramp", "DURATION": "40", "SEED": "3", "PEAK": "50", "UNRELATED": "x"}.items():
        monkeypatch.setenv(f"RLSCALER_{name}", value)
    settings = LoadSettings()
    assert settings.rate().shape == (40,)
    assert settings.rate()[-1] == 50
    np.testing.assert_array_equal(settings.arrival_times(), LoadSettings().arrival_times())


def test_command_and_settings_know_every_pattern() -> None:
    assert cli.PATTERN_NAMES == patterns.PATTERNS
    assert get_args(LoadSettings.model_fields["pattern"].annotation) == patterns.PATTERNS


def test_a_peak_below_the_low_level_lowers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSCALER_PEAK", "0.5")
    assert LoadSettings(pattern="ramp").rate().max() == 0.5
