"""Objects whose deletion no watch has reported."""

from types import SimpleNamespace

import pytest

from rlscaler_operator.cluster.bodies import parse_deployment
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.holders import NodeHolders
from rlscaler_operator.cluster.kinds import TargetKinds
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.run.gaps import Gaps, watched

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
    return SimpleNamespace(cache=cache, budgets=budgets, woken=[], wake=lambda key: None)


KINDS = (
    *("pods", "verticalpodautoscalers", "httproutes", "rlscalingbudgets"),
    *("horizontalpodautoscalers", "scaledobjects", "deployments", "statefulsets"),
)


async def looks(engine, api, namespaces=()):
    gaps = Gaps(api, namespaces, lambda: watched(engine))
    for kind in watched(engine):
        await gaps.look(kind)
    return {kind.plural: len(kind.known()) for kind in watched(engine)}


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
    kinds = watched(engine)
    for kind in kinds:
        with pytest.raises(OperatorError):
            await Gaps(kube, (), lambda: kinds).look(kind)
    assert all(len(kind.known()) == 2 for kind in kinds)


def test_a_late_word_of_a_pod_does_not_touch_its_successor_of_the_same_name(engine):
    cache, old, new = engine.cache, pod("chat-5d4f-web"), pod("chat-5d4f-web")
    new["metadata"]["uid"] = "successor"
    cache.put_pod(new)
    ending = {**old, "metadata": old["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    cache.put_pod(ending)
    cache.drop_pod(ending)
    assert "chat-5d4f-web" in cache.pods["ns", "chat"]
    cache.drop_pod(new)
    assert "chat-5d4f-web" not in cache.pods["ns", "chat"]
