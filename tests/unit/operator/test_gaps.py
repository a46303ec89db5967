"""Objects whose deletion no watch has reported."""

import json
from types import SimpleNamespace

import pytest

from rlscaler_operator.cluster.bodies import parse_deployment
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.holders import NodeHolders
from rlscaler_operator.cluster.kinds import TargetKinds
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.run.context import Context
from rlscaler_operator.run.gaps import Gaps
from rlscaler_operator.run.watched import POLICIES, SCALED_OBJECTS, Watched, watched
from rlscaler_operator.state.registry import Registry

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-5d4f", "controller": True}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def body(name, **more):
    return {"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"}} | more


def pod(name):
    made = body(name, spec={"nodeName": "n", "containers": []}, status=READY)
    made["metadata"] |= {"labels": {"pod-template-hash": "5d4f"}, "ownerReferences": [OWNER]}
    return made


class Api:
    """Lists of an API server; `late` objects are missing in lists of all and found by their names."""

    def __init__(self, *there, late=()):
        self.there, self.late = set(there), set(late)

    async def request(self, method, path, **query):
        plural = path.rpartition("/")[2]
        if named := query.get("fieldSelector"):
            wanted = (plural, named.removeprefix("metadata.name="))
            names = [wanted[1]] if wanted in self.there | self.late else []
        else:
            names = [name for kind, name in self.there if kind == plural]
        namespace = {} if plural == "rlscalingbudgets" else {"namespace": "ns"}
        return {"items": [{"metadata": {"name": name} | namespace} for name in names], "metadata": {}}


@pytest.fixture
def engine():
    cache = WatchCache(kinds=TargetKinds(["apps/v1/statefulsets/StatefulSet"]), holders=NodeHolders())
    for name in ("chat", "web"):
        cache.put_deployment(body(name))
        cache.autoscalers.put("HorizontalPodAutoscaler", body(name, spec={"scaleTargetRef": {"name": name}}))
        cache.autoscalers.put("ScaledObject", body(name, spec={"scaleTargetRef": {"name": name}}))
        cache.put_route(body(name, spec={}))
        cache.verticals.put(body(name, spec={"targetRef": {"kind": "Deployment", "name": name}}))
        cache.put_pod(pod(f"chat-5d4f-{name}"))
        cache.deployments["ns", f"statefulset.apps/{name}"] = parse_deployment(body(name))
    budgets = SimpleNamespace(known=["chat", "web"])
    budgets.names, budgets.forget = (lambda: list(budgets.known)), budgets.known.remove
    budgets.take_in = None
    return SimpleNamespace(cache=cache, budgets=budgets, wake=lambda key=None: None, registry=Registry())


KINDS = (
    *("pods", "verticalpodautoscalers", "httproutes", "rlscalingbudgets"),
    *("horizontalpodautoscalers", "scaledobjects", "deployments", "statefulsets"),
)


async def looks(engine, api, namespaces=()):
    kinds = kinds_of(engine)
    for kind in kinds:
        await Gaps(api, namespaces, kinds, 60).look(kind)
    return {kind.resource.plural: len(list(kind.known())) for kind in kinds}


def kinds_of(engine):
    return [kind for kind in watched(engine, None, None).values() if kind.resource != POLICIES]


def object_of(plural, name):
    return plural, f"chat-5d4f-{name}" if plural == "pods" else name


@pytest.mark.parametrize("namespaces", [(), ("ns",)])
async def test_of_every_kind_what_is_gone_is_forgotten_and_the_rest_stays(engine, namespaces):
    """An HPA that was deleted in a gap held its target for ever, and a pod counted as ready."""
    api = Api(*(object_of(plural, "web") for plural in KINDS))
    assert await looks(engine, api, namespaces) == dict.fromkeys(KINDS, 1)
    assert engine.cache.autoscalers.of(("ns", "chat")) is None
    assert engine.cache.autoscalers.of(("ns", "web")) is not None
    assert set(engine.cache.pods["ns", "chat"]) == {"chat-5d4f-web"}
    assert engine.budgets.known == ["web"]


async def test_an_object_that_was_made_while_a_list_was_read_stays(engine):
    api = Api(*(object_of(kind, "web") for kind in KINDS), late=(object_of(kind, "chat") for kind in KINDS))
    assert await looks(engine, api) == dict.fromkeys(KINDS, 2)


async def test_a_list_that_fails_forgets_nothing(engine, api_server, kube):
    api_server.status = 503
    kinds = kinds_of(engine)
    for kind in kinds:
        with pytest.raises(OperatorError):
            await Gaps(kube, (), kinds, 60).look(kind)
    assert all(len(list(kind.known())) == 2 for kind in kinds)


def test_of_an_api_that_is_removed_all_objects_are_forgotten_and_those_of_the_others_stay(engine):
    context = SimpleNamespace(kinds=watched(engine, None, None), engine=engine)
    Context._forget_all(context, SCALED_OBJECTS)
    left = {kind.resource: len(list(kind.known())) for kind in kinds_of(engine)}
    assert left.pop(SCALED_OBJECTS) == 0
    assert set(left.values()) == {2}


def test_a_late_word_of_a_pod_does_not_touch_its_successor_of_the_same_name(engine):
    cache, old, new = engine.cache, pod("chat-5d4f-web"), pod("chat-5d4f-web")
    new["metadata"]["uid"] = "successor"
    cache.put_pod(new)
    ending = {**old, "metadata": old["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    cache.put_pod(ending)
    cache.drop_pod(("ns", "chat-5d4f-web"), ending["metadata"]["uid"])
    assert "chat-5d4f-web" in cache.pods["ns", "chat"]
    cache.drop_pod(("ns", "chat-5d4f-web"), "successor")
    assert "chat-5d4f-web" not in cache.pods["ns", "chat"]


def known(policy_body, *names):
    registry = Registry()
    for name in names:
        registry.put(policy_body(name))
    return registry


async def look(kube, registry, forgotten):
    def known():
        return [(policy.key, policy.uid) for policy in registry]

    kind = Watched(POLICIES, None, lambda *which: forgotten.append(which), known)
    await Gaps(kube, (), [kind], 30).look(kind)


async def test_a_policy_that_is_not_there_any_more_is_forgotten(api_server, kube, policy_body):
    registry = known(policy_body, "kept", "gone", "made-again")
    there = [policy_body("kept"), policy_body("made-again", uid="another"), policy_body("new")]
    api_server.text = json.dumps({"items": [{"metadata": body["metadata"]} for body in there]})
    forgotten = []
    await look(kube, registry, forgotten)
    assert forgotten == [(("ns", "gone"), "gone"), (("ns", "made-again"), "made-again")]


async def test_a_list_of_nothing_is_null_and_forgets_all(api_server, kube, policy_body):
    api_server.text = json.dumps({"kind": "PartialObjectMetadataList", "items": None})
    forgotten = []
    await look(kube, known(policy_body, "gone"), forgotten)
    assert forgotten == [(("ns", "gone"), "gone")]


@pytest.mark.parametrize("status", [503, 404])
async def test_a_list_of_policies_that_fails_forgets_none(api_server, kube, policy_body, status):
    api_server.status = status
    forgotten = []
    with pytest.raises(OperatorError):
        await look(kube, known(policy_body, "kept"), forgotten)
    assert not forgotten
