"""How large pods should be, from Prometheus' answers to status, record and replay, and across a restart."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from rlscaler_core.api import Status, parse
from rlscaler_core.api.exceptions import InvalidPolicy
from rlscaler_core.api.resources import amount
from rlscaler_core.decision.batch import decide_all
from rlscaler_core.vertical.quantities import MIB
from rlscaler_core.vertical.recommend import FEWEST_SAMPLES, MARGIN
from rlscaler_operator.cli.explain.learned import sizes_of
from rlscaler_operator.cli.pages import pod_sizes
from rlscaler_operator.cli.replay.compare import compare
from rlscaler_operator.loop.learn import size_pods
from rlscaler_operator.records.sizing import record_of
from rlscaler_operator.reporting.reporter import _kept_sizes
from rlscaler_operator.sensing.queries import Window, batch, size_name
from rlscaler_operator.sensing.results import Reading, unknown
from rlscaler_operator.state.observed import ObservedObject
from rlscaler_operator.state.policy import Policy

GI = float(1 << 30)
RESOURCES = {
    "container": "serve",
    "cpu": {"min": "250m", "max": "4", "step": "250m"},
    "memory": {"min": "256Mi", "max": "8Gi", "step": "256Mi"},
}


@pytest.fixture
def sized(policy_body):
    """A policy whose GPU pool has a range for its pods."""

    def make(resources=RESOURCES, status=None):
        body = policy_body()
        body["spec"]["targets"]["gpu"]["resources"] = resources
        body["status"] = status or {}
        policy = Policy(("ns", "chat"), "u", ObservedObject())
        body["metadata"].setdefault("namespace", "ns")
        policy.observed.read(body)
        assert policy.observed.parsed is not None, policy.observed.invalid
        policy.key = body["metadata"]["namespace"], body["metadata"]["name"]
        policy.outbox.status = status or {}
        return policy

    return make


def answers(policy, cpu, memory, age=5.0):
    namespace, name = policy.key[0], policy.spec.targets.gpu.object_name
    return {
        size_name("cpu", "serve"): {(namespace, name): Reading(cpu, age)},
        size_name("memory", "serve"): {(namespace, name): Reading(memory, age)},
    }


def played(policy, cpu=1.0, memory=GI, begin=0.0, times=FEWEST_SAMPLES):
    for number in range(times):
        size_pods(policy, answers(policy, cpu, memory), begin + 30.0 * number)
    return policy.decision.sizing.sizes["gpu"]


def test_what_is_used_becomes_a_size_and_the_size_a_status(sized):
    policy = sized()
    size = played(policy)
    assert size.cpu >= MARGIN[0] * 1.0
    assert size.least_memory >= MARGIN[1] * GI
    kept = _kept_sizes(policy, 1000.0)
    shown = kept.to_dict()
    assert shown["gpu"] == {"cpu": "1250m", "memory": "1280Mi"}
    assert "cpu" not in shown, "a pool without a range has no size"
    assert Status(pod_sizes=kept).to_dict()["podSizes"] == shown


def test_a_report_depends_on_the_size_and_not_on_what_is_used(sized):
    policy = sized()
    played(policy)
    before = policy.decision.revision
    size_pods(policy, answers(policy, 1.01, GI), 700.0)
    assert policy.decision.revision == before
    size_pods(policy, answers(policy, 1.0, 4 * GI), 730.0)
    assert policy.decision.revision == before + 1


def test_what_is_not_measured_or_too_old_is_not_known(sized):
    policy = sized()
    size = played(policy)
    limit = policy.spec.metrics.max_age_seconds
    for other in (
        {},
        answers(policy, 9.0, 9 * GI, age=limit + 1),
        {size_name("cpu", "serve"): {("ns", "chat-gpu"): unknown("NotANumber", "no")}},
    ):
        size_pods(policy, other, 5000.0)
        assert np.isnan(policy.decision.sizing.usage.used).all()
        assert policy.decision.sizing.sizes["gpu"][:2] == size[:2]


def test_a_restart_goes_on_with_what_was_seen(sized):
    first = sized()
    size = played(first)
    kept = _kept_sizes(first, 1000.0).to_dict()
    second = sized(status={"podSizes": kept})
    size_pods(second, answers(second, 1.0, GI), 1000.0)
    assert second.decision.sizing.sizes["gpu"][:2] == size[:2]
    damaged = sized(status={"podSizes": {**kept, "seen": "bm9uZQ=="}})
    size_pods(damaged, answers(damaged, 1.0, GI), 1000.0)
    assert math.isnan(damaged.decision.sizing.sizes["gpu"].cpu), "it is seen anew"


def test_without_a_range_nothing_is_asked_and_nothing_is_shown(sized, policy_body):
    policy = sized()
    names = {query.name for query in batch([policy.subject], Window(10, 2.0), Window(60, 15.0))}
    assert {"cpu_size serve", "memory_size serve"} <= names
    body = policy_body()
    plain = Policy(policy.key, "u", ObservedObject())
    plain.observed.read(body)
    assert not {
        name for name in (q.name for q in batch([plain.subject], Window(10, 2.0), Window(60, 15.0))) if "_size" in name
    }
    size_pods(plain, {}, 0.0)
    assert plain.decision.sizing is None
    assert _kept_sizes(plain, 0.0) is None


def test_the_query_is_of_the_container_and_of_the_pod_that_has_most(sized):
    queries = {query.name: query for query in batch([sized().subject], Window(10, 2.0), Window(60, 15.0))}
    cpu = queries["cpu_size serve"]
    assert 'container="serve"' in cpu.promql
    assert "max by (namespace, deployment)" in cpu.promql
    assert "[60s]" in cpu.promql
    assert cpu.window is not None
    only = sized({name: value for name, value in RESOURCES.items() if name != "container"})
    queries = {query.name: query for query in batch([only.subject], Window(10, 2.0), Window(60, 15.0))}
    assert 'container!="POD"' in queries["memory_size"].promql


def test_a_record_replays_exactly_and_another_size_is_a_difference(sized, entry, rule):
    policy = sized()
    played(policy, times=50)
    outcome = decide_all([entry(actor=rule)])[0]
    record = {"sizing": json.loads(json.dumps(record_of(policy.decision.sizing), allow_nan=False))}
    differs = [text for text in compare(record, outcome)[0] if text.startswith("sizing")]
    assert not differs
    record["sizing"]["size"][0][0] += 0.25
    assert [text for text in compare(record, outcome)[0] if text.startswith("sizing.size[0][0]")]
    record["sizing"]["before"] = "bm9uZQ=="
    assert any("another version" in text for text in compare(record, outcome)[0])


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({}, "set cpu, memory or both"),
        ({"cpu": {"min": "2", "max": "1"}}, "lower min or raise max"),
        ({"cpu": {"min": "0", "max": "1"}}, "min must be above 0"),
        ({"memory": {"min": "1Gi", "max": "2Gi", "step": "3Gi"}}, "correct step"),
        ({"memory": {"min": "1GB", "max": "2Gi"}}, "min"),
        ({"cpu": {"min": "1", "max": "2"}, "mode": "Auto"}, "mode"),
        ({"cpu": {"min": "1", "max": "2"}, "controlled": "Both"}, "controlled"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused_by_name(policy_body, resources, said):
    body = policy_body()
    body["spec"]["targets"]["gpu"]["resources"] = resources
    with pytest.raises(InvalidPolicy, match=said):
        parse(body)


def test_quantities_are_read_as_kubernetes_reads_them():
    read = {"500m": 0.5, "2": 2.0, "1.5": 1.5, "1Ki": 1024.0, "2Gi": 2 * GI, "3k": 3000.0, "4M": 4e6, "1E": 1e18}
    assert {one: amount(one) for one in read} == read


def test_a_size_is_shown_as_it_is_written_and_is_within_its_range(sized):
    """A twentieth of 8Gi, and all of a range that ends at 100M, are no whole MiB."""
    assert played(sized({"container": "serve", "memory": {"min": "256Mi", "max": "8Gi"}})).memory == 1229 * MIB
    most = sized({"container": "serve", "memory": {"min": "1M", "max": "100M"}})
    assert played(most, memory=GI).memory == 100e6
    assert _kept_sizes(most, 1000.0).to_dict()["gpu"] == {"memory": "100000000"}


def test_status_and_explain_say_what_pods_should_ask_for(sized, entry, rule):
    policy = sized()
    played(policy)
    sizes = _kept_sizes(policy, 1000.0).to_dict()
    assert pod_sizes({"status": {"podSizes": sizes}}) == {"gpu": "should ask for 1250m cpu, 1280Mi memory"}
    assert pod_sizes({"status": {}}) == {}
    assert sizes_of(record_of(policy.decision.sizing)) == {
        "gpu": "should ask for 1250m cpu (used 1000m), 1280Mi memory (used 1024Mi)"
    }
    little = sized()
    played(little, times=3)
    assert pod_sizes({"status": {"podSizes": _kept_sizes(little, 0.0).to_dict()}}) == {}
    assert "too little" in sizes_of(record_of(little.decision.sizing))["gpu"]
