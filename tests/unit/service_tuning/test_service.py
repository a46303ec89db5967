"""What a policy says of its service, and what cannot be simulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from rlscaler_core.decision.types import CPU, GPU
from rlscaler_rl.baselines.hpa import Hpa, HpaSettings
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.service_tuning.service import read_policy, service_of
from rlscaler_rl.simulation import episode
from rlscaler_rl.simulation.scenario import from_rate

from .conftest import make_service

EXAMPLES = Path(__file__).parents[3] / "examples"


def policy(tmp_path, change=None) -> Path:
    body = yaml.safe_load((EXAMPLES / "policy.yaml").read_text())
    if change:
        change(body["spec"])
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(body))
    return path


def test_the_policies_that_ship_are_read():
    for name in ("policy.yaml", "policy-full.yaml"):
        found = service_of(read_policy(EXAMPLES / name), 15)
        assert (found.namespace, found.name) == ("workloads", "chat")
        assert found.rps == (20.0, 4.0)
        assert found.capacity == 240
        assert found.price_ratio == 0.25
    assert not found.assumed, "the full policy says everything"


def test_a_start_is_billed_as_the_policy_says(tmp_path):
    def free(spec):
        spec["targets"]["gpu"].update(startCostSeconds=0)

    found = service_of(read_policy(policy(tmp_path, free)), 15)
    assert found.columns()["start_seconds"].tolist() == [0, 30 + 2 * 8]


def test_what_nobody_measured_is_named(tmp_path):
    assumed = read_policy(EXAMPLES / "policy.yaml").assumed
    assert "targets.gpu.coldStartSeconds = 45" in assumed
    assert "targets.cpu.costPerHour = 0.625" in assumed


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda spec: spec["targets"]["cpu"].pop("requestsPerSecond"), r"targets\.cpu\.requestsPerSecond"),
        (lambda spec: spec["targets"]["gpu"].update(minReplicas=11), r"targets\.gpu\.minReplicas"),
        (lambda spec: spec["targets"]["gpu"].update(maxReplicas=201), r"maxReplicas = 201"),
        (lambda spec: spec["slo"].update(latencyMilliseconds=200), r"latencyMilliseconds"),
        (
            lambda spec: (spec.update(guards={"budgetPerHour": 4}), spec["targets"]["gpu"].update(minReplicas=2)),
            r"guards\.budgetPerHour = 4: minReplicas alone cost 5\.625 an hour",
        ),
        (lambda spec: spec.update(intervalSeconds=17), r"intervalSeconds = 17.*set 15"),
        (lambda spec: spec.update(interval=30), r"spec\.interval.*did you mean intervalSeconds"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_object_and_field(tmp_path, change, named):
    with pytest.raises(EvaluationError, match=named) as caught:
        service_of(read_policy(policy(tmp_path, change)), 15)
    assert "workloads/chat" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "named"),
    [(None, "No such file"), ("{", "not YAML"), ("kind: Pod\n", "holds 0"), ("kind: RLScalingPolicy\n---\n" * 2, "2")],
)
def test_a_file_that_holds_no_single_policy_is_refused(tmp_path, content, named):
    path = tmp_path / "given.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(EvaluationError, match=named):
        read_policy(path)


def test_one_pool_is_a_service_too(tmp_path):
    found = service_of(read_policy(policy(tmp_path, lambda spec: spec["targets"].pop("gpu"))), 15)
    columns = found.columns()
    assert columns["present"].tolist() == [False, True]
    assert columns["max_replicas"].tolist() == [0, 10]
    assert found.capacity == 40
    assert min(found.rps) > 0


def test_the_episodes_run_under_the_policys_own_spec(tmp_path):
    def change(spec):
        spec["targets"]["gpu"]["stepSize"] = 3
        spec["guards"] = {"reactiveFloor": False, "targetUtilization": {"gpu": 50}}
        spec["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 90}}

    found = service_of(read_policy(policy(tmp_path, change)), 15)
    made = found.bind(from_rate(np.full((3, 60), 5.0), [1, 2, 3], **found.columns()))
    for params in (made.params(), made.take([2, 0]).params(), type(made).concat([made, made]).params()):
        assert (params.step_size[:, GPU] == 3).all()
        assert not params.reactive_floor.any()
        assert (params.target_utilization[:, [GPU, CPU]] == [0.5, 0.8]).all()
        assert (params.stabilization_seconds[:, 1] == 90).all()


def test_episodes_have_whole_intervals_and_enough_of_them(service):
    assert service.episode_seconds == 600
    assert make_service(interval_seconds=35.0).episode_seconds == 700
    assert make_service(interval_seconds=300.0).episode_seconds == 6000


def test_the_envelope_is_the_service(service):
    envelope = service.envelope(0.1, 7.0)
    assert not envelope.mask(service.params)[0]
    other = service.params.copy()
    other.slo_ms[:] = 1200
    assert envelope.mask(other)[0]


def test_replicas_of_today_must_be_possible(tmp_path):
    with pytest.raises(EvaluationError, match="--replicas 0,0"):
        service_of(read_policy(policy(tmp_path)), 15, (0, 0))
    assert service_of(read_policy(policy(tmp_path)), 15, (2, 3)).replicas == (2, 3)


def test_how_often_prometheus_looks_is_bounded(tmp_path):
    with pytest.raises(EvaluationError, match="--scrape-seconds 60"):
        service_of(read_policy(policy(tmp_path)), 60)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [8.0, np.inf])
def test_nobody_who_is_tried_spends_more_than_the_budget(budget):
    """HPA alone would run both pools at their most; live nothing behind the policy's budget could."""
    # The budget is of the replicas that run; a start is charged to J alone.
    service = make_service(budget_per_hour=np.array([budget]), start_seconds=np.zeros((1, 2)))
    rows = from_rate(np.full((2, 600), 200.0), np.arange(2), 30.0, pattern="full", **service.columns())
    found = episode.run(service.bind(rows), Hpa(HpaSettings(0.3)), level="fluid").result
    assert ((found.cost * service.gpu_cost_per_hour <= 8.0) == np.isfinite(budget)).all()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"capacity": {"unit": "tokens"}, "metrics": {"preset": "vllm"}}, "spec.capacity.unit = tokens"),
        (
            {"slo": {"latencyMilliseconds": 50, "signal": "tpot"}, "metrics": {"preset": "vllm"}},
            "spec.slo.signal = tpot",
        ),
    ],
)
def test_only_requests_are_simulated(tmp_path, change, field):
    def changed(spec):
        spec.update(change)
        for target in spec["targets"].values():
            target.pop("requestsPerSecond")

    with pytest.raises(EvaluationError, match=f"{field}.*in the copy that you give here"):
        service_of(read_policy(policy(tmp_path, changed)), 15)
