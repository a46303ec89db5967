"""The loop without a cluster: what it waits for, and who waits for whom."""

import asyncio
import time

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_operator.engine import IDLE_SECONDS, Engine
from rlscaler_operator.kube import Kube
from rlscaler_operator.lease import Lease
from rlscaler_operator.schedule import Schedule
from rlscaler_operator.settings import Settings


@pytest.fixture
async def engine():
    settings = Settings(gather_seconds=0)
    kube = Kube(Configuration(host="http://127.0.0.1:9"))
    yield Engine(settings, kube, Lease(kube, settings))
    await kube.close()


async def test_a_deposed_leader_does_not_spin_on_what_was_due(engine, policy_body):
    policy = engine.registry.put(policy_body())
    policy.schedule = Schedule.starting(30, 5, time.monotonic() - 100)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(engine._sleep(), IDLE_SECONDS / 5)
