"""Missed deletions and refused credentials, against a real HTTP server."""

import json

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import KubeError, OperatorError
from rlscaler_operator.run.sweep import Sweep
from rlscaler_operator.state.registry import Registry


@pytest.fixture
async def kube(api_server):
    one = Kube(Configuration(host=api_server.url))
    yield one
    await one.close()


def known(policy_body, *names):
    registry = Registry()
    for name in names:
        registry.put(policy_body(name))
    return registry


async def test_a_policy_that_is_not_there_any_more_is_forgotten(api_server, kube, policy_body):
    registry = known(policy_body, "kept", "gone", "made-again")
    there = [policy_body("kept"), policy_body("made-again", uid="another"), policy_body("new")]
    api_server.text = json.dumps({"items": [{"metadata": body["metadata"]} for body in there]})
    forgotten = []
    await Sweep(kube, registry, (), lambda *which: forgotten.append(which)).sweep()
    assert forgotten == [(("ns", "gone"), "gone"), (("ns", "made-again"), "made-again")]


async def test_a_list_of_nothing_is_null_and_forgets_all(api_server, kube, policy_body):
    api_server.text = json.dumps({"kind": "PartialObjectMetadataList", "items": None})
    forgotten = []
    await Sweep(kube, known(policy_body, "gone"), (), lambda *which: forgotten.append(which)).sweep()
    assert forgotten == [(("ns", "gone"), "gone")]


async def test_a_list_that_fails_forgets_nothing(api_server, kube, policy_body):
    api_server.status = 503
    forgotten = []
    with pytest.raises(OperatorError):
        await Sweep(kube, known(policy_body, "kept"), (), lambda *which: forgotten.append(which)).sweep()
    assert not forgotten


async def test_refused_credentials_are_read_anew_though_not_at_every_refusal(api_server):
    read = []

    async def reload():
        read.append(1)
        return Configuration(host=api_server.url)

    kube = Kube(Configuration(host=api_server.url), reload=reload)
    api_server.status = 401
    for _ in range(3):
        with pytest.raises(KubeError):
            await kube.get("/x")
    assert len(read) == 1
    api_server.status = 200
    assert await kube.get("/x") == {}
    await kube.close()
