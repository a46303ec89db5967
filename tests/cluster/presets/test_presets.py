"""Each preset's requests, latency and utilization, scraped by a real Prometheus and read by the operator's queries."""

from __future__ import annotations

import math

import pytest

from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.measure import measure, missing_signals
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.queries import busy_pods
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import Histogram, histogram_of, histograms, promql
from rlscaler_operator.shadow.service_times import service_times
from tests.harness.presets import AT_THE_DOOR, DATA, HELD, IN_PODS, P95_MS, RATES, SUBJECTS, answers_to, sensed
from tests.harness.scraping import about

GPU_PERCENT = {"vllm": 0.0, "sglang": 42.0, "rayserve": 0.489, "triton": 70.0, "torchserve": 55.0}


EXPOSED_SECONDS = 0.5
"""Mean latency in the expositions that were made: 300 s over 600 requests."""


@pytest.mark.parametrize("name", SUBJECTS)
async def test_arrivals_latency_and_utilization(url: str, name: str) -> None:
    found = await sensed(url, SUBJECTS[name])
    rate, latency = found["arrival_rate"], found["p95_latency"]
    if RATES[name] is None:
        assert (rate.reason, rate.known) == ("NotExported", False)
        assert "spec.metrics.frontDoor or spec.metrics.queries.arrivalRate" in rate.message
    else:
        assert rate.value == about(RATES[name])
        assert rate.age_seconds < 10
    if name in P95_MS:
        low, high = P95_MS[name]
        assert low <= latency.value <= high
    else:
        assert not latency.known
        assert latency.reason in ("NotExported", "SeriesAbsent"), "before 1.19 Knative has no such series"
    if name in GPU_PERCENT:
        assert found["gpu_utilization"].value == pytest.approx(GPU_PERCENT[name], rel=0.01)


@pytest.mark.parametrize("name", sorted(set(P95_MS)))
async def test_evidence_is_counted_from_the_same_series(url: str, name: str) -> None:
    subject = SUBJECTS[name]
    await sensed(url, subject)
    client = Prometheus(Access(url), timeout_seconds=10)
    found = histogram_of(histograms(await client.instant(promql([subject], 8))), subject)
    await client.close()
    assert found is not None
    assert found.received == pytest.approx(8 * (RATES[name] or math.nan), rel=0.2)
    bucket = found.p95_bucket_ms()
    assert bucket is not None
    assert bucket == pytest.approx(P95_MS[name])
    assert found.late(bucket[0] / 1000)[0] > 0


async def test_what_waits_longer_and_longer_has_arrived_too(url: str) -> None:
    subject = Subject("two", "chat", ("chat-gpu", "chat-cpu"), preset="vllm")
    found = await sensed(url, subject, (1, 1))
    rate = found["arrival_rate"]
    assert rate.pools["gpu"].value == about(0.4)
    assert rate.pools["cpu"].value == about(3.4)
    assert rate.value == about(3.8)
    assert found["cpu_utilization"].value == 100, "a replica whose requests wait is full, however empty its cache is"
    assert found["gpu_utilization"].value == 0
    client = Prometheus(Access(url), timeout_seconds=10)
    counted = histogram_of(histograms(await client.instant(promql([subject], 8))), subject)
    await client.close()
    assert counted is not None
    assert counted.received == pytest.approx(8 * 3.8, rel=0.2)


async def test_the_percentile_of_two_pools_is_that_of_their_requests_together(url: str) -> None:
    both = Subject("two", "chat", ("chat-gpu", "chat-cpu"), preset="vllm", percentile=50)
    one = Subject("two", "chat", ("chat-gpu", None), preset="vllm")
    together, alone = (await sensed(url, both, (1, 1)))["p95_latency"], (await sensed(url, one))["p95_latency"]
    assert together.value == pytest.approx(alone.value, rel=0.02), "both pools answer alike"


async def test_a_pool_without_series_leaves_the_arrivals_unknown(url: str) -> None:
    subject = Subject("both", "chat", ("chat-gpu", "chat-cpu"), preset="vllm")
    found = await sensed(url, subject, (1, 1))
    assert found["arrival_rate"].reason == "SeriesAbsent"
    assert "pool cpu" in found["arrival_rate"].message
    alone = await sensed(url, subject, (1, 0))
    assert alone["arrival_rate"].value == about(0.4)


@pytest.mark.parametrize("preset", [*IN_PODS, *AT_THE_DOOR, "knative", "epp"])
async def test_without_series_nothing_is_zero(url: str, preset: str) -> None:
    subject = Subject("empty", "chat", ("chat-gpu", None), preset=preset)
    found = measure(await answers_to(url, subject), subject, (1, 0))
    assert not any(reading.known for reading in found.values())
    assert missing_signals(found, (True, False), (1, 0), 60)[0][0] == "arrival_rate"


async def test_gauges_without_the_counter_are_no_arrivals(url: str) -> None:
    """A counter of another name, as a new version may have, must not leave the growth of what runs as the load."""
    subject = Subject("shop", "chat", ("chat-gpu", None), preset="sglang")
    found = measure(await answers_to(url, subject), subject, (1, 0))
    assert found["arrival_rate"].reason == "SeriesAbsent"


async def test_a_front_door_counts_for_a_server_that_does_not(url: str) -> None:
    subject = Subject("shop", "chat", ("chat-gpu", None), preset="llamacpp", front_door="envoy")
    found = await sensed(url, subject)
    assert found["arrival_rate"].value == about(10)
    assert 1000 <= found["p95_latency"].value <= 2500


async def test_contours_clusters_and_a_routes_backends_are_understood(url: str) -> None:
    contour = Subject("shop", "contour", ("chat-gpu", None), preset="envoy")
    answers = await answers_to(url, contour, "envoy arrival_rate")
    assert measure(answers, contour, (1, 0))["arrival_rate"].value == about(5)
    routed = Subject("shop", "any", ("g", "c"), preset="envoy", backends=("chat", "contour"))
    found = measure(await answers_to(url, routed, "envoy arrival_rate"), routed, (1, 1))["arrival_rate"]
    assert {pool: round(one.value) for pool, one in found.pools.items()} == {"gpu": 10, "cpu": 5}


@pytest.mark.parametrize("preset", ["istio", "envoy", "nginx", "traefik"])
async def test_only_believed_proxies_speak_for_other_namespaces(url: str, preset: str) -> None:
    subject = SUBJECTS[preset]
    refused = await answers_to(url, subject, labels=Labels(exporters=("elsewhere",)))
    assert measure(refused, subject, (1, 0))["arrival_rate"].reason == "SeriesAbsent"
    found = await sensed(url, subject, labels=Labels(exporters=("gateways",)))
    assert found["arrival_rate"].value == about(10)


@pytest.mark.parametrize("name", ["sglang", "tgi"])
async def test_how_long_a_request_is_worked_on_is_known_by_what_runs(url: str, name: str) -> None:
    subject = SUBJECTS[name]
    await sensed(url, subject)
    client = Prometheus(Access(url), timeout_seconds=10)
    found = histograms(await client.instant(promql([subject], 8)))
    await client.close()
    told = service_times(found, subject, 8).seconds
    held, running = HELD[name]
    assert told[0] == pytest.approx(EXPOSED_SECONDS * running / held, rel=0.2), "the rest of the time it waited"
    assert math.isnan(told[1]), "there is no second pool"


async def test_the_idlest_pod_is_told_by_what_the_server_says_is_in_flight(url: str) -> None:
    client = Prometheus(Access(url), timeout_seconds=10)
    series = await client.instant(busy_pods("chat-gpu", preset="sglang"))
    await client.close()
    found = {one["metric"]["namespace"]: float(one["value"][1]) for one in series if one["metric"]["_"] == "in_flight"}
    assert found == {"sglang": 12.0}


def test_each_file_says_where_it_is_from() -> None:
    first = {path.stem: path.read_text().splitlines()[0] for path in DATA.glob("*.txt")}
    assert all(line.startswith(("# Recorded from ", "# Made from ")) for line in first.values())
    assert {name.partition("-")[0] for name in first} >= {subject.preset for subject in SUBJECTS.values()}


def test_a_histogram_of_two_pools_keeps_the_bounds_that_both_have() -> None:
    subject = Subject("ns", "chat", ("g", "c"), preset="vllm")
    found = {("vllm", "ns", "g"): Histogram(4.0, {1.0: 2.0, 2.0: 3.0}), ("vllm", "ns", "c"): Histogram(6.0, {1.0: 5.0})}
    assert histogram_of(found, subject) == Histogram(10.0, {1.0: 7.0})
    assert histogram_of({}, subject) is None
