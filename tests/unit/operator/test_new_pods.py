"""The ConfigMaps that size new pods: when they are written and taken away, against a real HTTP server."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_core.api.resources import PodResources
from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.actuation.new_pods import AGAIN_SECONDS, FIRST_SECONDS, NewPodSizes
from rlscaler_operator.actuation.resize import Resizer
from rlscaler_operator.actuation.size import Sizer
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.events import Reference
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.selectors import as_lines, parse_selector
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.cluster.sized_pods import SizedPods
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.new_pods import config_map
from rlscaler_operator.state.registry import Registry
from tests.unit.operator.test_resize_plan import NOW, pod

TARGET = ("ns", "chat-gpu")
SIZES = {"gpu": PodSize(cpu=2.0, memory=float(1 << 30), least_memory=float(900 << 20))}
PATH = "/api/v1/namespaces/ns/configmaps/rlscaler-chat-gpu"
REFERENCE = Reference("ns", "chat", "uid-1")
RANGED = PodResources.model_validate({"mode": "InPlace", "cpu": {"min": "1", "max": "2"}})


class Bench:
    """A policy in place with one pod that runs with the size, and what is sent to its API server."""

    def __init__(self, server: Any, kube: Kube, body: dict[str, Any]) -> None:
        self.server, self.cache, self.now = server, WatchCache(), 0.0
        self.pods, self.body = SizedPods(), body
        ranges = {"cpu": {"min": "500m", "max": "4"}, "memory": {"min": "256Mi", "max": "8Gi"}}
        body["spec"]["targets"]["gpu"]["resources"] = {"mode": "InPlace", **ranges}
        self.registry = Registry()
        self.policy = self.registry.put(body)
        shards = Shards(kube, Settings())
        shards.leases[0]._deadline = math.inf
        limiter = ConcurrencyLimiter(8)
        resizer = Resizer(kube, limiter, self.pods, 2.0, lambda: NOW)
        self.sizer = Sizer(kube, shards, self.cache, resizer, NewPodSizes(kube, limiter, 2.0, lambda: self.now))
        self.runs("2")

    def runs(self, cpu: str, version: str = "7") -> None:
        self.pods.put(TARGET, pod("chat-1", {"cpu": cpu, "memory": "1Gi"}, resourceVersion=version))

    def refuse(self, status: int, message: str = "") -> None:
        self.server.status, self.server.text = status, json.dumps({"message": message})

    def deployment(self, refused: str = "") -> None:
        conditions = [{"type": "ReplicaFailure", "status": "True", "message": refused}] if refused else []
        body = {"metadata": {"namespace": "ns", "name": "chat-gpu"}, "status": {"conditions": conditions}}
        self.cache.put_deployment(body)

    def written(self) -> list[tuple[str, Any]]:
        """Method and data of the requests about the ConfigMap so far, which are forgotten."""
        about = [
            (method, json.loads(body)["data"] if body else None)
            for path, (method, body) in zip(self.server.paths, self.server.sent, strict=True)
            if path == PATH
        ]
        self.server.paths.clear()
        self.server.sent.clear()
        return about


@pytest.fixture
async def bench(api_server, policy_body):
    kube = Kube(Configuration(host=api_server.url))
    yield Bench(api_server, kube, policy_body())
    await kube.close()


DATA = {"deployment": "chat-gpu", "cpu": "2000m", "memory": "1024Mi", "leastMemory": "900Mi"}


async def test_a_size_is_written_once_a_pod_runs_with_it_and_again_now_and_then(bench):
    bench.runs("1", "8")
    bench.server.text = json.dumps(pod("chat-1", {"cpu": "2", "memory": "1Gi"}, generation=4, resourceVersion="9"))
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.written() == [], "the API server might refuse it for new pods"
    bench.runs("2", "10")
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.written() == [("PATCH", DATA)]
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.written() == []
    bench.now += AGAIN_SECONDS
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.written() == [("PATCH", DATA)]
    bench.runs("1", "11")
    bench.server.text = json.dumps(pod("chat-1", {"cpu": "1", "memory": "1Gi"}, resourceVersion="12"))
    await bench.sizer.apply(bench.policy, {"gpu": PodSize(cpu=4.0)})
    assert bench.written() == [], "what was in force before stays meanwhile"


async def test_it_is_taken_away_once_where_the_policy_does_not_act(bench):
    await bench.sizer.withdraw(bench.policy)
    await bench.sizer.withdraw(bench.policy)
    assert bench.written() == [("DELETE", None)], "another process may have written it"
    await bench.sizer.apply(bench.policy, SIZES)
    await bench.sizer.withdraw(bench.policy)
    assert [method for method, _ in bench.written()] == ["PATCH", "DELETE"]


@pytest.mark.parametrize("others", [["gpu"], []])
async def test_it_is_taken_away_where_something_else_sizes_the_pods_or_no_size_is_known(bench, others):
    await bench.sizer.apply(bench.policy, SIZES)
    assert [method for method, _ in bench.written()] == ["PATCH"]
    await bench.sizer.apply(bench.policy, SIZES if others else {"gpu": PodSize()}, others)
    assert [method for method, _ in bench.written()] == ["DELETE"]


async def test_it_is_taken_away_where_the_policy_sizes_nothing_any_more(bench):
    await bench.sizer.apply(bench.policy, SIZES)
    bench.written()
    del bench.body["spec"]["targets"]["gpu"]["resources"]
    bench.body["metadata"]["generation"] = 2
    await bench.sizer.apply(bench.registry.put(bench.body), {})
    assert [method for method, _ in bench.written()] == ["DELETE"]


async def test_of_a_policy_that_sizes_nothing_nothing_is_asked(api_server, policy_body, bench):
    plain = Registry().put(policy_body("plain"))
    await bench.sizer.withdraw(plain)
    await bench.sizer.apply(plain, {})
    assert api_server.paths == []


async def test_what_is_gone_already_is_taken_for_removed(bench):
    bench.refuse(404)
    await bench.sizer.withdraw(bench.policy)
    await bench.sizer.withdraw(bench.policy)
    assert len(bench.written()) == 1


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (403, 'User "x" cannot patch resource "configmaps" in API group ""', "operator.resizeNewPods"),
        (403, "exceeded quota: small, requested: count/configmaps=1", "correct what it names"),
    ],
)
async def test_a_refusal_is_said_and_asked_again_after_growing_pauses(bench, status, message, said):
    bench.refuse(status, message)
    for _ in range(2):
        (problem,) = (await bench.sizer.apply(bench.policy, SIZES)).problems
        assert problem.reason == "NewPodsNotSized"
        assert message in problem.message
        assert said in problem.message
    assert len(bench.written()) == 2
    assert (await bench.sizer.apply(bench.policy, SIZES)).problems == (problem,), "said all the same"
    assert bench.written() == []
    bench.now += FIRST_SECONDS
    bench.server.status = 200
    assert (await bench.sizer.apply(bench.policy, SIZES)).problems == ()
    assert bench.written() == [("PATCH", DATA)]


async def test_what_may_have_been_written_without_an_answer_is_taken_away(bench):
    await bench.sizer.withdraw(bench.policy)
    bench.refuse(500, "the connection broke")
    await bench.sizer.apply(bench.policy, SIZES)
    bench.server.status = 200
    bench.written()
    await bench.sizer.withdraw(bench.policy)
    assert bench.written() == [("DELETE", None)]


@pytest.mark.parametrize("status", [409, 429, 500])
async def test_what_may_pass_by_itself_is_tried_at_the_next_tick(bench, status):
    bench.refuse(status, "later")
    assert (await bench.sizer.apply(bench.policy, SIZES)).problems == ()
    bench.server.status = 200
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.written() == [("PATCH", DATA), ("PATCH", DATA)]


async def test_pods_that_the_api_server_takes_no_more_begin_as_their_template_says(bench):
    bench.deployment()
    await bench.sizer.apply(bench.policy, SIZES)
    bench.written()
    for again in (False, True):
        bench.deployment('pods "chat-gpu-1-a" is forbidden: exceeded quota: small')
        (problem,) = (await bench.sizer.apply(bench.policy, SIZES)).problems
        assert problem.reason == "NewPodsRefused"
        assert "exceeded quota: small" in problem.message
        assert "chat-gpu-1-a" not in problem.message, "another pod is refused at every attempt"
        assert bench.written() == [("DELETE", None)]
        bench.deployment()
        await bench.sizer.apply(bench.policy, SIZES)
        assert bench.written() == ([] if again else [("PATCH", DATA)])
    bench.now += FIRST_SECONDS
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.written() == [("PATCH", DATA)]


def test_pods_of_other_kinds_are_named_by_their_selector():
    key, selector = ("ns", "statefulset.apps/chat"), parse_selector("app=chat,tier in (b,a),x notin (y),z,!w")
    made = config_map(REFERENCE, "cpu", key, selector, RANGED, PodSize(cpu=0.5))
    assert made is not None
    assert made["data"] == {"labels": "app=chat\ntier=a|b\nx!=y\nz\n!w", "cpu": "500m"}
    assert selector is not None
    assert as_lines(selector).count("\n") == 4
    assert config_map(REFERENCE, "cpu", key, None, RANGED, PodSize(cpu=0.5)) is None, "its pods are not known"


def test_a_config_map_goes_with_its_policy_and_names_the_container():
    one = RANGED.model_copy(update={"container": "serve"})
    made = config_map(REFERENCE, "gpu", TARGET, None, one, PodSize(cpu=0.5, least_memory=1e9))
    assert made is not None
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("RLScalingPolicy", "chat", "uid-1")
    assert made["data"] == {"deployment": "chat-gpu", "container": "serve", "cpu": "500m"}
    assert made["metadata"]["name"] == "rlscaler-uid-1-gpu"
