"""The demo as its users run it: a real control plane, operator, service and Locust in processes of their own."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rlscaler_dev.cluster.api import down
from rlscaler_dev.cluster.paths import cluster_dir
from rlscaler_dev.cluster.processes import strays
from rlscaler_dev.demo.leftovers import journal_of
from tests.unit.demo.records_fixture import KEYS

NAME = f"pytest-demo-{os.getpid()}"
DEADLINE_SECONDS = 240
QUICK = f"--policy rule --interval 10 --gpu-cold-start 2-3 --cpu-cold-start 0.5-1 --cluster-name {NAME}"
LOGS = ("load-hpa", "load-rlscaler", "operator", "service-hpa", "service-rlscaler")


def demo(out: Path, *options: str) -> subprocess.Popen[str]:
    """Start `rlscaler demo`; its output is a pipe."""
    command = [sys.executable, "-m", "rlscaler_live.cli", "demo", "--out", str(out), *QUICK.split(), *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """The output up to the line that holds `text`; fails when the output ends without it."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return "".join(seen)
    pytest.fail(f"{text!r} was not said:\n{''.join(seen)}")


def finish(process: subprocess.Popen[str]) -> str:
    """The rest of the output, when the process has ended."""
    output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    return output


def left_running() -> list[psutil.Process]:
    """Processes of the demo and of its cluster."""
    of_cluster = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(cluster_dir(NAME)) in argument for argument in process.info["cmdline"] or [])
    ]
    return [*strays(journal_of(NAME)), *of_cluster]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    remains = left_running()
    for process in remains:
        process.kill()
    down(NAME)
    journal_of(NAME).with_suffix(".lock").unlink(missing_ok=True)
    assert remains == []


def test_a_demo_scales_the_service_and_cleans_up_after_one_that_was_killed(tmp_path: Path) -> None:
    with demo(tmp_path / "killed", "--duration", "60") as killed:
        read_until(killed, "two copies of one service")
        killed.kill()
    assert left_running()

    out = tmp_path / "out"
    with demo(out, "--duration", "60") as process:
        assert "of a demo that was killed" in read_until(process, "two copies of one service")
        output = finish(process)
    assert process.returncode == 0, output

    summary = json.loads((out / "summary.json").read_text())
    assert summary["sentence"] in output
    assert "its memory is restored from the policy's status" in output
    assert "rlscaler ui --kubeconfig" in output
    for name, copy in summary["copies"].items():
        assert list(copy) == KEYS
        assert copy["requests"] > 300
        assert copy["goodput_rps"] > 0
        assert copy["gpu_replica_seconds"] + copy["cpu_replica_seconds"] > 2 * 59
        with (out / f"timeline-{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 60
        assert float(rows[-1]["cost"]) == pytest.approx(copy["cost"], abs=1e-4)
    policy = summary["copies"]["rlscaler"]
    assert policy["unknown_observations"] == 0
    assert policy["scale_ups"] > 0
    assert policy["decisions"] >= 2
    assert abs(policy["requests"] - summary["copies"]["hpa"]["requests"]) < 0.1 * policy["requests"]
    assert (out / "timeline.png").stat().st_size > 50_000
    replay = [sys.executable, "-m", "rlscaler_live.cli", "replay", "-o", "json", str(out)]
    replayed = subprocess.run(replay, capture_output=True, text=True, check=False)
    assert replayed.returncode == 0, replayed.stderr
    tally = json.loads(replayed.stdout)
    assert tally["same"] == tally["decisions"] >= policy["decisions"]
    assert {path.name for path in (out / "logs").iterdir()} == {f"{name}.log" for name in LOGS}


@pytest.mark.parametrize(
    ("number", "step"),
    [pytest.param(signal.SIGINT, "load: daily", marks=pytest.mark.long), (signal.SIGTERM, "a pod starts in")],
)
def test_an_interrupted_demo_stops_everything_and_says_so(tmp_path: Path, number: signal.Signals, step: str) -> None:
    out = tmp_path / "out"
    with demo(out, "--duration", "300") as process:
        read_until(process, step)
        began = time.monotonic()
        process.send_signal(number)
        output = finish(process)
    assert process.returncode == 128 + number, output
    assert "everything is stopped" in output
    assert time.monotonic() - began < 120, "it would last five minutes"
    assert left_running() == []
    assert not (out / "summary.json").exists()
