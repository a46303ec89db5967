"""`rlscaler simulate`: a policy as it is written, beside the HPA as it is, and which guards acted."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from rlscaler_core.api import Spec
from rlscaler_live.cli import main
from rlscaler_rl.baselines.behavior import DEFAULT_SCALE_UP, MIN
from rlscaler_rl.evaluation.days.hpa_file import read_hpas
from rlscaler_rl.evaluation.errors import EvaluationError

from .test_estimate import history

GPU = {"deployment": "chat-gpu", "maxReplicas": 10, "requestsPerSecond": 20}
CPU = {"deployment": "chat-cpu", "maxReplicas": 10, "requestsPerSecond": 4}


def write(path, **spec):
    body = {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {"name": "chat", "namespace": "workloads"},
        "spec": {"targets": {"gpu": GPU, "cpu": CPU}, "slo": {"latencyMilliseconds": 1000}} | spec,
    }
    path.write_text(yaml.safe_dump(body))
    return str(path)


def hpa(deployment="chat-gpu", high=10, **spec):
    target = {"resource": {"name": "cpu", "target": {"averageUtilization": 60}}}
    body = {"scaleTargetRef": {"name": deployment}, "maxReplicas": high, "metrics": [target], **spec}
    return {"kind": "HorizontalPodAutoscaler", "metadata": {"name": deployment}, "spec": body}


def called(tmp_path, policy, *more, code=0):
    rate = 40 + 30 * np.sin(np.arange(121) / 15)
    words = ["simulate", policy, "--history", history(tmp_path, rate), "--out", str(tmp_path / "out"), *more]
    answer = CliRunner().invoke(main, [*words, "-o", "json"])
    assert answer.exit_code == code, answer.output
    return json.loads(answer.stdout)


def test_policy_and_hpa_are_played_and_the_guards_counted(tmp_path):
    found = called(tmp_path, write(tmp_path / "policy.yaml"))
    assert [row["contender"] for row in found["rows"]] == ["policy", "hpa", "keda", "kpa", "hindsight"]
    assert found == json.loads((tmp_path / "out" / "simulate.json").read_text())
    assert found["rows"][0]["label"] == "this policy (rule)"
    assert (tmp_path / "out" / "day.png").stat().st_size > 10_000
    assert all(0 < percent <= 100 for percent in found["guards"].values())
    assert "budget" not in found["guards"]


def test_half_an_hour_of_history_gets_an_answer_that_says_what_it_lacks(tmp_path):
    rate = 40 + 30 * np.sin(np.arange(30) / 5)
    words = ["simulate", write(tmp_path / "policy.yaml"), "--history", history(tmp_path, rate)]
    words += ["--out", str(tmp_path / "out"), "-o", "json"]
    found = json.loads(CliRunner().invoke(main, words).stdout)
    assert found["judged_days"] == pytest.approx(30 / 1440), "all of it"
    assert any(note.startswith("a first look: 30 min are no past") for note in found["notes"])
    assert all(row["gpu_hours_per_day"] > 0 for row in found["rows"])


def test_a_series_of_a_grafana_export_is_played_and_its_last_days_alone_are_judged(tmp_path):
    times = [f"2026-03-05 {18 + i // 60}:{i % 60:02}:00,{40 + i % 7},{i % 3}" for i in range(30)]
    (tmp_path / "export.csv").write_text("\n".join(['"Time","chat","search"', *times]) + "\n")
    words = ["simulate", write(tmp_path / "policy.yaml"), "--history", str(tmp_path / "export.csv"), "--days", "1"]
    words += ["--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 2
    assert "export.csv:1: 2 series ('chat', 'search'); name one with --series" in refused.stderr
    answer = CliRunner().invoke(main, [*words, "--series", "chat"])
    assert answer.exit_code in (0, 3), answer.output
    assert "the load begins on Thursday, 2026-03-05 18:00 UTC" in answer.stdout
    assert "this policy (rule)" in answer.stdout
    assert "Hindsight rule" in answer.stdout


def test_a_few_minutes_are_refused_with_what_is_needed(tmp_path):
    words = ["simulate", write(tmp_path / "policy.yaml"), "--history", history(tmp_path, np.full(14, 40.0))]
    answer = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "out")])
    assert answer.exit_code == 2
    assert "14 min of history; at least 15 min are needed" in answer.stderr


def test_what_the_policy_says_is_what_is_played(tmp_path):
    """A budget for a third of the load: it stands in the way, the objective is missed, and the exit code says so."""
    policy = write(tmp_path / "policy.yaml", guards={"budgetPerHour": 5.0})
    found = called(tmp_path, policy, code=3)
    assert found["guards"]["budget"] > 10
    assert found["rows"][0]["late_percent"] > found["objective_percent"]
    assert found["rows"][0]["cost_per_month"] <= 1.05 * 5 * 730


def read(tmp_path, *bodies):
    path = tmp_path / "hpas.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": list(bodies)}))
    spec = {"targets": {"gpu": GPU, "cpu": CPU}, "slo": {"latencyMilliseconds": 1000}}
    return read_hpas(path, Spec.model_validate(spec, by_alias=True, by_name=False))


def test_an_hpa_is_played_as_it_is(tmp_path):
    down = {
        "stabilizationWindowSeconds": 60,
        "selectPolicy": "Min",
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}],
    }
    found = read(tmp_path, hpa(minReplicas=2, behavior={"scaleDown": down}), {"kind": "Service", "metadata": {}})
    assert found.target == (0.6, 0.8)
    assert found.scaled == (True, False), "a pool without an HPA keeps its replicas"
    assert found.min_replicas == (2, 0)
    assert found.up == DEFAULT_SCALE_UP
    assert (found.down.stabilization_seconds, found.down.select) == (60, MIN)
    assert found.tolerance == 0.1
    assert [(one.kind, one.value, one.period_seconds) for one in found.down.policies] == [("Pods", 1, 30)]


MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"averageUtilization": 70}}}


@pytest.mark.parametrize(
    "spec",
    [
        {"metrics": None, "targetCPUUtilizationPercentage": 60},
        {"metrics": [MEMORY, {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 60}}]},
    ],
)
def test_older_versions_of_an_hpa_and_targets_for_memory_are_understood(tmp_path, spec):
    assert read(tmp_path, hpa(**spec)).target == (0.6, 0.8)


def test_the_tolerance_of_an_hpa_is_played(tmp_path):
    both = {"scaleUp": {"tolerance": "50m"}, "scaleDown": {"tolerance": 0.05}}
    assert read(tmp_path, hpa(behavior=both)).tolerance == 0.05


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ([hpa(metrics=[MEMORY])], "has no averageUtilization of a processor"),
        ([hpa(behavior={"scaleUp": {"tolerance": "5m"}})], "tolerances 0.005 and 0.1.*make them equal"),
        ([hpa("other")], "no HorizontalPodAutoscaler in it scales chat-gpu or chat-cpu"),
        ([hpa(high=8)], "spec.maxReplicas = 8"),
        ([hpa(metrics=[{"type": "External"}])], "has no averageUtilization"),
        (
            [hpa(), hpa("chat-cpu", behavior={"scaleDown": {"stabilizationWindowSeconds": 9}})],
            "differ in spec.behavior",
        ),
    ],
)
def test_an_hpa_that_cannot_be_played_is_refused_with_its_remedy(tmp_path, bodies, said):
    with pytest.raises(EvaluationError, match=said):
        read(tmp_path, *bodies)
