"""Writes of weights that admission refuses or changes, against a real HTTP server."""

import json
import math
from types import SimpleNamespace

import pytest

from rlscaler_operator.actuation.weights import WeightWriter
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.settings import Settings

PATH = "/apis/gateway.networking.k8s.io/v1/namespaces/ns/httproutes/chat"
WRITE = f"{PATH}?fieldManager=rlscaler"


def route(gpu, cpu, version="1"):
    refs = [{"name": "gpu", "weight": gpu}, {"name": "cpu", "weight": cpu}]
    metadata = {"namespace": "ns", "name": "chat", "resourceVersion": version}
    return {"metadata": metadata, "spec": {"rules": [{"backendRefs": refs}]}}


@pytest.mark.parametrize(
    ("status", "there", "reason"),
    [
        (422, route(500, 500), "HTTPRouteNotWritten"),
        (422, route(600, 400, "2"), None),
        (403, route(500, 500), "HTTPRouteNotWritten"),
        (409, route(500, 500), None),
    ],
)
async def test_weights_that_admission_refuses_are_told_from_a_conflict(kube, api_server, status, there, reason):
    api_server.text = json.dumps({"message": "denied: weights are fixed here"})
    api_server.statuses[WRITE] = status
    api_server.answers[PATH] = json.dumps(there)
    written = await write(kube)
    assert not written.went_through
    assert (written.problem and written.problem.reason) == reason
    assert reason is None or "weights are fixed here" in written.problem.message


async def test_weights_that_a_webhook_changes_on_their_way_are_not_in_force(kube, api_server):
    api_server.answers[WRITE] = json.dumps(route(900, 100, "2"))
    written = await write(kube)
    assert not written.in_force
    assert "webhook" in written.problem.message
    api_server.answers[WRITE] = json.dumps(route(800, 200, "3"))
    assert (await write(kube)).problem is None


async def write(kube):
    cache, shards = WatchCache(), Shards(kube, Settings())
    shards.leases[0]._deadline = math.inf
    cache.put_route(route(500, 500))
    writer = WeightWriter(kube, shards, ConcurrencyLimiter(1), cache, Settings())
    policy = SimpleNamespace(key=("ns", "policy"), facts=SimpleNamespace(backends=(("ns", "chat"), ("gpu", "cpu"))))
    return await writer._patch_route(policy, (800, 200))
