"""Loads in tokens and concurrent requests, from the answers of Prometheus to the status."""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime

import numpy as np
import pytest
from rich.console import Console

from rlscaler_core.api import metrics
from rlscaler_core.decision.batch import Outcome, decide_all
from rlscaler_core.decision.tables import make_params
from rlscaler_core.decision.units import SIGNALS, UNITS, LoadUnit
from rlscaler_operator.cli.init.guess import drafted
from rlscaler_operator.cli.pages import detail
from rlscaler_operator.sensing.measure import REQUEST_RATE, may_lower, measure, nothing_measured
from rlscaler_operator.sensing.presets import PRESETS
from rlscaler_operator.sensing.queries import batch, own_name
from rlscaler_operator.sensing.results import NOTHING, Reading, unknown
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import Histogram, histogram_of
from rlscaler_operator.state.findings import Findings, update
from rlscaler_operator.state.registry import Registry
from tests.unit.operator.test_explain import log, run
from tests.unit.operator.test_init import seen
from tests.unit.operator.test_queries import SHORT
from tests.unit.operator.test_shadow import World, latest, service
from tests.unit.operator.test_staleness import World as Loop
from tests.unit.operator.test_staleness import world

__all__ = ["log", "service", "world"]

PODS = ("ns", "chat-gpu")


def names(**more: object) -> set[str]:
    return {query.name for query in batch([Subject("ns", "chat", ("chat-gpu", None), **more)], SHORT, SHORT)}  # type: ignore[arg-type]


def test_the_spec_refuses_what_no_preset_counts_and_nothing_else():
    """The lists in the definition of the resource are those of the table of presets."""
    by = {name: preset for name, preset in PRESETS.items() if name}
    assert {name for name, preset in by.items() if preset.counts_tokens} == set(metrics.COUNT_TOKENS)
    assert {name for name, preset in by.items() if preset.in_flight} == set(metrics.COUNT_RUNNING)
    assert PRESETS[""].in_flight
    assert {name for name, preset in by.items() if preset.ttft} == set(metrics.TIME_FIRST_TOKEN)
    assert {name for name, preset in by.items() if preset.tpot} == set(metrics.TIME_OUTPUT_TOKEN)
    assert all(set(preset.histograms) <= set(SIGNALS) for preset in PRESETS.values())


def test_only_what_a_policy_counts_by_is_asked_for():
    requests = names(preset="vllm")
    assert not {name for name in requests if "tokens" in name or "concurrency" in name or "tpot" in name}
    tokens = names(preset="vllm", unit="tokens", signal="tpot")
    assert {"vllm load tokens", "vllm tpot p95_ms", "vllm arrival_rate"} <= tokens
    assert "vllm p95_ms" not in tokens
    behind = names(preset="vllm", front_door="istio", signal="ttft")
    assert "vllm ttft p95_ms" in behind, "only the server sees its tokens"
    assert not {name for name in behind if name.startswith("istio") and "p95" in name}


def test_policies_of_all_units_and_latencies_share_their_queries():
    subjects = [
        Subject(f"ns-{i}", "chat", ("chat-gpu", None), preset="vllm", unit=UNITS[i % 3], signal=SIGNALS[i % 2])
        for i in range(300)
    ]
    asked = batch(subjects, SHORT, SHORT)
    assert len({query.name for query in asked}) == len(asked) < 20


def test_an_own_query_is_the_load_and_an_own_arrival_rate_the_requests():
    subject = Subject(
        "ns", "chat", ("chat-gpu", None), queries=(("arrivalRate", "r"), ("load", "l")), preset="triton", unit="tokens"
    )
    values = {"arrivalRate": 3.0, "load": 900.0}
    own = {own_name(name, promql): {NOTHING: Reading(values[name], 1.0)} for name, promql in subject.queries}
    found = measure(own, subject, (1, 0))
    assert (found["arrival_rate"].value, found[REQUEST_RATE].value) == (900, 3)
    missing = measure(own | {own_name("load", "l"): {NOTHING: unknown("SeriesAbsent", "none")}}, subject, (1, 0))
    assert not missing["arrival_rate"].known, "3 requests/s are no load of 3 tokens/s"


def test_a_request_rate_that_is_only_beside_the_load_does_not_hold_replicas():
    found = nothing_measured() | {"arrival_rate": Reading(900.0, 1.0), REQUEST_RATE: Reading(3.0, 1.0, may_lower=False)}
    assert may_lower(found, 60.0)
    assert not may_lower(found | {"arrival_rate": Reading(900.0, 1.0, may_lower=False)}, 60.0)


def policy_of(policy_body, unit="tokens", **more):
    body = policy_body()
    body["spec"]["targets"] = {"gpu": {"deployment": "chat-gpu", "maxReplicas": 4, "coldStartSeconds": 30}}
    body["spec"] |= {"capacity": {"unit": unit}, "metrics": {"preset": "vllm"}} | more
    return Registry().put(body)


def test_the_condition_names_unit_and_field():
    found = Findings(capacity_unknown=("gpu",), capacity_fields=("capacity.perReplica.gpu",), unit="tokens")
    (told,) = [one for one in update([], found, 1, datetime.now(UTC))[0] if one.type == "CapacityUnknown"]
    assert told.message.startswith("how many tokens/s a replica of gpu carries is not known yet")
    assert told.message.endswith("set spec.capacity.perReplica.gpu")


EACH = 500.0
"""Tokens of a request."""

IN_TOKENS = {
    "capacity": {"unit": "tokens", "perReplica": {"gpu": 20 * EACH, "cpu": 4 * EACH}},
    "metrics": {"preset": "vllm"},
    "targets": {
        "gpu": {"deployment": "chat-gpu", "maxReplicas": 10, "coldStartSeconds": 45},
        "cpu": {"deployment": "chat-cpu", "maxReplicas": 10, "coldStartSeconds": 8},
    },
}


def evidence(service, requests, rate, hours=1, **spec):
    """The evidence of a service whose load is `rate` in its unit while `requests` requests/s arrive."""
    one = service(replicas=(2, 1), **spec)
    if requests is not None:
        one.policy.decision.readings[REQUEST_RATE] = requests
    shadow = World(one)
    shadow.run(hours * 3600, rate=lambda t: rate)
    return [day.to_dict() for day in latest(shadow, one).evidence]


@pytest.mark.slow
@pytest.mark.parametrize("rate", [30.0, 42.0, 60.0])
def test_evidence_of_a_load_in_tokens_is_that_of_its_requests(service, rate):
    """Costs, requests and late ones: what is late is a request, whatever the load is counted in."""
    plain = evidence(service, None, rate, name="plain")
    tokens = evidence(service, Reading(rate, 0.0), rate * EACH, **IN_TOKENS)
    assert [day.pop("date") for day in plain] == [day.pop("date") for day in tokens] != []
    for one, other in zip(plain, tokens, strict=True):
        assert other == pytest.approx(one, rel=1e-3, abs=1)


@pytest.mark.parametrize("beside", [unknown("SeriesAbsent", "none"), Reading(30.0, 1e4), None])
def test_without_the_requests_nothing_is_compared(service, beside):
    """A load of 15,000 tokens/s is not one of 15,000 requests/s."""
    beside = unknown("NotExported", "none") if beside is None else beside
    (day, *_) = evidence(service, beside, 30.0 * EACH, **IN_TOKENS)
    assert (day["hours"], day["requests"]) == (0, 0)


def test_other_units_and_latencies_begin_other_evidence(service):
    first = service(**IN_TOKENS)
    bases = [latest(World(first), first).basis]
    for change in ({"slo": {"latencyMilliseconds": 1000, "signal": "ttft"}}, {"capacity": {"unit": "concurrency"}}):
        first.edit(**change)
        assert not first.policy.observed.invalid
        bases.append(latest(World(first), first).basis)
    assert len(set(bases)) == 3


def test_tokens_in_time_stand_for_their_share_of_the_requests():
    subject = Subject("ns", "chat", ("chat-gpu", None), preset="sglang", signal="tpot")
    found = {
        ("sglang", *PODS): Histogram(10.0),
        ("sglang tpot", *PODS): Histogram(within={0.01: 900.0, 0.02: 1000.0, math.inf: 1000.0}),
    }
    counted = histogram_of(found, subject)
    assert counted == Histogram(10.0, {0.01: 9.0, 0.02: 10.0, math.inf: 10.0})
    assert counted.late(0.01) == (1.0, 1.0)


async def edited(loop: Loop, **spec: object) -> None:
    body = loop.policy.observed.latest
    metadata = body["metadata"] | {"generation": body["metadata"]["generation"] + 1}
    assert loop.engine.registry.put(body | {"metadata": metadata, "spec": body["spec"] | spec}) is loop.policy
    assert not loop.policy.observed.invalid
    await loop.tick()


async def test_an_edited_unit_begins_anew_and_takes_nothing_over(world):
    """20 requests/s that are remembered would be a load of next to nothing, or 20,000 tokens/s one without end."""
    world.readings["arrival_rate"] = Reading(7.0, 1.0)
    await world.tick()
    assert np.nanmax(world.policy.decision.state.rate_value) == 7.0
    world.policy.outbox.status = world.policy.outbox.status | {"forecaster": "of requests"}
    world.policy.report.forecaster = "of requests"
    world.readings["load concurrency"] = Reading(31.0, 1.0)
    await edited(world, capacity={"unit": "concurrency", "perReplica": {"gpu": 8}})
    state = world.policy.decision.state
    assert np.nanmax(state.rate_value) == np.nanmin(state.rate_value) == 31.0
    status = world.policy.outbox.status
    assert (status["capacity"]["unit"], status["capacity"]["gpu"]) == ("concurrency", 8.0)
    assert status["capacity"]["declared"] == {"gpu": 8.0}
    assert status["forecaster"] != "of requests"
    assert "requestsPerSecond" not in str(status.get("learned"))
    assert b'signal="request_rate"' in world.engine.metrics.render()
    await edited(world, capacity={})
    assert b'signal="request_rate"' not in world.engine.metrics.render(), "nothing is left that is not measured"
    assert b'signal="arrival_rate"' in world.engine.metrics.render()


async def test_what_another_process_learned_of_another_unit_is_not_taken_over(world, caplog):
    """The status says what it is about: text of a forecaster that cannot be read would be complained about."""
    world.policy.decision.state = None
    world.policy.outbox.status = {"capacity": {"unit": "tokens"}, "forecaster": "unreadable"}
    await world.tick()
    assert "forecaster" not in caplog.text
    world.policy.decision.state = None
    world.policy.outbox.status = {"forecaster": "unreadable"}
    await world.tick()
    assert "ns/chat" in caplog.text, "an earlier release counted requests"


def test_explain_names_the_unit(log, entry):
    outcomes: list[Outcome] = decide_all([entry(unit=LoadUnit.TOKENS), entry()])
    path = log(*outcomes)
    assert "gpu 20, cpu 4 tokens/s a replica" in run("0190-0", path).output
    assert "gpu 20, cpu 4 requests/s a replica" in run("0190-1", path).output


def test_status_names_unit_and_latency():
    spec = {"slo": {"latencyMilliseconds": 250, "signal": "ttft"}, "capacity": {"unit": "tokens"}}
    body = {"metadata": {"name": "chat", "namespace": "ns"}, "spec": spec}
    assert "- tokens/s a replica" in page_of(body)
    known = body | {"status": {"capacity": {"unit": "tokens", "gpu": 2500.0}, "latency": {"percentile": 95.0}}}
    assert "gpu 2500 tokens/s a replica" in page_of(known)
    assert "p95 -/250 ms (ttft)" in page_of(known)


def page_of(body):
    console = Console(file=io.StringIO(), width=160)
    console.print(detail(body))
    return console.file.getvalue()


def test_init_says_that_tokens_can_be_counted():
    one = seen()
    one.deployments["chat"]["spec"]["template"]["spec"]["containers"][0]["image"] = "vllm/vllm-openai:v0.32"
    assert "unit: tokens" in drafted(one, two_pools=False).yaml()
    one.deployments["chat"]["spec"]["template"]["spec"]["containers"][0]["image"] = "team/own:1"
    assert "unit: tokens" not in drafted(one, two_pools=False).yaml()


def test_params_of_an_earlier_record_are_of_requests():
    assert make_params(1).unit.tolist() == [LoadUnit.REQUESTS]


def test_weights_are_in_the_query_of_the_load_and_of_policies_that_have_them_alone():
    def load_of(**more: object) -> dict[str, str]:
        subject = Subject("ns", "chat", ("chat-gpu", None), preset="vllm", unit="tokens", **more)  # type: ignore[arg-type]
        return {query.name: query.promql for query in batch([subject], SHORT, SHORT) if "tokens" in query.name}

    plain, weighed = load_of(), load_of(token_weights=(1.0, 2.5))
    assert set(plain) == {"vllm load tokens"}
    assert set(weighed) == {"vllm load tokens 1 2.5"}
    assert "2.5 *" not in plain["vllm load tokens"]
    promql = weighed["vllm load tokens 1 2.5"]
    assert promql.count("(2.5 * ") == promql.count("(1 * ") > 0
    counted = promql.index("generation_tokens_total")
    assert promql.rindex("(2.5 * ", 0, counted) > promql.rindex("(1 * ", 0, counted)
    both = batch(
        [
            Subject(f"n{i}", "c", ("c", None), preset="vllm", unit="tokens", token_weights=(1.0, 1.0 + i))
            for i in (0, 1)
        ],
        SHORT,
        SHORT,
    )
    assert {"vllm load tokens", "vllm load tokens 1 2"} <= {query.name for query in both}


def test_weights_of_another_unit_or_beside_an_own_query_are_refused(policy_body):
    weights = {"tokenWeights": {"answer": 2.5}}
    assert policy_of(policy_body, capacity={"unit": "tokens"} | weights).subject.token_weights == (1.0, 2.5)
    own = {"preset": "vllm", "queries": {"load": "l"}}
    for capacity, metrics_of in (({"unit": "requests"}, {"preset": "vllm"}), ({"unit": "tokens"}, own)):
        refused = policy_of(policy_body, capacity=capacity | weights, metrics=metrics_of)
        assert "tokenWeights are of tokens that a preset counts" in str(refused.observed.invalid)
