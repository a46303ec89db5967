"""Histograms that Prometheus has converted to native ones: there are no buckets and no counts of their own any more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from rlscaler_operator.sensing.subject import Subject
from tests.harness.presets import pod, sensed
from tests.harness.scraping import Counters, about, prometheus
from tests.harness.waiting import until

SUBJECTS = {
    "own": Subject("own", "chat", ("chat-gpu", None)),
    "vllm": Subject("vllm", "chat", ("chat-gpu", None), preset="vllm"),
    "nginx": Subject("nginx", "chat", ("chat-gpu", None), preset="nginx"),
}
HISTOGRAMS = {
    "own": "inference_request_duration_seconds",
    "vllm": "vllm:e2e_request_latency_seconds",
    "nginx": "nginx_ingress_controller_request_duration_seconds",
}
COUNTERS = {
    "own": "inference_requests_received_total",
    "vllm": "vllm:request_success_total",
    "nginx": "nginx_ingress_controller_requests",
}


def ask(url: str, promql: str) -> list[object]:
    found: list[object] = requests.get(f"{url}/api/v1/query", {"query": promql}).json()["data"]["result"]
    return found


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    exporter = Counters()
    for namespace, name in HISTOGRAMS.items():
        labels = {"namespace": namespace, "service": "chat", "pod": pod("chat-gpu")}
        exporter.counter(COUNTERS[namespace], 4.0, **labels)
        exporter.histogram(name)
        for bound, share in (("0.25", 0.0), ("0.5", 1.0), ("+Inf", 1.0)):
            exporter.counter(f"{name}_bucket", 4.0 * share, **labels, le=bound)
        exporter.counter(f"{name}_sum", 1.6, **labels)
        exporter.counter(f"{name}_count", 4.0, **labels)
    for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        exporter.gauge(gauge, 1.0, namespace="vllm", pod=pod("chat-gpu"))
    with prometheus([(exporter.address, {})], honor_labels=True, native_histograms=True) as address:
        until(lambda: ask(address, HISTOGRAMS["own"]), 20)
        assert not any(ask(address, f"{name}_count") for name in HISTOGRAMS.values())
        yield address
    exporter.close()


@pytest.mark.parametrize("namespace", SUBJECTS)
async def test_the_latency_and_the_arrivals_are_known(url: str, namespace: str) -> None:
    found = await sensed(url, SUBJECTS[namespace])
    assert 250 < found["p95_latency"].value < 500
    assert found["arrival_rate"].value == about(4.0)
