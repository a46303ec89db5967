"""Each preset against an exposition of its server, scraped by a real Prometheus and read by the operator's queries.

The files in tests/data/presets say in their first line whether they were recorded from the server or made from its
source or documentation. Counters rise by a sixtieth of what the file says each second.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlscaler_core.decision.units import SignalName, UnitName
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.measure import REQUEST_RATE, Readings, load_of, measure, missing_signals, rate_of
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.queries import Window, batch, busy_pods
from rlscaler_operator.sensing.results import Answers, Reading
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import Histogram, histogram_of, histograms, promql
from rlscaler_operator.shadow.service_times import service_times
from tests.harness.scraping import Counters, about, prometheus

WINDOW = Window(8, 1.0, 4)
DATA = Path(__file__).parents[1] / "data" / "presets"
IN_PODS = ("vllm", "sglang", "rayserve", "llamacpp", "tgi", "triton", "torchserve")
AT_THE_DOOR = ("istio", "envoy", "nginx", "traefik")


def pod(deployment: str) -> str:
    return f"{deployment}-7d9c6b8f5d-x7kbp"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    made: list[Counters] = []
    targets: list[tuple[str, dict[str, str]]] = []

    def scrape(name: str, namespace: str, deployment: str, growing: dict[str, float] | None = None) -> None:
        made.append(Counters())
        made[-1].recorded(DATA / f"{name}.txt", growing=growing or {})
        of = {"namespace": namespace, "pod": pod(deployment), "service": "http", "container": "app"}
        targets.append((made[-1].address, of))

    for name in IN_PODS:
        scrape(name, name, "chat-gpu")
    scrape("knative", "knative", "chat-00001-deployment")
    scrape("knative-1.18", "knative-old", "chat-00001-deployment")
    scrape("epp", "epp", "chat-epp")
    scrape("epp-llm-d", "epp-llm-d", "chat-epp")
    for name in AT_THE_DOOR:
        scrape(name, "gateways", f"{name}-proxy")
    scrape("vllm", "both", "chat-gpu")
    scrape("sglang", "both", "chat-cpu")
    scrape("vllm", "two", "chat-gpu")
    scrape("vllm", "two", "chat-cpu", {"vllm:num_requests_waiting": 3.0})
    scrape("vllm", "blind", "chat-gpu", {"vllm:num_requests_waiting": 3.0, "vllm:request_success_total": 0.0})
    idle = ("request_success_total", "prompt_tokens_total", "generation_tokens_total")
    scrape("vllm", "idle", "chat-gpu", {f"vllm:{name}": 0.0 for name in idle})
    scrape("llamacpp", "shop", "chat-gpu")
    scrape("vllm", "shop", "llm")
    own = Counters()
    for pool, held in (("gpu", 7.0), ("cpu", 3.0)):
        of = {"namespace": "own", "service": "chat", "pool": pool}
        own.gauge("inference_requests_in_flight", held, **of)
        own.counter("inference_requests_received_total", 2.0, **of)
    made.append(own)
    targets.append((own.address, {"namespace": "own", "pod": pod("chat-gpu"), "service": "http"}))
    with prometheus(targets) as address:
        yield address
    for one in made:
        one.close()


async def answers_to(url: str, subject: Subject, *names: str, labels: Labels | None = None) -> Answers:
    """The answers once the queries of these names give values over full windows; as they are after a while."""
    client = Prometheus(Access(url), timeout_seconds=10)
    queries = batch([subject], WINDOW, WINDOW, labels or Labels())
    answers = await client.ask(queries)
    try:
        async with asyncio.timeout(25):
            while not all(_settled(answers.get(name)) for name in names):
                await asyncio.sleep(0.5)
                answers = await client.ask(queries)
    except TimeoutError:
        pass
    await client.close()
    return answers


def _settled(answer: object) -> bool:
    readings = list(answer.values()) if isinstance(answer, dict) else []
    return bool(readings) and all(one.known and one.may_lower for one in readings)


async def sensed(url: str, subject: Subject, ready: tuple[int, int] = (1, 0), labels: Labels | None = None) -> Readings:
    names = [f"{subject.counted_by} arrival_rate"] if subject.requests.counts_arrivals else []
    if subject.requests.latency is not None:
        names.append(f"{subject.counted_by} {'latency_buckets' if subject.sums_pools else 'p95_ms'}")
    return measure(await answers_to(url, subject, *names, labels=labels), subject, ready)


def in_pods(preset: str, namespace: str = "", **more: object) -> Subject:
    service = "default" if preset == "rayserve" else "chat"
    return Subject(namespace or preset, service, ("chat-gpu", None), preset=preset, **more)


SUBJECTS = {
    **{name: in_pods(name) for name in IN_PODS},
    "knative": Subject("knative", "chat", ("chat-00001-deployment", None), preset="knative"),
    "knative-1.18": Subject("knative-old", "chat", ("chat-00001-deployment", None), preset="knative"),
    "epp": Subject("epp", "chat", ("chat-gpu", None), preset="epp"),
    "epp-llm-d": Subject("epp-llm-d", "chat", ("chat-gpu", None), preset="epp"),
    **{name: Subject("shop", "chat", ("chat-gpu", None), preset=name) for name in AT_THE_DOOR},
}

RATES = {"vllm": 0.4, "rayserve": 200 / 60, "llamacpp": None} | {
    name: 10.0 for name in SUBJECTS if name not in ("vllm", "rayserve", "llamacpp")
}
"""Arrivals per second; None where the server counts none."""

P95_MS = {
    "sglang": (600, 800),
    "rayserve": (400, 500),
    "vllm": (1000, 1500),
    "tgi": (1000, 2000),
    "knative": (1000, 2500),
    "epp": (1000, 2500),
    "epp-llm-d": (1000, 2500),
    "istio": (500, 1000),
    "envoy": (1000, 2500),
    "nginx": (1000, 2500),
    "traefik": (1200, 5000),
}
"""The bucket of the 95th percentile, in milliseconds; what is not here is not exported."""

GPU_PERCENT = {"vllm": 0.0, "sglang": 42.0, "rayserve": 0.489, "triton": 70.0, "torchserve": 55.0}


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


@pytest.mark.parametrize("name", sorted(name for name in RATES if RATES[name]))
async def test_a_replicas_capacity_is_learned_from_what_is_answered(url: str, name: str) -> None:
    subject = SUBJECTS[name]
    learning = Subject(subject.namespace, subject.service, subject.deployments, learns=True, preset=subject.preset)
    answers = await answers_to(url, learning, f"{subject.preset} answer_rate")
    answered = rate_of(answers, "answer_rate", learning)
    refused = {"istio": 0.9, "envoy": 0.9}.get(name, 1.0)
    assert answered.value == about(RATES[name] * refused)


async def loaded(url: str, subject: Subject, ready: tuple[int, int] = (1, 0)) -> tuple[Readings, Reading]:
    """The readings of a subject whose load is counted in another unit, and how much of the load is done."""
    subject = replace(subject, learns=True)
    names = [f"{subject.preset} {name} {subject.unit}" for name in ("load", "done")]
    if subject.requests.counts_arrivals:
        names.append(f"{subject.counted_by} arrival_rate")
    answers = await answers_to(url, subject, *names)
    return measure(answers, subject, ready), load_of(answers, "done", subject)


TOKENS = {"vllm": (1440 + 1152) / 60, "sglang": 1500.0, "tgi": 1500.0}
"""Tokens of prompts and answers per second."""


@pytest.mark.parametrize("name", TOKENS)
async def test_a_load_is_counted_in_tokens(url: str, name: str) -> None:
    found, done = await loaded(url, replace(SUBJECTS[name], unit="tokens"))
    assert found["arrival_rate"].value == about(TOKENS[name])
    assert found["arrival_rate"].age_seconds < 10
    assert found[REQUEST_RATE].value == about(RATES[name]), "what a request weighs is known"
    assert done.value == about(TOKENS[name]), "from which a replica's capacity is learned"


async def test_tokens_of_requests_that_wait_have_arrived_too(url: str) -> None:
    subject = Subject("two", "chat", ("chat-gpu", "chat-cpu"), preset="vllm", unit="tokens")
    found, done = await loaded(url, subject, (1, 1))
    each = (1440 + 1152) / 24
    assert found["arrival_rate"].pools["gpu"].value == about(43.2)
    assert found["arrival_rate"].pools["cpu"].value == about(43.2 + 3 * each)
    assert found[REQUEST_RATE].value == about(3.8)
    assert done.value == about(2 * 43.2), "only what is worked on is done"


async def test_a_queue_of_unknown_tokens_is_no_small_load(url: str) -> None:
    """Requests wait, and none was over: what waits may be anything, and what is worked on is not all of it."""
    found, done = await loaded(url, Subject("blind", "chat", ("chat-gpu", None), preset="vllm", unit="tokens"))
    assert not found["arrival_rate"].known
    assert "their tokens are not known" in found["arrival_rate"].message
    assert done.value == about(43.2)


async def test_an_idle_server_has_a_load_of_no_tokens(url: str) -> None:
    found, _ = await loaded(url, Subject("idle", "chat", ("chat-gpu", None), preset="vllm", unit="tokens"))
    assert found["arrival_rate"].value == 0.0


EXPOSED_SECONDS = 0.5
"""Mean latency in the expositions that were made: 300 s over 600 requests."""

HELD = {"vllm": (0, 0), "sglang": (12, 12), "rayserve": (0, 0), "llamacpp": (6, 2), "tgi": (12, 9)}
"""Requests that run or wait, and that run."""


@pytest.mark.parametrize("name", HELD)
async def test_a_load_is_counted_in_concurrent_requests(url: str, name: str) -> None:
    found, done = await loaded(url, replace(SUBJECTS[name], unit="concurrency"))
    assert (found["arrival_rate"].value, done.value) == HELD[name]


async def test_the_series_of_this_project_tell_what_each_pool_holds(url: str) -> None:
    subject = Subject("own", "chat", ("chat-gpu", "chat-cpu"), unit="concurrency")
    names = ("load concurrency", "arrival_rate")
    found = measure(await answers_to(url, subject, *names), subject, (1, 1))
    load = found["arrival_rate"]
    assert {pool: one.value for pool, one in load.pools.items()} == {"gpu": 7, "cpu": 3}
    assert (load.value, found[REQUEST_RATE].value) == (10, about(4))


@pytest.mark.parametrize("unit", ["tokens", "concurrency"])
async def test_a_load_without_series_is_unknown(url: str, unit: UnitName) -> None:
    subject = Subject("empty", "chat", ("chat-gpu", None), preset="vllm", unit=unit)
    found = measure(await answers_to(url, subject), subject, (1, 0))
    assert found["arrival_rate"].reason == "SeriesAbsent"
    assert missing_signals(found, (True, False), (1, 0), 60)[0][0] == "arrival_rate"


async def test_a_server_behind_a_front_door_counts_what_it_holds(url: str) -> None:
    subject = Subject("shop", "chat", ("chat-gpu", None), preset="llamacpp", front_door="envoy", unit="concurrency")
    found, _ = await loaded(url, subject)
    assert (found["arrival_rate"].value, round(found[REQUEST_RATE].value)) == (6, 10)


TOKEN_LATENCIES = {
    ("vllm", "ttft"): (1000, 2500),
    ("vllm", "tpot"): (10, 25),
    ("sglang", "ttft"): (100, 200),
    ("sglang", "tpot"): (10, 20),
    ("tgi", "tpot"): (10, 50),
    ("epp", "ttft"): (100, 500),
}
"""The bucket of the 95th percentile, in milliseconds."""


@pytest.mark.parametrize(("name", "signal"), TOKEN_LATENCIES)
async def test_an_objective_on_tokens_is_measured_and_counted(url: str, name: str, signal: SignalName) -> None:
    subject = replace(SUBJECTS[name], signal=signal)
    query = "latency_buckets" if subject.sums_pools else "p95_ms"
    found = measure(await answers_to(url, subject, f"{name} {signal} {query}"), subject, (1, 0))
    low, high = TOKEN_LATENCIES[name, signal]
    assert low < found["p95_latency"].value <= high
    client = Prometheus(Access(url), timeout_seconds=10)
    counted = histogram_of(histograms(await client.instant(promql([subject, SUBJECTS[name]], 8))), subject)
    await client.close()
    assert counted is not None
    assert counted.p95_bucket_ms() == pytest.approx((low, high))
    assert counted.received == about(8 * (RATES[name] or math.nan))
    assert max(counted.within.values()) == pytest.approx(counted.received, rel=0.2), "late requests, not tokens"


async def test_a_server_times_its_tokens_behind_a_front_door_that_counts(url: str) -> None:
    subject = Subject("shop", "chat", ("llm", None), preset="vllm", front_door="envoy", signal="ttft", unit="tokens")
    found, _ = await loaded(url, subject)
    assert found["arrival_rate"].value == about(TOKENS["vllm"])
    assert found[REQUEST_RATE].value == about(10), "of the door"
    assert 1000 < found["p95_latency"].value <= 2500, "of the server"
    client = Prometheus(Access(url), timeout_seconds=10)
    counted = histogram_of(histograms(await client.instant(promql([subject], 8))), subject)
    await client.close()
    assert counted is not None
    assert counted.received == pytest.approx(80, rel=0.2)
    assert counted.late(2.5)[0] > 0.9 * counted.received, "requests that got no token are late"


@pytest.mark.parametrize("signal", ["ttft", "tpot"])
async def test_what_is_not_timed_is_unknown(url: str, signal: SignalName) -> None:
    subject = replace(SUBJECTS["rayserve"], signal=signal)
    found = measure(await answers_to(url, subject), subject, (1, 0))
    assert found["p95_latency"].reason == "NotExported"


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
