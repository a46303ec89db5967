"""Optional APIs that come and go, against a real HTTP server that answers as discovery does."""

import json

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.optional_apis import HTTP_ROUTES, OPTIONAL, SCALED_OBJECTS, OptionalApis
from rlscaler_operator.exceptions import OperatorError


@pytest.fixture
async def kube(api_server):
    one = Kube(Configuration(host=api_server.url))
    yield one
    await one.close()


def serves(api_server, *resources):
    api_server.status, api_server.text = 200, json.dumps({"resources": [{"name": r.plural} for r in resources]})


async def test_what_is_installed_later_is_read_and_then_watched_and_what_is_removed_is_forgotten(api_server, kube):
    heard = []

    async def come(resource):
        heard.append(("read", resource, set(apis.insights.watched_resources)))

    apis = OptionalApis(kube, come, lambda resource: heard.append(("forgotten", resource)))
    api_server.status = 404
    await apis.look()
    assert (heard, apis.insights.watched_resources) == ([], set())
    serves(api_server, SCALED_OBJECTS)
    await apis.look()
    await apis.look()
    assert heard == [("read", SCALED_OBJECTS, set())], "once, and before the watch begins"
    assert apis.insights.watched_resources == {SCALED_OBJECTS}
    assert "/apis/gateway.networking.k8s.io/v1" in api_server.paths
    api_server.status = 500
    await apis.look()
    assert apis.insights.watched_resources == {SCALED_OBJECTS}, "an error says nothing about what is served"
    api_server.status = 404
    await apis.look()
    assert heard[1:] == [("forgotten", SCALED_OBJECTS)]
    assert apis.insights.watched_resources == set()


async def test_an_api_that_may_not_be_read_ends_the_operator_with_the_reason(api_server, kube):
    async def come(resource):
        raise OperatorError(f"cannot list {resource.plural}")

    apis = OptionalApis(kube, come, lambda _: None)
    serves(api_server, *OPTIONAL)
    with pytest.raises(OperatorError, match="scaledobjects"):
        await apis.look()
    assert HTTP_ROUTES not in apis.insights.watched_resources
