"""Which policies' pods are resized in place, and what a policy that goes leaves behind, against a real HTTP server."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.actuation.pod_sizes import NewPodSizes, Sizer
from rlscaler_operator.actuation.resize import Resizer
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.cluster.sized_pods import SizedPods
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry
from tests.unit.operator.test_resize_plan import GI, NOW, pod

TARGET = ("ns", "chat-gpu")
SIZES = {"gpu": PodSize(cpu=2.0, memory=math.nan)}
RANGES = {"cpu": {"min": "500m", "max": "4"}, "memory": {"min": "256Mi", "max": "8Gi"}}
DEPLOYMENT = "/apis/apps/v1/namespaces/ns/deployments/chat-gpu"
RESIZE = "/api/v1/namespaces/ns/pods/chat-1/resize"


class Bench:
    """A policy with one pod, and what is sent to its API server."""

    def __init__(self, server: Any, kube: Kube, body: dict[str, Any]) -> None:
        self.server, self.pods, self._kube, self._body = server, SizedPods(), kube, body
        shards = Shards(kube, Settings())
        shards.leases[0]._deadline = math.inf
        resizer = Resizer(kube, ConcurrencyLimiter(8), self.pods, 2.0, lambda: NOW)
        self.cache = WatchCache()
        self.sizer, self.forbidden = (
            Sizer(kube, shards, self.cache, one, NewPodSizes(kube, ConcurrencyLimiter(8), 2.0), one is not None)
            for one in (resizer, None)
        )
        server.text = json.dumps(pod("chat-1", {"cpu": "2", "memory": "1Gi"}, generation=4, resourceVersion="8"))

    def policy(self, mode: str | None) -> Policy:
        if mode is not None:
            self._body["spec"]["targets"]["gpu"]["resources"] = {"mode": mode, **RANGES}
        return Registry().put(self._body)

    def runs(self, cpu: str, memory: str = "1Gi") -> None:
        self.pods.put(TARGET, pod("chat-1", {"cpu": cpu, "memory": memory}, resourceVersion="7"))

    def template(self, requests: dict[str, str]) -> None:
        containers = [{"name": "serve", "resources": {"requests": requests}}]
        body = {"spec": {"template": {"spec": {"containers": containers}}}}
        self.server.answers[DEPLOYMENT] = json.dumps(body)


@pytest.fixture
async def bench(api_server, policy_body):
    kube = Kube(Configuration(host=api_server.url))
    yield Bench(api_server, kube, policy_body())
    await kube.close()


@pytest.mark.parametrize("mode", [None, "Recommend"])
async def test_nothing_is_resized_where_the_spec_does_not_say_in_place(bench, mode):
    bench.runs("1")
    assert await bench.sizer.apply(bench.policy(mode), SIZES) == ((), (), {})
    assert await bench.sizer.restore(bench.policy(mode), SIZES)
    assert bench.server.paths == []


async def test_in_place_resizes_and_says_which_pool_to_what(bench):
    bench.runs("1")
    done = await bench.sizer.apply(bench.policy("InPlace"), SIZES)
    assert done[:2] == (("gpu chat-gpu: 1 pods to cpu 2000m",), ())
    assert done.resized["gpu"].outcomes == {"Taken": 1}
    assert done.resized["gpu"].asked[:2] == (1.0, GI)
    assert bench.server.paths == [RESIZE]


async def test_a_pool_of_which_no_size_is_known_is_left_alone(bench):
    bench.runs("1")
    for sizes in ({}, {"gpu": PodSize()}):
        assert (await bench.sizer.apply(bench.policy("InPlace"), sizes))[:2] == ((), ())
    assert bench.server.paths == []


async def test_where_the_administrator_has_not_allowed_it_the_policy_says_so(bench):
    bench.runs("1")
    (problem,) = (await bench.forbidden.apply(bench.policy("InPlace"), SIZES)).problems
    assert problem.reason == "ResizeNotAllowed"
    assert "operator.resize" in problem.message
    assert await bench.forbidden.restore(bench.policy("InPlace"), SIZES)
    assert bench.server.paths == []


async def test_pods_get_back_what_their_template_asks_for(bench):
    bench.runs("1")
    bench.template({"cpu": "2", "memory": "1Gi"})
    policy = bench.policy("InPlace")
    assert not await bench.sizer.restore(policy, {}), "the kubelet has not said so yet"
    assert bench.server.paths == [DEPLOYMENT, RESIZE]
    bench.pods.put(TARGET, pod("chat-1", {"cpu": "2", "memory": "1Gi"}, resourceVersion="9"))
    assert await bench.sizer.restore(policy, {})


@pytest.mark.parametrize(("least", "lowered"), [(math.nan, False), (0.5 * GI, True), (2 * GI, False)])
async def test_memory_goes_back_only_as_far_as_the_pods_do_not_need_it(bench, least, lowered):
    bench.runs("2")
    bench.template({"cpu": "2", "memory": "512Mi"})
    over = await bench.sizer.restore(bench.policy("InPlace"), {"gpu": PodSize(least_memory=least)})
    assert (not over) == (RESIZE in bench.server.paths) == lowered


async def test_a_target_that_has_gone_holds_no_policy(bench):
    bench.runs("1")
    bench.server.status = 404
    assert await bench.sizer.restore(bench.policy("InPlace"), {})
    assert bench.server.paths == [DEPLOYMENT]
