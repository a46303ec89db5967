"""Resizing pods in place, and the sizes of new pods in a policy's status, against a real HTTP server."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from rlscaler_core.api.new_pods import NewPodSize
from rlscaler_core.api.resources import PodResources
from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.actuation.pod_sizes import FIRST_SECONDS, NewPodSizes, Sizer
from rlscaler_operator.actuation.resize import Resizer
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.selectors import parse_selector
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.cluster.sized_pods import SizedPods
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.pod_sizes import new_pod_size
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.status import merge_patch
from tests.unit.operator.test_resize_plan import GI, NOW, pod

TARGET = ("ns", "chat-gpu")
SIZES = {"gpu": PodSize(cpu=2.0, memory=float(1 << 30), least_memory=float(900 << 20))}
CPU = {"gpu": PodSize(cpu=2.0, memory=math.nan)}
SIZE = {"deployment": "chat-gpu", "cpu": "2000m", "memory": "1024Mi", "leastMemory": "900Mi"}
DEPLOYMENT = "/apis/apps/v1/namespaces/ns/deployments/chat-gpu"
RESIZE = "/api/v1/namespaces/ns/pods/chat-1/resize"
PATH = "/apis/rlscaler.io/v1alpha1/namespaces/ns/rlscalingpolicies/chat/status"
OBJECT = f"{PATH}?fieldManager=rlscaler"
RANGED = PodResources.model_validate({"mode": "InPlace", "cpu": {"min": "1", "max": "2"}})


class Bench:
    """A policy in place with one pod that runs with the size, and what is sent to its API server."""

    def __init__(self, server: Any, kube: Kube, body: dict[str, Any]) -> None:
        self.server, self.cache, self.now = server, WatchCache(), 0.0
        self.pods, self.body = SizedPods(), body
        ranges = {"cpu": {"min": "500m", "max": "4"}, "memory": {"min": "256Mi", "max": "8Gi"}}
        body["spec"]["targets"]["gpu"]["resources"] = {"mode": "InPlace", **ranges}
        server.objects[OBJECT] = {}
        self.registry = Registry()
        self.policy = self.registry.put(body)
        shards = Shards(kube, Settings())
        shards.leases[0]._deadline = math.inf
        limiter = ConcurrencyLimiter(8)
        resizer = Resizer(limiter, self.pods, lambda: NOW)
        new_pods = NewPodSizes(limiter, lambda: self.now)
        self.sizer = Sizer(kube, shards, self.cache, resizer, new_pods, sizes_new=True)
        self.forbidden = Sizer(kube, shards, self.cache, None, new_pods, sizes_new=False)
        self.others = [Sizer(kube, shards, self.cache, resizer, new_pods, sizes_new=False), self.forbidden]
        self.runs("2")

    def template(self, requests: dict[str, str]) -> None:
        containers = [{"name": "serve", "resources": {"requests": requests}}]
        body = {"spec": {"template": {"spec": {"containers": containers}}}}
        self.server.answers[DEPLOYMENT] = json.dumps(body)

    def runs(self, cpu: str, version: str = "7") -> None:
        self.pods.put(TARGET, pod("chat-1", {"cpu": cpu, "memory": "1Gi"}, resourceVersion=version))

    def refuse(self, status: int, message: str = "") -> None:
        self.server.status, self.server.text = status, json.dumps({"message": message})

    def deployment(self, refused: str = "") -> None:
        conditions = [{"type": "ReplicaFailure", "status": "True", "message": refused}] if refused else []
        body = {"metadata": {"namespace": "ns", "name": "chat-gpu"}, "status": {"conditions": conditions}}
        self.cache.put_deployment(body)

    def seen(self, new_pods: dict[str, Any]) -> None:
        """The watch shows this in the status."""
        self.body["status"] = self.server.objects[OBJECT]["status"] = {"newPods": new_pods}
        self.policy = self.registry.put(self.body)

    @property
    def there(self) -> dict[str, Any]:
        """What the status says on the API server."""
        return self.server.objects[OBJECT].get("status", {}).get("newPods", {})

    def written(self) -> int:
        """The number of writes of the status so far, which are forgotten."""
        number = self.server.paths.count(PATH)
        self.server.paths.clear()
        self.server.sent.clear()
        return number


@pytest.fixture
def bench(api_server, kube, policy_body):
    return Bench(api_server, kube, policy_body())


async def test_a_size_is_written_once_a_pod_runs_with_it(bench):
    bench.runs("1", "8")
    bench.server.text = json.dumps(pod("chat-1", {"cpu": "2", "memory": "1Gi"}, generation=4, resourceVersion="9"))
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.written() == 0, "the API server might refuse it for new pods"
    bench.runs("2", "10")
    await bench.sizer.apply(bench.policy, SIZES)
    await bench.sizer.apply(bench.policy, SIZES)
    assert (bench.written(), bench.there) == (1, {"gpu": SIZE})
    bench.runs("1", "11")
    bench.server.text = json.dumps(pod("chat-1", {"cpu": "1", "memory": "1Gi"}, resourceVersion="12"))
    await bench.sizer.apply(bench.policy, {"gpu": PodSize(cpu=4.0)})
    assert (bench.written(), bench.there) == (0, {"gpu": SIZE}), "what was in force before stays meanwhile"
    await bench.sizer.apply(bench.policy, {})
    assert bench.written() == 0, "so it does while no size is decided, as after a start"


async def test_what_another_writer_changed_is_put_right(bench):
    await bench.sizer.apply(bench.policy, SIZES)
    bench.seen({"gpu": SIZE | {"container": "other", "cpu": "9"}, "cpu": {"deployment": "chat-cpu", "cpu": "1"}})
    bench.written()
    await bench.sizer.apply(bench.policy, SIZES)
    assert (bench.written(), bench.there) == (1, {"gpu": SIZE})


async def test_what_was_seen_late_is_written_over_and_not_taken_for_a_definition_without_the_field(bench):
    """Another writer has removed all sizes from the status, and the watch has not reported that yet."""
    resources = {"mode": "InPlace", "cpu": {"min": "1", "max": "4"}}
    bench.body["spec"]["targets"]["cpu"] = {"deployment": "chat-cpu", "maxReplicas": 4, "resources": resources}
    bench.body["metadata"]["generation"] = 2
    other = {"deployment": "chat-cpu", "cpu": "1000m"}
    bench.seen({"gpu": SIZE | {"cpu": "1000m"}, "cpu": other})
    bench.server.objects[OBJECT] = {}
    assert (await bench.sizer.apply(bench.policy, SIZES)).problems == ()
    assert bench.there == {"gpu": SIZE, "cpu": other}


@pytest.mark.parametrize("former", [{"deployment": "chat-old"}, {"container": "old"}, {"labels": ["app=chat"]}])
async def test_the_size_of_a_target_or_container_that_is_not_named_any_more_goes_at_once(bench, former):
    bench.seen({"gpu": SIZE | former})
    bench.runs("1", "8")
    bench.server.text = json.dumps(pod("chat-1", {"cpu": "2", "memory": "1Gi"}, generation=4, resourceVersion="9"))
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.there == {}


async def test_a_size_is_taken_away_at_once_where_writing_it_was_refused(bench):
    bench.seen({"gpu": SIZE | {"cpu": "1000m"}})
    bench.refuse(403, "not this size")
    for _ in range(2):
        assert (await bench.sizer.apply(bench.policy, SIZES)).problems
    assert (await bench.sizer.withdraw(bench.policy))[0].reason == "NewPodsNotSized", (
        "said also of one that does not act"
    )
    bench.server.status = 200
    assert await bench.sizer.withdraw(bench.policy) == []
    assert bench.there == {}


async def test_it_is_taken_away_once_where_the_policy_does_not_act(bench):
    await bench.sizer.withdraw(bench.policy)
    assert bench.written() == 0, "there is nothing"
    await bench.sizer.apply(bench.policy, SIZES)
    await bench.sizer.withdraw(bench.policy)
    await bench.sizer.withdraw(bench.policy)
    assert (bench.written(), bench.there) == (2, {})


async def test_what_an_operator_before_left_is_taken_away(bench):
    bench.seen({"gpu": SIZE})
    await bench.sizer.withdraw(bench.policy)
    assert (bench.written(), bench.there) == (1, {})


@pytest.mark.parametrize("number", [0, 1])
async def test_an_operator_that_may_not_size_new_pods_takes_away_what_one_before_has_left(bench, number):
    bench.seen({"gpu": SIZE})
    for _ in range(2):
        await bench.others[number].apply(bench.policy, SIZES)
    assert (bench.written(), bench.there) == (1, {})


@pytest.mark.parametrize("others", [["gpu"], []])
async def test_it_is_taken_away_where_something_else_sizes_the_pods_or_no_size_is_known(bench, others):
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.there == {"gpu": SIZE}
    await bench.sizer.apply(bench.policy, SIZES if others else {"gpu": PodSize()}, others)
    assert bench.there == {}


async def test_it_is_taken_away_where_the_policy_sizes_nothing_any_more(bench):
    await bench.sizer.apply(bench.policy, SIZES)
    bench.body |= {"status": bench.server.objects[OBJECT]["status"]}
    del bench.body["spec"]["targets"]["gpu"]["resources"]
    bench.body["metadata"]["generation"] = 2
    await bench.sizer.apply(bench.registry.put(bench.body), {})
    assert bench.there == {}


async def test_of_a_policy_that_sizes_nothing_nothing_is_asked(api_server, policy_body, bench):
    plain = Registry().put(policy_body("plain"))
    await bench.sizer.withdraw(plain)
    await bench.sizer.apply(plain, {})
    assert api_server.paths == []


async def test_a_policy_that_is_gone_is_no_trouble(bench):
    bench.refuse(404)
    assert (await bench.sizer.apply(bench.policy, SIZES)).problems == ()


async def test_a_refusal_is_said_and_asked_again_after_growing_pauses(bench):
    bench.refuse(403, 'admission webhook "theirs" denied the request')
    for _ in range(2):
        (problem,) = (await bench.sizer.apply(bench.policy, SIZES)).problems
        assert problem.reason == "NewPodsNotSized"
        assert 'webhook "theirs" denied the request; correct what it names' in problem.message
    assert bench.written() == 2
    assert (await bench.sizer.apply(bench.policy, SIZES)).problems == (problem,), "said all the same"
    assert bench.written() == 0
    bench.now += FIRST_SECONDS
    bench.server.status = 200
    assert (await bench.sizer.apply(bench.policy, SIZES)).problems == ()
    assert (bench.written(), bench.there) == (1, {"gpu": SIZE})


async def test_a_definition_that_does_not_have_the_field_is_named(bench):
    del bench.server.objects[OBJECT]
    bench.server.text = json.dumps({"status": {"conditions": []}})
    (problem,) = (await bench.sizer.apply(bench.policy, SIZES)).problems
    assert problem.reason == "NewPodsNotSized"
    assert "apply the one of this version (crds/rlscalingpolicies.yaml)" in problem.message


@pytest.mark.parametrize("status", [409, 429, 500])
async def test_what_may_pass_by_itself_is_tried_at_the_next_tick(bench, status):
    bench.refuse(status, "later")
    assert (await bench.sizer.apply(bench.policy, SIZES)).problems == ()
    bench.server.status = 200
    await bench.sizer.apply(bench.policy, SIZES)
    assert (bench.written(), bench.there) == (2, {"gpu": SIZE})


async def test_pods_that_the_api_server_takes_no_more_begin_as_their_template_says(bench):
    bench.deployment()
    await bench.sizer.apply(bench.policy, SIZES)
    for again in (False, True):
        bench.deployment('pods "chat-gpu-1-a" is forbidden: exceeded quota: small')
        (problem,) = (await bench.sizer.apply(bench.policy, SIZES)).problems
        assert problem.reason == "NewPodsRefused"
        assert "exceeded quota: small" in problem.message
        assert "chat-gpu-1-a" not in problem.message, "another pod is refused at every attempt"
        assert bench.there == {}
        assert (await bench.sizer.apply(bench.policy, SIZES)).problems == (problem,), "the same refusal is one"
        bench.deployment()
        await bench.sizer.apply(bench.policy, SIZES)
        assert bench.there == ({} if again else {"gpu": SIZE})
    bench.now += FIRST_SECONDS
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.there == {"gpu": SIZE}


async def test_a_size_of_refused_pods_that_could_not_be_taken_away_is_tried_again_at_once(bench):
    bench.deployment()
    await bench.sizer.apply(bench.policy, SIZES)
    bench.deployment("exceeded quota: small")
    bench.refuse(500, "later")
    for _ in range(3):
        (problem,) = (await bench.sizer.apply(bench.policy, SIZES)).problems
        assert problem.reason == "NewPodsRefused"
    assert bench.there == {"gpu": SIZE}
    bench.server.status = 200
    await bench.sizer.apply(bench.policy, SIZES)
    assert bench.there == {}


def test_a_report_leaves_the_sizes_of_new_pods_alone(policy_body):
    body = policy_body()
    body["status"] = {"observedGeneration": 1, "newPods": {"gpu": SIZE}}
    policy = Registry().put(body)
    assert policy.observed.new_pods == {"gpu": SIZE}
    patch = merge_patch(policy.outbox.status, {"observedGeneration": 2})
    assert patch["observedGeneration"] == 2
    assert "newPods" not in patch, "it would be taken away by None"


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ("app=chat,tier in (b,a),x notin (y),z,!w", ["app=chat", "tier=a|b", "x!=y", "z", "!w"]),
        (",".join(f"l{i}=x" for i in range(33)), None),
        (f"app in ({','.join(f'value-{i}' for i in range(120))})", None),
    ],
    ids=["every form", "too many", "too long"],
)
def test_pods_of_other_kinds_are_named_by_their_selector(selector, labels):
    made = new_pod_size(("ns", "statefulset.apps/chat"), parse_selector(selector), RANGED, PodSize(cpu=0.5))
    assert made == (None if labels is None else NewPodSize(labels=labels, cpu="500m"))


def test_pods_that_are_not_known_get_no_size():
    assert new_pod_size(("ns", "statefulset.apps/chat"), None, RANGED, PodSize(cpu=0.5)) is None


def test_a_size_names_the_container():
    one = RANGED.model_copy(update={"container": "serve"})
    made = new_pod_size(TARGET, None, one, PodSize(cpu=0.5, least_memory=1e9))
    assert made is not None
    assert made.to_dict() == {"deployment": "chat-gpu", "container": "serve", "cpu": "500m"}


@pytest.mark.parametrize("mode", [None, "Recommend"])
async def test_nothing_is_resized_where_the_spec_does_not_say_in_place(bench, mode):
    bench.runs("1")
    resources = bench.body["spec"]["targets"]["gpu"].pop("resources")
    if mode is not None:
        bench.body["spec"]["targets"]["gpu"]["resources"] = resources | {"mode": mode}
    policy = Registry().put(bench.body)
    assert await bench.sizer.apply(policy, SIZES) == ((), (), {})
    assert await bench.sizer.restore(policy, SIZES)
    assert bench.server.paths == []


async def test_in_place_resizes_and_says_which_pool_to_what(bench):
    bench.runs("1")
    bench.server.text = json.dumps(pod("chat-1", {"cpu": "2", "memory": "1Gi"}, generation=4, resourceVersion="8"))
    done = await bench.sizer.apply(bench.policy, CPU)
    assert done[:2] == (("gpu chat-gpu: 1 pods to cpu 2000m",), ())
    assert done.resized["gpu"].outcomes == {"Taken": 1}
    assert done.resized["gpu"].asked[:2] == (1.0, GI)
    assert bench.server.paths == [RESIZE]


async def test_a_pool_of_which_no_size_is_known_is_left_alone(bench):
    bench.runs("1")
    for sizes in ({}, {"gpu": PodSize()}):
        assert (await bench.sizer.apply(bench.policy, sizes))[:2] == ((), ())
    assert bench.server.paths == []


async def test_where_the_administrator_has_not_allowed_it_the_policy_says_so(bench):
    bench.runs("1")
    (problem,) = (await bench.forbidden.apply(bench.policy, CPU)).problems
    assert problem.reason == "ResizeNotAllowed"
    assert "operator.resize" in problem.message
    assert await bench.forbidden.restore(bench.policy, SIZES)
    assert bench.server.paths == []


async def test_pods_get_back_what_their_template_asks_for(bench):
    bench.runs("1")
    bench.server.text = json.dumps(pod("chat-1", {"cpu": "2", "memory": "1Gi"}, generation=4, resourceVersion="8"))
    bench.template({"cpu": "2", "memory": "1Gi"})
    assert not await bench.sizer.restore(bench.policy, {}), "the kubelet has not said so yet"
    assert bench.server.paths == [DEPLOYMENT, RESIZE]
    bench.pods.put(TARGET, pod("chat-1", {"cpu": "2", "memory": "1Gi"}, resourceVersion="9"))
    assert await bench.sizer.restore(bench.policy, {})


@pytest.mark.parametrize(("least", "lowered"), [(math.nan, False), (0.5 * GI, True), (2 * GI, False)])
async def test_memory_goes_back_only_as_far_as_the_pods_do_not_need_it(bench, least, lowered):
    bench.server.text = json.dumps(pod("chat-1", {"cpu": "2", "memory": "1Gi"}, generation=4, resourceVersion="8"))
    bench.template({"cpu": "2", "memory": "512Mi"})
    over = await bench.sizer.restore(bench.policy, {"gpu": PodSize(least_memory=least)})
    assert (not over) == (RESIZE in bench.server.paths) == lowered


async def test_a_target_that_has_gone_holds_no_policy(bench):
    bench.runs("1")
    bench.server.status = 404
    assert await bench.sizer.restore(bench.policy, {})
    assert bench.server.paths == [DEPLOYMENT]
