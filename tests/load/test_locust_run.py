"""A short Locust run against the real service, end to end."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from .conftest import Start

LOAD = [sys.executable, "-c", "from rlscaler_loadgen.cli import load; load()"]


def run_load(url: str, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LOAD, "run", "--host", url, "--out", str(out), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_an_open_loop_run_sends_the_schedule_and_reports_it(start_service: Start, tmp_path: Path) -> None:
    served = start_service("pod", "--flavour", "gpu", "--mean-ms", "5", "--concurrency", "8")
    common = ("--pattern", "spike", "--duration", "5", "--peak", "40", "--seed", "7", "--requests")
    patient = ("--slo-ms", "60000", "--timeout", "60")  # the machine may pause
    done = run_load(served.url, tmp_path, *common, *patient)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "load.json").read_text())
    assert result["requests"] == result["ok"] > 60
    assert result["failures"] == result["unfinished"] == 0
    assert result["slo_violation_ratio"] == 0
    assert result["interrupted"] is False
    seconds = table(tmp_path / "load.csv")
    assert [int(row["time"]) for row in seconds][:5] == list(range(5))
    assert sum(int(row["sent"]) for row in seconds) == result["requests"]
    assert sum(int(row["ok"]) for row in seconds) == result["ok"]
    assert int(seconds[2]["sent"]) > 2 * int(seconds[0]["sent"])
    requests = table(tmp_path / "requests.csv")
    assert len(requests) == result["requests"]
    assert {(row["outcome"], row["status"], row["pool"]) for row in requests} == {("ok", "200", "gpu")}
    assert min(float(row["scheduled_at"]) for row in requests) >= result["started_at"] - 1e-3
    assert 2 < min(float(row["latency_ms"]) for row in requests) < 1000

    from rlscaler_loadgen.settings import LoadSettings

    planned = LoadSettings(pattern="spike", duration=5, peak=40, seed=7).arrival_times()
    sent = sorted(float(row["scheduled_at"]) - result["started_at"] for row in requests)
    assert sent == pytest.approx(planned.tolist(), abs=2e-3)


def test_overload_is_seen_because_the_open_loop_does_not_wait(start_service: Start, tmp_path: Path) -> None:
    served = start_service("pod", "--flavour", "cpu", "--mean-ms", "200", "--queue", "6")
    options = ("--pattern", "ramp", "--duration", "5", "--peak", "30", "--slo-ms", "300", "--timeout", "1")
    done = run_load(served.url, tmp_path, *options)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "load.json").read_text())
    assert result["requests"] == result["ok"] + result["late"] + result["failures"]
    assert result["failures"] > 0.3 * result["requests"]
    assert result["p99_ms"] == 1000
    assert result["slo_violation_ratio"] > 0.5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_quickly_with_what_it_has(
    start_service: Start, tmp_path: Path, number: signal.Signals
) -> None:
    served = start_service("pod", "--flavour", "gpu", "--mean-ms", "5")
    process = subprocess.Popen(
        [*LOAD, "run", "--host", served.url, "--out", str(tmp_path), "--duration", "120"], stdout=subprocess.PIPE
    )
    try:
        timeline = tmp_path / "load.csv"
        written = Retrying(
            stop=stop_after_delay(60), wait=wait_fixed(0.05), retry=retry_if_result(lambda rows: rows < 2)
        )
        written(lambda: len(timeline.read_text().splitlines()) if timeline.exists() else 0)
        process.send_signal(number)
        assert process.wait(10) == 130
    finally:
        process.kill()
        process.communicate()
    result = json.loads((tmp_path / "load.json").read_text())
    assert result["interrupted"] is True
    assert 0 < result["duration_s"] < 30
    assert result["requests"] > 0


def test_a_service_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run_load("http://127.0.0.1:9", tmp_path)
    assert done.returncode == 1
    assert "http://127.0.0.1:9/v2/health/live does not answer" in done.stderr
