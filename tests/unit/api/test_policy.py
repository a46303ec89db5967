"""Parsing at the edge: what is accepted, what is filled in, and how a refusal reads."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest
import yaml

from rlscaler_core.api import InvalidPolicy, parse

ROOT = Path(__file__).parents[3]
REFUSED = yaml.safe_load((ROOT / "tests/data/refused_policies.yaml").read_text())


def test_shortest_policy_gets_every_default(body):
    spec = parse(body()).spec
    assert (spec.mode, spec.interval_seconds, spec.sense_seconds) == ("Shadow", 15, 5)
    assert spec.targets.gpu.min_replicas == 1
    assert (spec.targets.gpu.cost_per_hour, spec.targets.cpu.cost_per_hour) == (2.5, 0.625)
    assert (spec.slo.objective, spec.slo.percentile) == (99, 95)
    assert spec.bundled_policy == "ppo"
    assert spec.metrics.max_age_seconds == 60
    assert (spec.fallback.behavior, spec.fallback.failure_threshold) == ("forecastRule", 3)
    assert (spec.guards.target_utilization.gpu, spec.guards.reactive_floor) == (80, True)
    assert (spec.guards.ceiling, spec.guards.ceiling_seconds) == (True, 600)
    assert (spec.promotion.require, spec.promotion.min_days, spec.restore_on_delete) == ("None", 7, False)


@pytest.mark.parametrize(("largest", "step"), [(1, 1), (10, 1), (11, 2), (100, 10), (101, 11)])
def test_step_size_is_a_tenth_of_the_range_rounded_up(body, largest, step):
    assert parse(body({"targets.gpu.maxReplicas": largest})).spec.targets.gpu.step == step


def test_service_is_the_policys_name_unless_it_is_set(body):
    assert parse(body()).service == "chat"
    assert parse(body({"metrics.service": "chat-v2"})).service == "chat-v2"


def test_backend_is_the_deployments_name_unless_it_is_set(body):
    assert parse(body()).spec.backend("gpu") is None
    spec = parse(body({"placement.httpRoute": {"name": "chat", "cpuBackend": "slow"}})).spec
    assert (spec.backend("gpu"), spec.backend("cpu")) == ("chat-gpu", "slow")


def test_a_model_of_ones_own_replaces_the_bundled_one(body):
    assert parse(body({"policy.path": "chat.json"})).spec.bundled_policy is None


def test_consumers_of_a_stream_may_have_a_network_of_ones_own(body):
    stream = {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["orders"], "group": "billing"}}
    own = {"configMap": {"name": "billing-policy", "key": "manifest.json"}}
    assert parse(body({"targets.cpu": None, "signal": stream, "policy": own})).spec.bundled_policy is None
    assert parse(body({"targets.cpu": None, "signal": stream})).spec.bundled_policy == "rule"


def test_views_and_tuples_are_read_like_plain_objects(body):
    view = body()
    view["spec"]["targets"] = MappingProxyType(view["spec"]["targets"])
    assert parse(MappingProxyType(view)) == parse(body())


def test_refused_with_field_and_remedy(body):
    failures = []
    for case, wrong in REFUSED.items():
        with pytest.raises(InvalidPolicy) as caught:
            parse(body(wrong["set"]))
        problems = {problem.field: problem.message for problem in caught.value.problems}
        named = any(field.startswith(wrong["field"]) for field in problems)
        told = wrong["message"].lower() in " ".join(problems.values()).lower()
        if not (named and told and "workloads/chat" in str(caught.value)):
            failures.append((case, problems))
    assert not failures


def test_every_wrong_field_is_named_at_once(body):
    with pytest.raises(InvalidPolicy) as caught:
        parse(body({"targets.gpu.minReplicas": 12, "targets.gpu.stepSize": 20, "intervalSeconds": 1}))
    assert {problem.field for problem in caught.value.problems} == {
        "spec.targets.gpu.minReplicas",
        "spec.targets.gpu.stepSize",
        "spec.intervalSeconds",
    }


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("targets.gpu.maxreplicas", "did you mean maxReplicas?"),
        ("behaviour", "did you mean behavior?"),
        ("guards.targetUtilization.tpu", "did you mean"),
        ("targets.tpu_pool", "remove it"),
        ("colour", "remove it"),
    ],
)
def test_unknown_field_is_refused_with_a_suggestion(body, path, hint):
    with pytest.raises(InvalidPolicy) as caught:
        parse(body({path: 1}))
    (problem,) = caught.value.problems
    assert problem.field == f"spec.{path}"
    assert hint in problem.message


def test_snake_case_is_not_a_second_spelling(body):
    with pytest.raises(InvalidPolicy, match="interval_seconds"):
        parse(body({"interval_seconds": 20}))


def test_bare_off_is_explained(body):
    with pytest.raises(InvalidPolicy, match="quote Off in YAML"):
        parse(body({"mode": False}))


def test_no_spec_is_refused(body):
    policy = body()
    del policy["spec"]
    with pytest.raises(InvalidPolicy, match="spec: required"):
        parse(policy)


def test_unreadable_status_is_dropped_and_the_rest_kept(body, caplog):
    policy = body()
    policy["status"] = {"observedGeneration": 3, "history": "soon", "later": True}
    status = parse(policy).status
    assert (status.observed_generation, status.history) == (3, [])
    assert "history" in caplog.text


@pytest.mark.parametrize("example", ["policy.yaml", "policy-full.yaml"])
def test_examples_are_valid(example):
    assert parse(yaml.safe_load((ROOT / "examples" / example).read_text())).spec.mode == "Auto"
