"""What is remembered before the first change, against a real HTTP server."""

import math
from dataclasses import replace

import numpy as np
import pytest
from kubernetes.aio.client import Configuration

from rlscaler_operator.actuation.apply import Actuator
from rlscaler_operator.decisions import decide_all
from rlscaler_operator.kube import Kube
from rlscaler_operator.lease import Lease
from rlscaler_operator.policies import Registry
from rlscaler_operator.sensing.cache import WatchCache
from rlscaler_operator.settings import Settings


@pytest.fixture
async def kube(api_server):
    one = Kube(Configuration(host=api_server.url))
    yield one
    await one.close()


@pytest.fixture
def cache():
    one = WatchCache()
    one.put_deployment({"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {"replicas": 2}})
    return one


@pytest.fixture
def apply(kube, cache, entry, policy_body):
    lease = Lease(kube, Settings())
    lease._deadline = math.inf
    policy = Registry().put(policy_body())
    actuator = Actuator(kube, lease, cache, Settings())
    decision = decide_all([entry()])[0].decision

    async def run(base, desired):
        row = np.array([[base, 0]], np.int32), np.array([[desired, 0]], np.int32)
        return policy, await actuator.apply(policy, replace(decision, base=row[0], desired=row[1]))

    return run


async def test_originals_are_what_was_found_even_where_they_could_not_be_recorded_at_once(api_server, cache, apply):
    api_server.status = 500
    policy, applied = await apply(2, 3)
    assert applied.placement_problem is not None
    assert "originals" not in policy.status
    cache.deployments["ns", "chat-gpu"].replicas = 3
    api_server.status = 200
    policy, _ = await apply(3, 4)
    assert policy.status["originals"]["replicas"] == {"gpu": 2}


async def test_shrinking_waits_until_the_originals_are_recorded(api_server, apply):
    api_server.status = 500
    _, applied = await apply(2, 1)
    assert applied.writes["gpu"].outcome == "Conflict"
    assert not any(path.endswith("/scale") for path in api_server.paths)
    api_server.status = 200
    _, applied = await apply(2, 1)
    assert applied.complete
