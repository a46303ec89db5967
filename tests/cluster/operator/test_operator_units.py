"""A server of a model whose requests stay as many and grow long: a real operator scales by its tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from rlscaler_core.decision.units import LoadUnit
from rlscaler_dev.exposition import ExpositionServer
from rlscaler_operator.records.rows import decode_params, decode_samples

REQUESTS = 10.0
"""Requests/s, always."""

CARRIED = 5000.0
"""Tokens/s of one replica."""


class Server:
    """One pod of vLLM, with 10 requests/s of so many tokens `each`; nothing is exported while it is `gone`."""

    def __init__(self, namespace: str, pod: str) -> None:
        self.each, self.gone = 100.0, False
        self._labels = f'namespace="{namespace}",pod="{pod}",engine="0"'
        self._requests = self._tokens = 0.0
        self._at = time.time()
        self._server = ExpositionServer(self._text)
        self.address, self.close = self._server.address, self._server.close

    def _text(self) -> str:
        now = time.time()
        self._requests += REQUESTS * (now - self._at)
        self._tokens += REQUESTS * self.each * (now - self._at)
        self._at = now
        return "" if self.gone else "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield f'vllm:request_success_total{{{self._labels},finished_reason="stop"}} {self._requests}'
        yield f"vllm:prompt_tokens_total{{{self._labels}}} {self._tokens * 3 / 4}"
        yield f"vllm:generation_tokens_total{{{self._labels}}} {self._tokens / 4}"
        yield f"vllm:num_requests_running{{{self._labels}}} 8"
        yield f"vllm:num_requests_waiting{{{self._labels}}} 0"
        yield f"vllm:kv_cache_usage_perc{{{self._labels}}} 0.3"
        for le in ("0.25", "0.5", "+Inf"):
            yield f'vllm:time_to_first_token_seconds_bucket{{{self._labels},le="{le}"}} {self._requests}'
        yield f"vllm:time_to_first_token_seconds_count{{{self._labels}}} {self._requests}"


@pytest.fixture(scope="module")
def server(cluster: Any, world: Any) -> Iterator[Server]:
    one = Server(world.namespace, "llm-7d9c6b8f5d-x7kbp")
    cluster.add_scrape_target("units", one.address)
    yield one
    one.close()


def policy(world: Any, name: str, **spec: Any) -> None:
    targets = {"gpu": {"deployment": name, "maxReplicas": 10, "coldStartSeconds": 20}}
    world.policy(name, targets=targets, **{"metrics": {"preset": "vllm"}, **spec})


def test_long_requests_take_more_replicas_than_short_ones(
    operator: Any, world: Any, server: Server, wait: Any, stays: Any
) -> None:
    def replicas() -> int:
        return int(world.get("deployments", "llm")["spec"]["replicas"])

    def load_is(tokens: float) -> bool:
        (*_, last) = [None, *operator.decisions("llm")]
        if last is None:
            return False
        assert decode_params(last["params"]).unit[0] == LoadUnit.TOKENS
        return bool(decode_samples(last["samples"]).arrival_rate[0] == pytest.approx(tokens, rel=0.1))

    world.deployment("llm", "gpu")
    in_tokens = {"unit": "tokens", "perReplica": {"gpu": CARRIED}}
    policy(world, "llm", capacity=in_tokens, slo={"latencyMilliseconds": 500, "signal": "ttft"})
    wait(lambda: world.condition("llm", "Ready")[0] == "True", 60)
    wait(lambda: load_is(1000.0), 60)
    assert replicas() == 1
    server.each = 2000.0
    wait(lambda: replicas() >= 20_000 / (0.8 * CARRIED), 60)
    wait(lambda: load_is(20_000.0), 60)
    status = world.get("rlscalingpolicies", "llm")["status"]
    assert status["capacity"]["unit"] == "tokens"
    assert status["capacity"]["declared"] == {"gpu": CARRIED}
    assert status["latency"]["milliseconds"] < 300
    server.gone = True
    wait(lambda: world.condition("llm", "Ready")[0] == "False", 120)
    held = replicas()
    stays(lambda: replicas() >= held, True, 5)


def test_a_network_that_was_trained_for_requests_leaves_tokens_to_its_rule(
    operator: Any, world: Any, server: Server, wait: Any
) -> None:
    server.gone, server.each = False, 100.0
    world.delete("rlscalingpolicies", "llm")
    targets = {"gpu": {"deployment": "llm", "maxReplicas": 10, "coldStartSeconds": 20}}
    capacity = {"unit": "tokens", "perReplica": {"gpu": CARRIED}}
    world.policy("network", targets=targets, policy={"bundled": "ppo"}, capacity=capacity, metrics={"preset": "vllm"})

    def reasons() -> list[str]:
        status = world.get("rlscalingpolicies", "network").get("status", {})
        return status.get("lastDecision", {}).get("reasons", [])

    wait(lambda: "OutOfEnvelope" in reasons(), 90)
    assert world.condition("network", "Fallback")[1] != "OutOfEnvelope", "its rule has no envelope"
    world.patch("rlscalingpolicies", "network", {"spec": {"capacity": None}})
    wait(lambda: world.condition("network", "CapacityUnknown")[0] == "True", 60)
    status = world.get("rlscalingpolicies", "network")["status"]
    assert status["capacity"]["unit"] == "requests"
    assert "gpu" not in status["capacity"], "5,000 tokens/s are not 5,000 requests/s"
