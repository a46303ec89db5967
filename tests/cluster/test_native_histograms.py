"""Histograms that Prometheus has converted to native ones: there are no buckets and no counts of their own any more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import Histogram, Histograms, histogram_of, histograms, promql
from rlscaler_operator.shadow.service_times import service_times
from tests.harness.presets import pod, sensed
from tests.harness.scraping import Counters, about, prometheus
from tests.harness.waiting import until

SUBJECTS = {
    "own": Subject("own", "chat", ("chat-gpu", None)),
    "vllm": Subject("vllm", "chat", ("chat-gpu", None), preset="vllm"),
    "nginx": Subject("nginx", "chat", ("chat-gpu", None), preset="nginx"),
    "istio": Subject("istio", "chat", ("chat-gpu", None), front_door="istio"),
    "pools": Subject("vllm", "chat", ("chat-gpu", "chat-cpu"), preset="vllm"),
}
HISTOGRAMS = {
    "own": "inference_request_duration_seconds",
    "vllm": "vllm:e2e_request_latency_seconds",
    "nginx": "nginx_ingress_controller_request_duration_seconds",
    "istio": "istio_request_duration_milliseconds",
}
COUNTERS = {
    "own": "inference_requests_received_total",
    "vllm": "vllm:request_success_total",
    "nginx": "nginx_ingress_controller_requests",
    "istio": "istio_requests_total",
}


def ask(url: str, promql: str) -> list[object]:
    found: list[object] = requests.get(f"{url}/api/v1/query", {"query": promql}).json()["data"]["result"]
    return found


def export(exporter: Counters, name: str, rate: float, bounds: tuple[str, str], labels: dict[str, str]) -> None:
    """Let requests be answered between two bounds."""
    low, high = bounds
    exporter.counter(COUNTERS[name], rate, **labels)
    exporter.histogram(HISTOGRAMS[name])
    for bound, share in ((low, 0.0), (high, 1.0), ("+Inf", 1.0)):
        exporter.counter(f"{HISTOGRAMS[name]}_bucket", rate * share, **labels, le=bound)
    exporter.counter(f"{HISTOGRAMS[name]}_sum", rate * (float(low) + float(high)) / 2, **labels)
    exporter.counter(f"{HISTOGRAMS[name]}_count", rate, **labels)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    exporter = Counters()
    for name in ("own", "vllm", "nginx"):
        labels = {"namespace": name, "service": "chat", "pod": pod("chat-gpu")}
        export(exporter, name, 40.0, ("0.25", "0.5"), labels)
    export(exporter, "vllm", 10.0, ("1", "2"), {"namespace": "vllm", "pod": pod("chat-cpu")})
    service = {"destination_service_namespace": "istio", "destination_service_name": "chat"}
    for reporter in ("source", "destination"):
        export(exporter, "istio", 40.0, ("250", "500"), service | {"reporter": reporter})
    for deployment in ("chat-gpu", "chat-cpu"):
        for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
            exporter.gauge(gauge, 1.0, namespace="vllm", pod=pod(deployment))
    with prometheus([(exporter.address, {})], honor_labels=True, native_histograms=True) as address:
        until(lambda: ask(address, HISTOGRAMS["own"]), 20)
        assert not any(ask(address, f"{name}_count") for name in HISTOGRAMS.values())
        yield address
    exporter.close()


@pytest.mark.parametrize("name", SUBJECTS)
async def test_the_latency_and_the_arrivals_are_known(url: str, name: str) -> None:
    pools = name == "pools"
    found = await sensed(url, SUBJECTS[name], ready=(1, int(pools)))
    low, high = (1500, 2000) if pools else (250, 500)
    assert low < found["p95_latency"].value < high
    assert found["arrival_rate"].value == about(50.0 if pools else 40.0)
    assert found["p95_latency"].may_lower


@pytest.mark.parametrize("name", SUBJECTS)
def test_calibration_counts_each_request_once_and_knows_its_time(url: str, name: str) -> None:
    subject, pools = SUBJECTS[name], name == "pools"

    def measured() -> tuple[Histograms, Histogram] | None:
        """The histograms, once they hold what arrived in a whole window."""
        parts = histograms(ask(url, promql([subject], 4)))
        whole = histogram_of(parts, subject)
        here = whole is not None and whole.received == about(200.0 if pools else 160.0) == whole.answered
        return (parts, whole) if whole is not None and here else None

    parts, whole = until(measured, 20)
    assert whole.late(1.0, unanswered=0.0) == pytest.approx((whole.answered / 5 * pools,) * 2, abs=0.5)
    if pools:
        assert service_times(parts, subject, 4).seconds == pytest.approx([0.35, 1.4], rel=0.1)
