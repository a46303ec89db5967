"""Odd answers of the API server, from a real HTTP server."""

import asyncio
import json
import math
import ssl

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_operator.cluster.kube import Kube, connection
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.settings import Settings


@pytest.mark.parametrize("text", ["<html>", "[1]", "7", "\xff"])
async def test_what_is_no_object_is_an_error_of_the_api_server(api_server, kube, text):
    api_server.text = text
    with pytest.raises(KubeError):
        await kube.get("/x")


async def test_credentials_that_cannot_be_renewed_are_an_error_of_the_api_server(kube):
    async def renew(_):
        raise RuntimeError("the plugin failed")

    kube.configuration.api_key = {"BearerToken": "old"}
    kube.configuration.refresh_api_key_hook = renew
    with pytest.raises(KubeError, match="the plugin failed"):
        await kube.get("/x")


@pytest.mark.parametrize("prefix", ["Bearer ", "bearer ", ""])
async def test_kopf_is_given_the_token_alone(prefix):
    """A kubeconfig's token is prefixed with "Bearer", that of a pod's service account with "bearer"."""
    configuration = Configuration(host="https://api")
    configuration.api_key = {"BearerToken": f"{prefix}abc.def"}
    assert (await connection(configuration)).token == "abc.def"


@pytest.mark.parametrize(
    "text",
    ["<html>", "[]", '{"spec": 7}', '{"spec": {}}', json.dumps({"metadata": {}, "spec": {"holderIdentity": []}})],
)
async def test_the_lease_survives_any_answer(api_server, kube, text):
    api_server.text = text
    shards = Shards(kube, Settings(lease_seconds=2))
    running = asyncio.create_task(shards.run())
    async with asyncio.timeout(5):
        while api_server.asked < 2:
            assert not running.done()
            await asyncio.sleep(0.01)
    shards.leases[0]._deadline, shards.leases[0]._held = math.inf, {"spec": 7}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


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


async def test_kopf_asks_for_the_server_name_of_the_kubeconfig():
    configuration = Configuration(host="https://127.0.0.1:6443")
    configuration.tls_server_name = "kubernetes.default.svc"
    context = (await connection(configuration)).as_ssl_context()
    wrapped = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=False, server_hostname="127.0.0.1")
    assert wrapped.server_hostname == "kubernetes.default.svc"
    configuration.tls_server_name = None
    context = (await connection(configuration)).as_ssl_context()
    wrapped = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="127.0.0.1")
    assert wrapped.server_hostname == "127.0.0.1"
