"""`rlscaler estimate` on short histories: figures that add up, and histories that are wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_live.cli import main
from rlscaler_loadgen.traces import Trace, write_trace
from rlscaler_rl.evaluation.days import answer
from rlscaler_rl.evaluation.days.judged import remarks
from rlscaler_rl.evaluation.days.service_load import own
from rlscaler_rl.workloads import Part


@pytest.fixture
def quick(monkeypatch):
    """Few settings are tried: what is tested here is not how well the search does."""
    monkeypatch.setattr(answer, "TRIALS", 3)


def history(folder, rate, width: float = 60.0):
    write_trace(folder / "load.csv", Trace(np.asarray(rate, float), width))
    return str(folder / "load.csv")


@pytest.mark.slow
def test_rows_are_ordered_by_cost_within_the_objective_and_the_picture_is_there(tmp_path, quick):
    rate = 30 + 20 * np.sin(np.arange(121) / 15)
    called = ["estimate", "--history", history(tmp_path, rate), "--out", str(tmp_path / "out"), "-o", "json"]
    answer = CliRunner().invoke(main, called)
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert found == json.loads((tmp_path / "out" / "estimate.json").read_text())
    assert (tmp_path / "out" / "day.png").stat().st_size > 10_000
    *rows, hindsight = found["rows"]
    within = [row for row in rows if row["late_percent"] <= found["objective_percent"]]
    assert rows[: len(within)] == sorted(within, key=lambda row: row["cost_per_month"])
    assert {"rule", "ppo", "hpa", "keda", "kpa", "static", "hpa_tuned"} == {row["contender"] for row in rows}
    assert (hindsight["contender"], hindsight["above_hindsight_percent"]) == ("hindsight", None)
    for row in rows:
        assert row["above_hindsight_percent"] == pytest.approx(100 * (row["j"] / hindsight["j"] - 1))
        # A start costs 30 s and two cold starts of 45 and 8 s beside.
        started = (row["gpu_starts_per_day"] * 120 + 0.25 * row["cpu_starts_per_day"] * 46) / 3600
        paid = row["gpu_hours_per_day"] + 0.25 * row["cpu_hours_per_day"] + started
        assert row["cost_per_month"] == pytest.approx(paid / 24 * 2.5 * 730, rel=1e-6)
    assert any("no policy: the example service" in note for note in found["notes"])
    assert any("bins of 60 s" in note for note in found["notes"])
    assert any("the times have no date" in note for note in found["notes"])


def test_the_calendar_of_the_history_is_that_of_the_play(tmp_path):
    """Four days and six hours from a Thursday, 18:00, on: days are cut from the end, and begin at midnight here."""
    thursday = 1_772_733_600.0
    trace = Trace(np.full(102 * 60, 5.0), 60.0, begin=thursday)
    load = own(trace, "load")
    assert load.epoch(0) == thursday + 6 * 3600
    assert load.parts[Part.TEST] == (2, 3)
    assert "the load begins on Thursday, 2026-03-05 18:00 UTC" in remarks(trace, load)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["0,5", "60,5", "180,5", "240,5", "300,5"], "gap: 120 s after the line above"),
        (["0,5", "3600,5", "3600,5", "7200,5"], "this time is there twice"),
        (["0,5", "3600,5", "1800,5", "7200,5"], "before that of the line above"),
        (["0,0", "3600,0", "7200,0", "10800,0"], "every rate is 0"),
        (["0,5", "3600,-4", "7200,5"], "the rate is negative"),
        (["0,5", "60,6"], "at least 2 h are needed"),
    ],
)
def test_a_history_that_cannot_be_believed_is_refused_by_its_line_and_remedy(tmp_path, lines, said):
    path = tmp_path / "load.csv"
    path.write_text("\n".join(["time_s,requests_per_s", *lines]) + "\n")
    answer = CliRunner().invoke(main, ["estimate", "--history", str(path), "--out", str(tmp_path / "out")])
    assert answer.exit_code == 2
    assert said in answer.output
    assert not (tmp_path / "out").exists()


POLICY = """
apiVersion: rlscaler.io/v1alpha1
kind: RLScalingPolicy
metadata: {name: chat, namespace: workloads}
spec:
  targets:
    gpu: {deployment: chat-gpu, maxReplicas: 10, requestsPerSecond: 20}
    cpu: {deployment: chat-cpu, maxReplicas: 10, requestsPerSecond: 4}
  slo: {latencyMilliseconds: 1000}
"""


def test_a_counter_that_was_restarted_is_told_from_a_load(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    counter = np.concatenate([np.arange(200) * 1000.0, np.arange(200) * 1000.0])
    called = ["estimate", "--history", history(tmp_path, counter), "--policy", str(tmp_path / "policy.yaml")]
    answer = CliRunner().invoke(main, called)
    assert answer.exit_code == 2
    assert "it is a counter's raw value; give rate(...) of it" in answer.output


def test_without_a_policy_a_counter_is_told_from_a_load_too(tmp_path):
    """The example service is as large as the load asks for, so that no number looks too large for it."""
    grown = np.cumsum(np.random.default_rng(1).poisson(3000, 5760)).astype(np.float64)
    counter = np.concatenate([grown[:3000], grown[3000:] - grown[3000]])
    answer = CliRunner().invoke(main, ["estimate", "--history", history(tmp_path, counter)])
    assert answer.exit_code == 2
    assert "it is a counter's raw value; give rate(...) of it" in answer.output


def test_one_absurd_bin_is_named_with_its_time():
    rate = np.random.default_rng(1).uniform(40, 60, 4 * 1440)
    trace = Trace(rate, 60.0)
    assert "after the begin" not in " ".join(remarks(trace, own(trace, "load")))
    rate = rate.copy()
    rate[4000] = 1e6
    trace = Trace(rate, 60.0)
    assert "1,000,000 requests/s 66 h 40 min after the begin" in " ".join(remarks(trace, own(trace, "load")))


@pytest.mark.long
def test_hours_of_zeros_between_two_loads_are_played(tmp_path, quick):
    rate = np.concatenate([np.full(480, 20.0), np.zeros(300), np.full(120, 20.0)])
    (tmp_path / "policy.yaml").write_text(POLICY + "  intervalSeconds: 120\n")
    files = ["--policy", str(tmp_path / "policy.yaml"), "--out", str(tmp_path / "out")]
    answer = CliRunner().invoke(main, ["estimate", "--history", history(tmp_path, rate), *files, "-o", "json"])
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert found["judged_days"] == pytest.approx(0.25)
    assert all(0 <= row["late_percent"] <= 100 and row["cost_per_month"] > 0 for row in found["rows"])
