"""Names of series in other releases of servers and gateways, scraped by a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlscaler_operator.sensing.subject import Subject
from tests.harness.presets import pod, sensed
from tests.harness.scraping import Counters, about, prometheus

RAY = {"ray-total": "_total", "ray-plain": ""}
TPOT = {
    "tpot-0.10": "vllm:time_per_output_token_seconds",
    "tpot-0.11": "vllm:inter_token_latency_seconds",
    "tpot-new": "vllm:request_time_per_output_token_seconds",
    "tpot-ray": "ray_vllm_request_time_per_output_token_seconds",
}
TRAEFIK = {
    "ingress": "ingress-chat-80@kubernetes",
    "named": "named-chat-http-web@kubernetes",
    "route": "route-chat-8080@kubernetescrd",
    "gateway-3.1": "gateway-3.1-chat-80@kubernetesgateway",
    "gateway": "gateway-chat-http-80@kubernetesgateway",
}
OTHERS = ("{}-chat-canary-80@kubernetes", "{}-chat-http-80@kubernetes", "{}-chat-canary-http-80@kubernetesgateway")
"""Names of other services that begin alike."""


def histogram(exporter: Counters, name: str, rate: float, **labels: str) -> None:
    for bound, share in (("0.05", 0.0), ("0.1", 1.0), ("+Inf", 1.0)):
        exporter.counter(f"{name}_bucket", rate * share, **labels, le=bound)
    exporter.counter(f"{name}_count", rate, **labels)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    exporters, targets = [], []

    def add(**labels: str) -> Counters:
        exporters.append(Counters())
        targets.append((exporters[-1].address, labels))
        return exporters[-1]

    for namespace, end in RAY.items():
        ray = add(namespace=namespace, pod=pod("chat-gpu"))
        ray.counter(f"ray_serve_num_http_requests{end}", 3.0, application="default", route="/v1")
        ray.counter(f"ray_serve_num_http_requests{end}", 9.0, application="default", route="/-/healthz")
        ray.gauge("ray_serve_replica_processing_queries", 2.0, application="default")
        ray.gauge("ray_serve_deployment_queued_queries", 0.0, application="default")
    for namespace, name in TPOT.items():
        vllm = add(namespace=namespace, pod=pod("chat-gpu"))
        prefix = "ray_vllm_" if name.startswith("ray_") else "vllm:"
        vllm.counter(f"{prefix}request_success_total", 4.0, finished_reason="stop")
        vllm.gauge(f"{prefix}num_requests_running", 4.0)
        vllm.gauge(f"{prefix}num_requests_waiting", 0.0)
        histogram(vllm, name, 8.0)
    door = add(namespace="traefik", pod="traefik-0", service="metrics")
    for namespace, service in TRAEFIK.items():
        for name, rate in ((service, 10.0), *((other.format(namespace), 90.0) for other in OTHERS)):
            door.counter("traefik_service_requests_total", rate, service=name, code="200")
            histogram(door, "traefik_service_request_duration_seconds", rate, service=name)
    with prometheus(targets, honor_labels=True) as address:
        yield address
    for exporter in exporters:
        exporter.close()


@pytest.mark.parametrize("namespace", RAY)
async def test_ray_with_and_without_total(url: str, namespace: str) -> None:
    found = await sensed(url, Subject(namespace, "default", ("chat-gpu", None), preset="rayserve"))
    assert found["arrival_rate"].value == about(3.0)


@pytest.mark.parametrize("namespace", TPOT)
async def test_the_time_per_token_of_vllm_by_all_its_names(url: str, namespace: str) -> None:
    found = await sensed(url, Subject(namespace, "chat", ("chat-gpu", None), preset="vllm", signal="tpot"))
    assert found["arrival_rate"].value == about(4.0)
    assert 50 < found["p95_latency"].value < 100


@pytest.mark.parametrize("namespace", TRAEFIK)
async def test_a_service_of_traefik_by_each_of_its_providers(url: str, namespace: str) -> None:
    found = await sensed(url, Subject(namespace, "chat", ("chat-gpu", None), preset="traefik"))
    assert found["arrival_rate"].value == about(10.0)
    assert 50 < found["p95_latency"].value < 100
