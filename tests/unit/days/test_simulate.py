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

GPU = {"deployment": "chat-gpu", "maxReplicas": 10, "requestsPerSecond": 20, "startCostSeconds": 0}
CPU = {"deployment": "chat-cpu", "maxReplicas": 10, "requestsPerSecond": 4, "startCostSeconds": 0}


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


def export(folder):
    """A Grafana export of two series, 20 minutes from a Thursday at 18:00 on."""
    rows = [f"2026-03-05 18:{i:02}:00,{40 + 30 * np.sin(i / 3):.3f},{i % 3}" for i in range(20)]
    (folder / "export.csv").write_text("\n".join(['"Time","chat","search"', *rows]) + "\n")
    return folder / "export.csv"


def called(folder, policy, *more, code=0):
    words = ["simulate", policy, "--history", str(export(folder)), "--out", str(folder / "out"), *more]
    answer = CliRunner().invoke(main, [*words, "-o", "json"])
    assert answer.exit_code == code, answer.output
    return answer


@pytest.mark.slow
def test_policy_and_autoscalers_are_played_and_the_guards_counted(tmp_path):
    policy = write(tmp_path / "policy.yaml")
    found = json.loads(called(tmp_path, policy, "--series", "chat").stdout)
    assert found == json.loads((tmp_path / "out" / "simulate.json").read_text())
    assert (tmp_path / "out" / "day.png").stat().st_size > 10_000
    assert [row["contender"] for row in found["rows"]] == ["policy", "hpa", "keda", "kpa", "hindsight"]
    assert found["rows"][0]["label"] == "this policy (ppo)"
    assert all(row["gpu_hours_per_day"] > 0 for row in found["rows"])
    assert all(0 < percent <= 100 for percent in found["guards"].values())
    assert "budget" not in found["guards"]
    assert found["judged_days"] == pytest.approx(20 / 1440), "all of it"
    assert any(note.startswith("a first look: 20 min are no past") for note in found["notes"])
    assert "the load begins on Thursday, 2026-03-05 18:00 UTC" in found["notes"]


@pytest.mark.slow
def test_a_budget_for_a_third_of_the_load_stands_in_the_way_and_the_exit_code_says_so(tmp_path):
    policy = write(tmp_path / "policy.yaml", guards={"budgetPerHour": 5.0})
    found = json.loads(called(tmp_path, policy, "--series", "chat", code=3).stdout)
    assert found["guards"]["budget"] > 10
    assert found["rows"][0]["late_percent"] > found["objective_percent"]
    assert found["rows"][0]["cost_per_month"] <= 1.05 * 5 * 730


def test_a_file_of_several_series_is_refused_with_their_names(tmp_path):
    answer = called(tmp_path, write(tmp_path / "policy.yaml"), code=2)
    assert "export.csv:1: 2 series ('chat', 'search'); name one with --series" in answer.stderr


def test_a_few_minutes_are_refused_with_what_is_needed(tmp_path):
    words = ["simulate", write(tmp_path / "policy.yaml"), "--history", history(tmp_path, np.full(14, 40.0))]
    answer = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "out")])
    assert answer.exit_code == 2
    assert "14 min of history; at least 15 min are needed" in answer.stderr


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
