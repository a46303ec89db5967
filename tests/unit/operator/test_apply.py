"""What is remembered before the first change, against a real HTTP server."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.decision.batch import decide_all
from rlscaler_operator.actuation.apply import Actuator
from rlscaler_operator.actuation.drain import Need
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry


@pytest.fixture
def cache():
    one = WatchCache()
    one.put_deployment({"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {"replicas": 2}})
    return one


@pytest.fixture
def apply(kube, cache, entry, policy_body):
    shards = Shards(kube, Settings())
    shards.leases[0]._deadline = math.inf
    policy = Registry().put(policy_body())
    actuator = Actuator(kube, shards, ConcurrencyLimiter(8), cache, Settings())
    decision = decide_all([entry()])[0].decision

    async def run(base, desired):
        row = np.array([[base, 0]], np.int32), np.array([[desired, 0]], np.int32)
        changed = replace(decision, base=row[0], desired=row[1])
        return policy, await actuator.apply(policy, changed, Need.unknown())

    return run


async def test_originals_are_what_was_found_even_where_they_could_not_be_recorded_at_once(api_server, cache, apply):
    api_server.status = 500
    policy, applied = await apply(2, 3)
    assert not applied.complete
    assert "originals" not in policy.outbox.status
    cache.deployments["ns", "chat-gpu"].replicas = 3
    api_server.status = 200
    policy, _ = await apply(3, 2)
    assert policy.outbox.status["originals"]["replicas"] == {"gpu": 2}


async def test_growth_is_written_before_anything_else(api_server, apply):
    policy, applied = await apply(2, 3)
    assert applied.complete
    assert api_server.paths[0].endswith("/deployments/chat-gpu/scale")
    assert policy.ownership.originals.replicas.gpu == 2


async def test_where_they_are_restored_originals_are_recorded_before_growth(api_server, apply, policy_body):
    policy, _ = await apply(2, 2)
    body = policy_body(generation=2)
    policy.observed.read(body | {"spec": body["spec"] | {"restoreOnDelete": True}})
    api_server.paths.clear()
    _, applied = await apply(2, 3)
    assert applied.complete
    finalizer, originals, scale, *_ = api_server.paths
    assert finalizer.endswith("/rlscalingpolicies/chat")
    assert originals.endswith("/rlscalingpolicies/chat/status")
    assert scale.endswith("/scale")


async def test_shrinking_waits_until_the_originals_are_recorded(api_server, apply):
    api_server.status = 500
    _, applied = await apply(2, 1)
    assert applied.writes["gpu"].outcome == "Waiting"
    assert not any(path.endswith("/scale") for path in api_server.paths)
    api_server.status = 200
    _, applied = await apply(2, 1)
    assert applied.complete
