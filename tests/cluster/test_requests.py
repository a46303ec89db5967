"""Usage and requests of the same containers, scraped by a real Prometheus: sidecars, and missing requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlscaler_operator.sensing.measure import measure
from rlscaler_operator.sensing.subject import Subject
from tests.harness.presets import answers_to
from tests.harness.scraping import Counters, about, prometheus

APP, SIDECAR = ("app", 0.2, "container", 1.0), ("proxy", 1.2, "init_container", 1.0)
PODS = {
    "plain": [APP],
    "job": [APP],
    "native": [APP, SIDECAR],
    "ended": [APP, ("setup", 0.0, "", None)],
    "bare": [("app", 1.0, "", None), ("proxy", 0.05, "container", 0.1)],
    "bare-sidecar": [APP, ("proxy", 1.2, "", None)],
    "none": [("app", 1.0, "", None)],
}
"""Containers of the pods of each Deployment: name, cores that it uses, and the series and cores of its request."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    cluster = Counters()
    for deployment, containers in PODS.items():
        pods = [f"{deployment}-7d9c6b8f5d-{end}" for end in ("x7kbp", "b2c4d")]
        for pod in [*pods, f"{deployment}-nightly-x7kbp"]:
            for container, cores, of, request in containers:
                labels = {"namespace": "ns", "pod": pod, "container": container}
                used = cores if pod in pods else 9.0
                cluster.counter("container_cpu_usage_seconds_total", used, **labels)
                if request is not None:
                    cluster.gauge(f"kube_pod_{of}_resource_requests", request, **labels, resource="cpu")
        ended = {"namespace": "ns", "pod": pods[0], "container": "setup"}
        cluster.gauge("kube_pod_init_container_status_terminated", 1.0, **ended)
        cluster.gauge("kube_pod_init_container_status_terminated", 1.0, **ended | {"pod": pods[1]})
    with prometheus([(cluster.address, {"job": "all"})], honor_labels=True) as address:
        yield address
    cluster.close()


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        ("plain", 20.0),
        ("job", 20.0),
        ("native", 70.0),
        ("ended", 20.0),
        ("bare", None),
        ("bare-sidecar", None),
        ("none", None),
    ],
)
async def test_usage_and_requests_are_of_the_same_containers(url: str, deployment: str, expected: float | None) -> None:
    """A native sidecar made 140 %, and an app without a request beside a proxy with one 1,050 %."""
    subject = Subject("ns", "chat", (None, deployment))
    found = measure(await answers_to(url, subject, "cpu_usage"), subject, (0, 2))["cpu_utilization"]
    if expected is None:
        assert found.reason == "RequestMissing"
        assert f"Deployment {deployment}" in found.message
        assert "resources.requests.cpu" in found.message
    else:
        assert found.value == about(expected)
