"""Watches of kopf, its memory of objects, and APIs that come and go, against a real HTTP server."""

import asyncio
import json

import kopf
import pytest

from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.run import main
from rlscaler_operator.run.watched import HTTP_ROUTES, OPTIONAL, POLICIES, SCALED_OBJECTS, Watched
from rlscaler_operator.run.watches import NoDiffBase, NoProgress, OptionalApis, new_insights


def serves(api_server, *resources):
    api_server.status, api_server.text = 200, json.dumps({"resources": [{"name": r.plural} for r in resources]})


async def test_what_is_installed_later_is_read_and_then_watched_and_what_is_removed_is_forgotten(api_server, kube):
    heard = []

    async def come(resource):
        heard.append(("read", resource, set(apis.insights.watched_resources)))

    apis = OptionalApis(kube, OPTIONAL, come, lambda resource: heard.append(("forgotten", resource)))
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

    apis = OptionalApis(kube, OPTIONAL, come, lambda _: None)
    serves(api_server, *OPTIONAL)
    with pytest.raises(OperatorError, match="scaledobjects"):
        await apis.look()
    assert HTTP_ROUTES not in apis.insights.watched_resources


def test_kopf_has_what_optional_apis_are_announced_by():
    """kopf exports no name for what `kopf.operator(insights=)` takes, so a release may move or rename its parts."""
    hint = "kopf has changed how it is told what to watch: adapt OptionalApis in rlscaler_operator/run/watches.py"
    try:
        insights = new_insights()
    except (KeyError, IndexError, NameError, TypeError) as error:
        pytest.fail(f"{hint} ({error!r})")
    for name, kind in {
        "watched_resources": set,
        "revised": asyncio.Condition,
        "ready_resources": asyncio.Event,
    }.items():
        assert isinstance(getattr(insights, name, None), kind), f"{hint} ({name})"


def test_only_watch_handlers_are_registered_so_nothing_needs_to_be_remembered():
    registry = kopf.get_default_registry()
    assert isinstance(registry, kopf.OperatorRegistry)
    main.watch([Watched(resource, print, print, tuple) for resource in (POLICIES, *OPTIONAL)])
    assert len({handler.id for handler in registry._watching.get_all_handlers()}) == 1 + len(OPTIONAL)
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()


@pytest.mark.parametrize("storage", [NoDiffBase(), NoProgress()])
def test_the_storages_are_whole(storage):
    """A release of kopf that asks for more must not find the default's answer."""
    asked = {name for kind in (kopf.DiffBaseStorage, kopf.ProgressStorage) for name in kind.__abstractmethods__}
    assert {name for name in asked if hasattr(storage, name)} <= set(vars(type(storage)))


async def test_startup_sets_them():
    settings = kopf.OperatorSettings()
    await main.startup(settings=settings)
    assert isinstance(settings.persistence.diffbase_storage, NoDiffBase)
    assert isinstance(settings.persistence.progress_storage, NoProgress)
