"""Objectives on the first token and on each further one, from the spec to the counted requests."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rlscaler_core.api import Status
from rlscaler_operator.cli.explain.status_page import status_page
from rlscaler_operator.cli.preflight.series import check_buckets
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.objectives import Objectives
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.measure import measure, shown_latency
from rlscaler_operator.sensing.presets import PRESETS
from rlscaler_operator.sensing.queries import batch
from rlscaler_operator.sensing.results import Reading, unknown
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.calibration import Histogram, histogram_of, promql
from rlscaler_operator.state.registry import Registry
from tests.unit.operator.test_queries import SHORT
from tests.unit.operator.test_staleness import world
from tests.unit.operator.test_units_of_load import edited, page_of

__all__ = ["world"]

PODS = ("ns", "chat-gpu")
SLO = {"latencyMilliseconds": 2500, "signal": "ttft", "timePerOutputTokenMilliseconds": 150}
SUBJECT = Subject("ns", "chat", ("chat-gpu", None), preset="vllm", signal="ttft", token_objectives=(2500.0, 150.0))
NOTHING = unknown("SeriesAbsent", "Prometheus has no series for chat-gpu", 9.0)


@pytest.fixture
def policy(policy_body):
    body = policy_body()
    body["spec"] |= {"slo": SLO, "metrics": {"preset": "vllm"}}
    return Registry().put(body)


def test_the_spec_takes_it_for_the_presets_that_have_both_histograms_and_no_other(policy_body):
    body, accepted = policy_body(), set()
    for preset in filter(None, PRESETS):
        body["spec"] |= {"slo": SLO, "metrics": {"preset": preset}}
        observed = Registry().put(body).observed
        if observed.parsed is None:
            assert "timePerOutputTokenMilliseconds needs histograms of both latencies" in observed.invalid or (
                "signal ttft needs a histogram" in observed.invalid
            )
        else:
            accepted.add(preset)
    assert accepted == {name for name, preset in PRESETS.items() if preset.ttft and preset.tpot} != set()


def test_both_histograms_are_queried_once_for_all_policies(policy):
    assert policy.subject == SUBJECT
    first = replace(SUBJECT, namespace="other", token_objectives=None)
    names = [query.name for query in batch([SUBJECT, first, replace(SUBJECT, percentile=99.0)], SHORT, SHORT)]
    assert len(set(names)) == len(names)
    latencies = [name for name in names if "_ms" in name]
    assert latencies == ["vllm tpot p95_ms", "vllm tpot p99_ms", "vllm ttft p95_ms", "vllm ttft p99_ms"]
    two_pools = batch([replace(SUBJECT, deployments=("chat-gpu", "chat-cpu"))], SHORT, SHORT)
    assert {"vllm tpot latency_buckets", "vllm ttft latency_buckets"} <= {query.name for query in two_pools}
    tpot = {query.name: query.promql for query in batch([SUBJECT, first], SHORT, SHORT)}["vllm tpot p95_ms"]
    assert '"ns"' in tpot
    assert "other" not in tpot, "a policy without the objective needs no second histogram"


@pytest.mark.parametrize("name", PRESETS["vllm"].tpot.metric.split(" or "))
def test_the_second_histogram_is_read_by_all_its_names(name):
    tpot = next(query.promql for query in batch([SUBJECT], SHORT, SHORT) if query.name == "vllm tpot p95_ms")
    assert f"{name}_bucket" in tpot
    assert f"{name}_bucket" in promql([SUBJECT], 600)
    assert f"{name}_bucket" not in promql([replace(SUBJECT, token_objectives=None)], 600)


def latency(ttft: Reading, tpot: Reading) -> Reading:
    answers = {f"vllm {signal} p95_ms": {PODS: each} for signal, each in (("ttft", ttft), ("tpot", tpot))}
    return measure(answers, SUBJECT, (1, 0))["p95_latency"]


@pytest.mark.parametrize(
    ("ttft", "tpot", "worse"), [(2000.0, 90.0, 2000.0), (1000.0, 135.0, 2250.0), (1000.0, 165.0, 2750.0)]
)
def test_the_worse_latency_counts_in_share_of_its_objective(ttft, tpot, worse):
    assert latency(Reading(ttft, 2.0), Reading(tpot, 3.0)).value == pytest.approx(worse)


def test_the_shown_percentile_is_of_the_worse_latency_as_well():
    subject = replace(SUBJECT, percentile=99.0)
    answers = {"vllm ttft p99_ms": {PODS: Reading(1000.0, 1.0)}, "vllm tpot p99_ms": {PODS: Reading(180.0, 1.0)}}
    assert shown_latency(answers, subject, {}).value == pytest.approx(3000.0)


@pytest.mark.parametrize(
    ("ttft", "tpot", "named"),
    [
        (Reading(2000.0, 2.0), NOTHING, "tpot: Prometheus has no series"),
        (Reading(2500.0, 2.0), NOTHING, "tpot: Prometheus has no series"),
        (NOTHING, Reading(120.0, 2.0), "ttft: Prometheus has no series"),
        # Prometheus itself is the trouble, and no single histogram.
        (NOTHING, NOTHING, "Prometheus has no series"),
    ],
)
def test_a_latency_within_its_objective_does_not_stand_for_one_that_is_unknown(ttft, tpot, named):
    reading = latency(ttft, tpot)
    assert math.isnan(reading.value)
    assert (reading.reason, reading.age_seconds) == ("SeriesAbsent", 9.0)
    assert reading.message.startswith(named)


@pytest.mark.parametrize(
    ("ttft", "tpot", "worse"),
    [(Reading(2600.0, 2.0), NOTHING, 2600.0), (NOTHING, Reading(165.0, 2.0), 2750.0)],
)
def test_a_latency_above_its_objective_raises_replicas_whatever_the_other_is_and_lowers_none(ttft, tpot, worse):
    reading = latency(ttft, tpot)
    assert reading.value == pytest.approx(worse)
    assert (reading.age_seconds, reading.may_lower) == (2.0, False)


def test_in_time_by_both_is_as_old_as_the_older_one_and_in_doubt_where_one_is():
    reading = latency(Reading(2000.0, 2.0), Reading(90.0, 70.0))
    assert (reading.age_seconds, reading.may_lower) == (70.0, True)
    assert not latency(Reading(2000.0, 2.0), Reading(90.0, 2.0, may_lower=False)).may_lower
    # Beyond its objective the age of the other one is no doubt about it.
    assert latency(Reading(2600.0, 2.0), Reading(90.0, 70.0)).age_seconds == 2.0
    assert latency(Reading(2600.0, 2.0), Reading(900.0, 500.0)).value == 2600.0, "overload now, not of then"


def counts(received: float, ttft: dict[float, float], tpot: dict[float, float], preset: str = "vllm") -> dict:
    """Histograms of a window: counts within bounds in seconds."""
    measured = {(preset, *PODS): Histogram(received)}
    for signal, within in (("ttft", ttft), ("tpot", tpot)):
        if within:
            measured[(f"{preset} {signal}", *PODS)] = Histogram(within=within)
    return measured


TTFT = {1.0: 80.0, 2.5: 96.0, math.inf: 100.0}


@pytest.mark.parametrize(
    ("tpot", "late"),
    [
        # Half of the requests are still at work: shares count, and not counts.
        ({0.1: 30.0, 0.15: 40.0, math.inf: 50.0}, (20.0, 20.0)),
        ({0.1: 30.0, 0.15: 49.5, math.inf: 50.0}, (4.0, 4.0)),
        # No bound at its objective: as many as it allows.
        ({0.1: 30.0, 0.2: 45.0, math.inf: 50.0}, (10.0, 40.0)),
    ],
)
def test_late_is_the_larger_of_both_shares(tpot, late):
    histogram = histogram_of(counts(100.0, TTFT, tpot), SUBJECT)
    assert histogram.late(2.5) == pytest.approx(late)


def test_tokens_stand_for_the_requests_of_the_first_latency():
    measured = counts(100.0, TTFT, {0.15: 900.0, math.inf: 1000.0}, "sglang")
    assert histogram_of(measured, replace(SUBJECT, preset="sglang")).late(2.5) == pytest.approx((10.0, 10.0))


def test_the_bucket_of_the_percentile_is_that_of_the_worse_latency():
    slow = histogram_of(counts(100.0, TTFT, {0.15: 40.0, 0.3: 50.0, math.inf: 50.0}), SUBJECT)
    assert slow.p95_bucket_ms() == pytest.approx((2500.0, 5000.0))
    fast = histogram_of(counts(100.0, TTFT, {0.06: 50.0, 0.15: 50.0, math.inf: 50.0}), SUBJECT)
    assert fast.p95_bucket_ms() == pytest.approx((1000.0, 2500.0))


@given(st.integers(1, 200), st.floats(0.5, 5.0), st.floats(0.03, 0.3), st.integers(0, 100))
def test_no_more_are_counted_as_late_than_miss_either_and_no_fewer_than_miss_one(n, ttft, tpot, seed):
    rng = np.random.default_rng(seed)
    first, token = rng.exponential(ttft, n), rng.exponential(tpot, n)
    within = [
        {objective: float((times <= objective).sum()), math.inf: float(n)}
        for times, objective in ((first, 2.5), (token, 0.15))
    ]
    late = histogram_of(counts(float(n), *within), SUBJECT).late(2.5)
    assert late[0] == pytest.approx(late[1])
    assert late[0] == pytest.approx(max((first > 2.5).sum(), (token > 0.15).sum()))
    assert late[0] <= ((first > 2.5) | (token > 0.15)).sum() + 1e-6


@pytest.mark.parametrize("tpot", [{}, {0.15: 0.0, math.inf: 0.0}], ids=["no such series", "no request was over"])
def test_without_the_second_histogram_no_request_counts_as_in_time(policy, tpot):
    measured, metrics = counts(100.0, TTFT, tpot), Metrics()
    assert histogram_of(measured, SUBJECT).late(2.5) is None
    assert histogram_of(measured, SUBJECT).p95_bucket_ms() is None
    objectives = Objectives(Settings(metrics_port=0), metrics)
    objectives.count(policy, measured)
    assert policy.late.windows == []
    objectives.count(policy, counts(100.0, TTFT, {0.15: 40.0, math.inf: 50.0}))
    assert policy.late.windows == [(100.0, pytest.approx(20.0), 2500)]


def test_requests_that_never_got_a_token_are_late_by_the_first_histogram_alone():
    nothing = dict.fromkeys(TTFT, 0.0)
    assert histogram_of(counts(30.0, nothing, {}), SUBJECT).late(2.5) == (30.0, 30.0)


async def troubles(policy, tpot: dict[str, str]) -> dict[str, str]:
    """Return the checks of the buckets by their subject, in a window with first tokens and some times per token."""

    async def instant(access, query):
        bounds = [("vllm ttft", le, count) for le, count in (("2.5", "96"), ("+Inf", "100"))]
        bounds += [("vllm tpot", le, count) for le, count in tpot.items()]
        labels = {"namespace": "ns", "deployment": "chat-gpu"}
        return [{"metric": {"_p": name, "le": le, **labels}, "value": [0, count]} for name, le, count in bounds]

    sensing = SimpleNamespace(labels=lambda access: Labels(), sources=SimpleNamespace(instant=instant))
    look = SimpleNamespace(policy=policy, access=None, context=SimpleNamespace(engine=SimpleNamespace(sensing=sensing)))
    return {check.about: f"{check.title}: {check.trouble}" for check in await check_buckets(look)}


async def test_preflight_names_the_histogram_without_a_bucket_at_its_objective(policy):
    fine = await troubles(policy, {"0.15": "40", "+Inf": "50"})
    assert fine == {
        "buckets": "the ttft latency histogram has a bucket at the objective: 2.5 s: ",
        "buckets-tpot": "the tpot latency histogram has a bucket at the objective: 0.15 s: ",
    }
    between = (await troubles(policy, {"0.1": "30", "0.18": "45", "+Inf": "50"}))["buckets-tpot"]
    assert between.startswith("the tpot latency histogram")
    assert "0.15 s lies between its bounds 0.1 and 0.18 s" in between
    assert between.endswith("set spec.slo.timePerOutputTokenMilliseconds to 180")
    beyond = (await troubles(policy, {"0.1": "30", "+Inf": "50"}))["buckets-tpot"]
    assert "its largest bound is 0.1 s and spec.slo.timePerOutputTokenMilliseconds is 0.15 s" in beyond
    renamed = await troubles(policy, {})
    assert "no histogram grew in the last 10 minutes" in renamed["buckets-tpot"]
    assert renamed["buckets"] == fine["buckets"]


async def test_an_edited_objective_takes_no_count_over_and_keeps_what_does_not_depend_on_it(world):
    await edited(world, metrics={"preset": "vllm"}, slo={"latencyMilliseconds": 2500, "signal": "ttft"})
    for token_ms in (150, 100):
        known = np.isfinite(world.policy.decision.state.rate_value).sum()
        world.policy.late.windows.append((1000.0, 400.0, 2500))
        await edited(world, slo=SLO | {"timePerOutputTokenMilliseconds": token_ms})
        state = world.policy.decision.state
        assert world.policy.late.windows == []
        assert (state.counted_requests[0], state.counted_late[0]) == (0, 0)
        assert np.isnan(state.counted_time[0])
        assert np.isfinite(state.rate_value).sum() == known + 1 > 1
    world.policy.late.windows.append((1000.0, 400.0, 2500))
    await world.tick()
    assert world.policy.decision.state.counted_late[0] == 400, "without an edit the count is taken"


@pytest.mark.parametrize(("token_ms", "requests"), [(150, 1000.0), (100, 0.0), (None, 0.0)])
async def test_another_process_goes_on_from_a_count_of_the_same_objectives_alone(world, token_ms, requests):
    counted = {"objective": 99, "priceFactor": 1.0, "requests": 1000.0, "late": 4.0, "latencyMilliseconds": 2500}
    counted |= {"signal": "ttft", "time": "2026-01-01T00:00:00Z", "timePerOutputTokenMilliseconds": token_ms}
    await edited(world, metrics={"preset": "vllm"}, slo=SLO)
    world.policy.decision.state = None
    world.policy.outbox.status = Status.model_validate({"slo": counted}).to_dict()
    await world.tick()
    assert np.nan_to_num(world.policy.decision.state.counted_requests[0]) == requests


async def test_the_status_has_the_objective_of_the_count_and_no_count_of_another(world):
    await edited(world, metrics={"preset": "vllm"}, slo=SLO)
    world.policy.late.windows.append((1000.0, 4.0, 2500))
    await world.tick()
    await edited(world, slo=SLO | {"percentile": 99})
    assert world.policy.outbox.status["slo"]["timePerOutputTokenMilliseconds"] == 150
    await edited(world, slo=SLO | {"timePerOutputTokenMilliseconds": 100})
    assert "slo" not in world.policy.outbox.status


def test_status_and_explain_name_both_objectives():
    observation = {"p95Latency": {"value": 2750.0, "state": "KNOWN"}}
    last = {"id": "0-0", "time": "2026-01-01T00:00:00Z", "base": {"gpu": 1}, "desired": {"gpu": 2}}
    status = {"latency": {"percentile": 95, "milliseconds": 2750}, "observation": observation, "lastDecision": last}
    body = {"metadata": {"name": "chat", "namespace": "ns"}, "spec": {"slo": SLO}, "status": status}
    assert "p95 2750/2500 ms (ttft, tpot of 150 ms as 2500)" in page_of(body)
    console = Console(file=io.StringIO(), width=160)
    console.print(status_page(body))
    assert "ms (ttft, tpot of 150 ms as 2500)" in console.file.getvalue()
