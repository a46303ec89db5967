"""Loads in tokens and concurrent requests and objectives on tokens, of each preset that has them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rlscaler_core.decision.units import SignalName, UnitName
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.measure import REQUEST_RATE, measure, missing_signals
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import histogram_of, histograms, promql
from tests.harness.presets import HELD, RATES, SUBJECTS, TOKENS, answers_to, loaded
from tests.harness.scraping import about


@pytest.mark.parametrize("name", TOKENS)
async def test_a_load_is_counted_in_tokens(url: str, name: str) -> None:
    found = await loaded(url, replace(SUBJECTS[name], unit="tokens"))
    assert found["arrival_rate"].value == about(TOKENS[name])
    assert found["arrival_rate"].age_seconds < 10
    assert found[REQUEST_RATE].value == about(RATES[name]), "what a request weighs is known"


async def test_tokens_of_requests_that_wait_have_arrived_too(url: str) -> None:
    subject = Subject("two", "chat", ("chat-gpu", "chat-cpu"), preset="vllm", unit="tokens")
    found = await loaded(url, subject, (1, 1))
    each = (1440 + 1152) / 24
    assert found["arrival_rate"].pools["gpu"].value == about(43.2)
    assert found["arrival_rate"].pools["cpu"].value == about(43.2 + 3 * each)
    assert found[REQUEST_RATE].value == about(3.8)


async def test_a_queue_of_unknown_tokens_is_no_small_load(url: str) -> None:
    """Requests wait, and none was over: what waits may be anything, and what is worked on is not all of it."""
    found = await loaded(url, Subject("blind", "chat", ("chat-gpu", None), preset="vllm", unit="tokens"))
    assert not found["arrival_rate"].known
    assert "their tokens are not known" in found["arrival_rate"].message


async def test_an_idle_server_has_a_load_of_no_tokens(url: str) -> None:
    found = await loaded(url, Subject("idle", "chat", ("chat-gpu", None), preset="vllm", unit="tokens"))
    assert found["arrival_rate"].value == 0.0


@pytest.mark.parametrize("name", HELD)
async def test_a_load_is_counted_in_concurrent_requests(url: str, name: str) -> None:
    found = await loaded(url, replace(SUBJECTS[name], unit="concurrency"))
    assert found["arrival_rate"].value == HELD[name][0]


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
    found = await loaded(url, subject)
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
    found = await loaded(url, subject)
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
