"""Shadow's model of servers that work on several requests at a time, and how it learns how many."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.tables import make_params
from rlscaler_core.queueing.fluid import Running, advance, initial_meter, percentile_ms
from rlscaler_core.queueing.latency import USUAL_SPREAD
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import Histogram, histograms, promql
from rlscaler_operator.shadow.comparison import Comparison
from rlscaler_operator.shadow.evidence import P95_FACTOR
from rlscaler_operator.shadow.service_times import ServiceTimes, service_times
from rlscaler_operator.state.registry import Registry

SLO_MS = 4000.0
SECONDS = 3600.0


def simulated_p95(replicas: int, slots: int, service_seconds: float, rate: float) -> float:
    """The 95th percentile in seconds where each replica takes `slots` requests, by a router to the least busy."""
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(1 / rate, int(rate * SECONDS)))
    works = rng.lognormal(np.log(service_seconds) - USUAL_SPREAD**2 / 2, USUAL_SPREAD, len(arrivals))
    ends: list[list[float]] = [[0.0] * slots for _ in range(replicas)]
    held: list[list[float]] = [[] for _ in range(replicas)]
    taken = []
    for arrival, work in zip(arrivals.tolist(), works.tolist(), strict=True):
        for one in held:
            while one and one[0] <= arrival:
                heapq.heappop(one)
        least = min(range(replicas), key=lambda i: len(held[i]))
        end = max(arrival, heapq.heappop(ends[least])) + work
        heapq.heappush(ends[least], end)
        heapq.heappush(held[least], end)
        taken.append(end - arrival)
    return float(np.quantile(taken, 0.95))


def modelled_p95(replicas: int, rps: float, rate: float, at_once: float) -> float:
    params = make_params(1, present=[[True, False]], requests_per_second=[[rps, 1.0]], slo_ms=SLO_MS)
    ready = np.array([[replicas, 0]], np.int32)
    now, meter = Running(ready, ready, np.array([[1.0, 0.0]])), initial_meter(1)
    for _ in range(60):
        meter = advance(
            params, meter, now, np.array([rate]), np.full(1, 60.0), np.full(1, 60.0), np.full((1, 2), at_once)
        )
    return float(percentile_ms(meter.answered, np.array([SLO_MS]), 95.0)[0]) / 1000


@pytest.mark.parametrize("utilization", [0.3, 0.6, 0.8])
@pytest.mark.parametrize(("replicas", "slots"), [(1, 4), (1, 16), (3, 8)])
def test_the_model_answers_as_servers_of_several_requests_do(replicas: int, slots: int, utilization: float) -> None:
    service = 1.0
    rps = slots / service
    rate = utilization * rps * replicas
    true = simulated_p95(replicas, slots, service, rate)
    assert modelled_p95(replicas, rps, rate, at_once=slots) == pytest.approx(true, rel=0.25)


@pytest.mark.parametrize(("slots", "utilization"), [(8, 0.3), (8, 0.6), (16, 0.8)])
def test_one_at_a_time_it_is_too_quick_for_evidence_to_count(slots: int, utilization: float) -> None:
    rate = utilization * slots
    alone = modelled_p95(1, slots, rate, at_once=1.0)
    assert alone < simulated_p95(1, slots, 1.0, rate) / P95_FACTOR


def test_one_at_a_time_is_the_model_without_knowledge() -> None:
    params = make_params(1, requests_per_second=[[20.0, 4.0]], slo_ms=SLO_MS)
    ready = np.array([[2, 3]], np.int32)
    now, rate, dt = Running(ready, ready, np.array([[0.6, 0.4]])), np.array([35.0]), np.array([30.0])
    plain = advance(params, initial_meter(1), now, rate, dt, dt)
    told = advance(params, initial_meter(1), now, rate, dt, dt, np.ones((1, 2)))
    np.testing.assert_array_equal(plain.answered, told.answered)
    np.testing.assert_array_equal(plain.late, told.late)


WINDOW = 600.0


def measured(
    running: float,
    waiting: float,
    answered: float,
    mean_seconds: float,
    preset: str = "vllm",
    deployment: str = "g",
) -> list[dict[str, object]]:
    """What Prometheus answers of a window: gauges as their means, counters as their growth."""

    def one(value: float, name: str, **labels: str) -> dict[str, object]:
        return {"metric": {"_p": name, "namespace": "ns", "deployment": deployment, **labels}, "value": [0, str(value)]}

    gauges = [one(running, f"{preset} running"), one(waiting, f"{preset} waiting")]
    spent = one(answered * mean_seconds, f"{preset} spent")
    return [*gauges, spent, one(answered, preset, le="+Inf"), one(answered, preset)]


def test_what_of_the_latency_was_waiting_follows_from_the_gauges() -> None:
    subject = Subject("ns", "chat", ("g", None), preset="vllm")
    seconds, _, _ = service_times(histograms(measured(12.0, 6.0, 3600.0, 3.0)), subject, WINDOW)
    assert seconds[0] == pytest.approx(2.0)
    assert np.isnan(seconds[1])


@pytest.mark.parametrize("running", [0.0, 0.05, 3.0])
def test_at_a_low_load_the_histogram_alone_says_it(running: float) -> None:
    """A gauge read twenty times finds nothing running, or by chance ten times what runs on average."""
    subject = Subject("ns", "chat", ("g", None), preset="vllm")
    seconds, _, _ = service_times(histograms(measured(running, 0.0, 60.0, 2.0)), subject, WINDOW)
    assert seconds[0] == pytest.approx(2.0)


def test_each_pool_has_its_own() -> None:
    subject = Subject("ns", "chat", ("g", "c"), preset="vllm")
    found = histograms([*measured(12.0, 0.0, 3600.0, 2.0), *measured(3.0, 0.0, 300.0, 6.0, deployment="c")])
    np.testing.assert_allclose(service_times(found, subject, WINDOW).seconds, [2.0, 6.0])
    only = histograms(measured(12.0, 0.0, 3600.0, 2.0))
    assert np.isnan(service_times(only, subject, WINDOW).seconds[1]), "what is not measured is not known"


@pytest.mark.parametrize("answered", [0.0, 5.0])
def test_few_answers_say_nothing(answered: float) -> None:
    subject = Subject("ns", "chat", ("g", None), preset="vllm")
    assert np.isnan(service_times(histograms(measured(12.0, 0.0, answered, 2.0)), subject, WINDOW)).all()


def test_a_front_door_counts_and_the_server_tells_what_runs() -> None:
    subject = Subject("ns", "chat", (None, "g"), preset="llamacpp", front_door="envoy")
    series = measured(2.0, 0.0, 0.0, 0.0, preset="llamacpp")[:2]
    of_door = {"namespace": "ns", "service": "chat"}
    series.append({"metric": {"_p": "envoy", "le": "+Inf", **of_door}, "value": [0, "1200"]})
    series.append({"metric": {"_p": "envoy spent", **of_door}, "value": [0, "1200000"]})
    seconds, _, _ = service_times(histograms(series), subject, WINDOW)
    np.testing.assert_allclose(seconds, [np.nan, 1.0], err_msg="Envoy counts milliseconds")


@pytest.mark.parametrize(
    "subject",
    [
        Subject("ns", "chat", ("g", None)),
        Subject("ns", "chat", ("g", None), preset="envoy"),
        Subject("ns", "chat", ("g", None), preset="triton"),
        Subject("ns", "chat", ("g", None), preset="vllm", signal="tpot"),
    ],
    ids=["own series", "front door", "no gauge of what runs", "tokens alone"],
)
def test_where_it_is_not_told_it_is_not_asked_for(subject: Subject) -> None:
    assert not any(f' {one}"' in promql([subject], WINDOW) for one in ("running", "waiting", "spent"))
    assert np.isnan(service_times(histograms(measured(12.0, 0.0, 3600.0, 2.0)), subject, WINDOW)).all()


def test_it_is_asked_for_once_for_all_of_a_preset() -> None:
    subjects = [Subject("ns", name, (name, None), preset="vllm") for name in ("a", "b")]
    query = promql(subjects, WINDOW)
    assert query.count('"vllm running"') == 1
    assert "avg_over_time(vllm:num_requests_running" in query
    assert query.count("vllm:e2e_request_latency_seconds_sum") == 4, "with and without labels that a scrape renamed"


@pytest.fixture
def made(policy_body: Callable[..., dict[str, Any]]) -> Comparison:
    return Comparison(Registry().put(policy_body()), "basis", acting=False, stack=1)


def window(made: Comparison, number: int, served: float) -> None:
    """One window of 600 requests of which the model says that all took a second."""
    meter = initial_meter(1)
    meter.requests[:] = meter.answered[:] = 600.0 * number
    meter.answered[:, :10] = 0.0
    made.calibrate(
        meter,
        Histogram(600.0, {0.3: 0.0, 1.0: 600.0}),
        1000.0,
        ServiceTimes(np.array([served, np.nan]), np.full(2, np.nan), np.full(2, np.nan)),
    )


def test_a_window_that_the_model_played_without_knowing_is_not_judged(made: Comparison) -> None:
    window(made, 1, np.nan)
    window(made, 2, 2.0)
    assert made.measured is None
    window(made, 3, 4.0)
    assert made.measured is not None
    assert made.measured.windows == 1
    assert made.times.seconds[0] == 3.0, "half of what was known and half of what is new"
    window(made, 4, np.nan)
    assert made.measured.windows == 2
    assert made.times.seconds[0] == 3.0, "what is not measured leaves what is known"


def test_a_server_that_does_not_tell_is_judged_as_before(made: Comparison) -> None:
    window(made, 1, np.nan)
    window(made, 2, np.nan)
    assert made.measured is not None
    assert made.measured.windows == 1
