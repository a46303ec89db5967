"""A Prometheus that scrapes every preset's exposition, each in a namespace of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.presets import AT_THE_DOOR, DATA, IN_PODS, pod
from tests.harness.scraping import Counters, prometheus


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
