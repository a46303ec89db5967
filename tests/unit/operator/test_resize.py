"""Rounds of resizing against a real HTTP server: what is sent, and what is remembered of a refusal."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.actuation.resize import Resizer
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.cluster.sized_pods import SizedPods
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.pod_sizes import FIRST_SECONDS, Failures
from tests.unit.operator.test_resize_plan import NOW, pod

TARGET = ("ns", "chat-gpu")
WISH = PodSize(cpu=2.0)


class Bench:
    """A pool of pods, an API server, and rounds at a time of its own."""

    def __init__(self, server: Any, kube: Kube) -> None:
        self.server, self.now, self.failures, self.pods = server, NOW, Failures(), SizedPods()
        self.lease = Shards(kube, Settings()).leases[0]
        self.lease._deadline = math.inf
        self._resizer = Resizer(ConcurrencyLimiter(8), self.pods, lambda: self.now)

    def refuse(self, status: int, message: str) -> None:
        self.server.status, self.server.text = status, json.dumps({"message": message})

    def put(self, version: str = "7", **more: Any) -> None:
        self.pods.put(TARGET, pod("chat-1", {"cpu": "1"}, resourceVersion=version, **more))

    async def round(self, wish: PodSize = WISH) -> tuple[Any, int]:
        """One round, and how many requests it sent."""
        before = self.server.asked
        return await self._resizer.resize(self.lease, TARGET, wish, None, self.failures), self.server.asked - before


@pytest.fixture
def bench(api_server, kube):
    api_server.text = json.dumps(pod("chat-1", {"cpu": "2"}, generation=4, resourceVersion="8"))
    one = Bench(api_server, kube)
    one.put()
    return one


async def test_the_subresource_is_patched_once_and_the_answer_is_known_before_the_watch_reports_it(bench):
    resized, sent = await bench.round()
    assert (resized.patched, resized.unsettled, resized.problems, sent) == (("chat-1",), 1, (), 1)
    assert bench.server.paths == ["/api/v1/namespaces/ns/pods/chat-1/resize"]
    bench.put(version="7")
    assert (await bench.round())[1] == 0, "an older state from the watch changes nothing"
    bench.pods.put(TARGET, pod("chat-1", {"cpu": "2"}, generation=4, observed=4, resourceVersion="9"))
    resized, sent = await bench.round()
    assert (resized.unsettled, sent) == (0, 0)


@pytest.mark.parametrize(
    ("status", "message", "reason", "remedy"),
    [
        (403, 'pods "chat-1" is forbidden: exceeded quota: small, requested: requests.cpu=1', "OverQuota", "Quota"),
        (403, 'pods "chat-1" is forbidden: maximum cpu usage per Container is 1', "OutOfLimitRange", "LimitRange"),
        (403, 'User "x" cannot patch resource "pods/resize" in API group ""', "Forbidden", "rbac-optional.yaml"),
        (422, 'Pod "chat-1" is invalid: spec: what only this server knows', "Refused", "Recommend"),
        (404, "the server could not find the requested resource", "Refused", "Recommend"),
    ],
)
async def test_a_refusal_names_pod_and_remedy_and_is_asked_again_after_growing_pauses(
    bench, status, message, reason, remedy
):
    bench.refuse(status, message)
    (problem,) = (await bench.round())[0].problems
    assert problem.reason == f"Resize{reason}"
    assert "chat-1" in problem.message
    assert remedy in problem.message
    await bench.round()
    for pause in (FIRST_SECONDS, 2 * FIRST_SECONDS):
        bench.now += pause - 1
        resized, sent = await bench.round()
        assert (resized.problems, sent) == ((problem,), 0), "said all the same"
        bench.now += 1
        assert (await bench.round())[1] == 1


async def test_a_node_that_is_too_small_is_the_matter_of_its_pod_alone(bench):
    why = "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000"
    bench.refuse(403, f'pods "chat-1" is forbidden: {why}')
    (problem,) = (await bench.round())[0].problems
    assert problem.reason == "ResizeInfeasible"
    assert "chat-1" in problem.message
    assert "larger nodes" in problem.message
    await bench.round()
    resized, sent = await bench.round()
    assert (resized.problems, sent) == ((problem,), 0), "this pod waits"
    bench.pods.put(TARGET, pod("chat-2", {"cpu": "1"}, resourceVersion="7"))
    assert (await bench.round())[1] == 1, "another one, on a larger node, does not"


async def test_a_size_that_is_not_the_refused_one_is_tried_at_once(bench):
    bench.refuse(403, "exceeded quota: small")
    await bench.round()
    await bench.round()
    assert (await bench.round())[1] == 0
    bench.server.status, bench.server.text = 200, json.dumps(pod("chat-1", {"cpu": "1500m"}, resourceVersion="8"))
    resized, sent = await bench.round(PodSize(cpu=1.5))
    assert (resized.problems, sent) == ((), 1)


@pytest.mark.parametrize("status", [500, 429, 409])
async def test_what_may_pass_by_itself_is_tried_at_the_next_round(bench, status):
    bench.refuse(status, "later")
    resized, sent = await bench.round()
    assert (resized.patched, resized.problems, sent) == ((), (), 1)
    bench.server.status = 200
    bench.server.text = json.dumps(pod("chat-1", {"cpu": "2"}, generation=4, resourceVersion="8"))
    assert (await bench.round())[0].patched == ("chat-1",)


async def test_a_pod_that_has_gone_is_forgotten(bench):
    bench.refuse(404, 'pods "chat-1" not found')
    assert (await bench.round())[0].problems == ()
    resized, sent = await bench.round()
    assert (resized.unsettled, sent) == (0, 0)


async def test_nothing_is_sent_without_the_lease(bench):
    bench.lease._deadline = -math.inf
    resized, sent = await bench.round()
    assert (resized.patched, resized.unsettled, sent) == ((), 1, 0)


async def test_what_was_taken_back_is_said_until_the_pod_has_the_size_or_goes(bench):
    small = {"requests": {"cpu": "1"}}
    bench.pods.put(TARGET, pod("chat-1", {"cpu": "2"}, pending=("Infeasible", NOW), runs=small, resourceVersion="8"))
    bench.server.text = json.dumps(pod("chat-1", {"cpu": "1"}, generation=5, resourceVersion="9"))
    resized, sent = await bench.round()
    assert ([one.reason for one in resized.problems], sent) == (["ResizeInfeasible"], 1)
    bench.pods.put(TARGET, pod("chat-1", {"cpu": "2"}, resourceVersion="10"))
    assert (await bench.round())[0].problems == ()


async def test_a_container_that_asks_for_nothing_is_left_alone_and_said(bench):
    bench.pods.put(TARGET, pod("chat-1", {}, resourceVersion="8"))
    resized, sent = await bench.round()
    assert ([one.reason for one in resized.problems], sent) == (["ResizeWithoutRequest"], 0)


async def test_a_pod_with_several_containers_is_left_alone_until_one_is_named(bench):
    side = {"name": "proxy", "resources": {"requests": {"cpu": "100m"}}}
    bench.put(version="8", extra=[side])
    resized, sent = await bench.round()
    assert ([one.reason for one in resized.problems], sent) == (["ResizeContainerUnknown"], 0)


async def test_a_pod_that_starts_counts_as_one_that_is_not_ready(bench):
    restarts = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    bench.put(version="8", policies=restarts)
    starting = pod("chat-2", {"cpu": "1"}, resourceVersion="8")
    starting["status"] = {"phase": "Pending"}
    bench.pods.put(TARGET, starting)
    assert (await bench.round())[1] == 0
    bench.pods.drop(TARGET, "chat-2")
    assert (await bench.round())[1] == 1
