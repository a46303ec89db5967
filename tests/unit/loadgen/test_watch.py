"""What the fleet makes of the API's objects, and how its watch survives an ailing API server.

The server here is a real HTTP server on the loopback address that plays a script, because no healthy API
server gives these answers on demand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from rlscaler_loadgen.service import watch
from rlscaler_loadgen.service.fleet import parse_pod, parse_weights, selector_text
from rlscaler_loadgen.service.watch import Follower
from tests.harness.ticks import happens

Step = tuple[str, Any]


def named(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class ScriptedApi:
    """Answers the i-th request with the i-th step: ("list", items), ("watch", events) or ("status", code)."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.asked: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        kind, content = self.steps.pop(0) if self.steps else ("hang", None)
        if kind == "status":
            return web.json_response({"message": "scripted"}, status=content)
        if kind == "list":
            return web.json_response({"metadata": {"resourceVersion": "10"}, "items": content})
        response = web.StreamResponse()
        await response.prepare(request)
        for event in content or []:
            await response.write(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n")
        if kind == "hang":
            await asyncio.Event().wait()
        if kind == "cut" and request.transport is not None:
            request.transport.abort()
        return response


@contextlib.asynccontextmanager
async def following(api: ScriptedApi) -> AsyncIterator[dict[str, int]]:
    """The follower's view of the scripted API: names of the objects that exist, with their versions."""
    app = web.Application()
    app.router.add_get("/", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    seen: dict[str, int] = {}

    def on_list(items: list[Any]) -> None:
        seen.clear()
        for item in items:
            on_change(item, False)

    def on_change(item: Any, deleted: bool) -> None:
        seen[item["metadata"]["name"]] = int(item["metadata"]["resourceVersion"])
        if deleted:
            del seen[item["metadata"]["name"]]

    async with aiohttp.ClientSession() as session:

        async def call(_request_timeout: float, **arguments: Any) -> aiohttp.ClientResponse:
            query = {key: str(value) for key, value in arguments.items()}
            return await session.get(url, params=query, timeout=aiohttp.ClientTimeout(_request_timeout))

        async def prepare() -> dict[str, Any]:
            return {"namespace": "ns"}

        task = asyncio.create_task(Follower("things", call, prepare, on_list, on_change).run())
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await runner.cleanup()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAUSE_SECONDS", (0.01, 0.05))


def event(kind: str, name: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": named(name, version)}


async def test_objects_are_listed_and_then_watched() -> None:
    api = ScriptedApi(
        ("list", [named("a"), named("b")]),
        ("hang", [event("ADDED", "c", 11), event("MODIFIED", "a", 12), event("DELETED", "b", 13)]),
    )
    async with following(api) as seen:
        await happens(lambda: seen == {"a": 12, "c": 11})
    assert api.asked[1]["resource_version"] == "10"


async def test_a_watch_that_ends_is_resumed_after_the_last_bookmark() -> None:
    api = ScriptedApi(
        ("list", [named("a")]),
        ("watch", [event("BOOKMARK", "", 40)]),
        ("hang", [event("ADDED", "b", 41)]),
    )
    async with following(api) as seen:
        await happens(lambda: "b" in seen)
    assert api.asked[2]["resource_version"] == "40"


@pytest.mark.parametrize(
    "interruption",
    [
        ("watch", [{"type": "ERROR", "object": {"code": 410, "message": "too old"}}]),
        ("status", 410),
        ("status", 503),
        ("cut", [event("ADDED", "b", 11)]),
        ("watch", [b'{"type": "ADD']),
        ("watch", [{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}]),
    ],
    ids=["gone in the stream", "gone", "unavailable", "connection cut", "half a line", "error in the stream"],
)
async def test_an_interrupted_watch_leads_to_a_fresh_list(interruption: Step) -> None:
    api = ScriptedApi(("list", [named("a"), named("b")]), interruption, ("list", [named("c")]))
    async with following(api) as seen:
        await happens(lambda: seen == {"c": 1})


async def test_what_is_known_stays_in_force_while_the_server_is_away() -> None:
    away: list[Step] = [("status", 500)] * 5
    api = ScriptedApi(("list", [named("a")]), ("watch", []), *away, ("list", [named("b")]))
    async with following(api) as seen:
        await happens(lambda: len(api.asked) >= 6)
        assert seen == {"a": 1}
        await happens(lambda: seen == {"b": 1})


def test_a_pod_is_reduced_to_what_the_service_must_know() -> None:
    item = {
        "metadata": {"name": "chat-gpu-1", "deletionTimestamp": None},
        "spec": {
            "nodeName": "gpu-1",
            "containers": [
                {"name": "llm", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"}}},
                {"name": "proxy", "resources": {"requests": {"cpu": "500m"}}},
            ],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    pod = parse_pod(item, "gpu")
    assert (pod.cpu_request, pod.memory_request, pod.gpus) == (2.0, 2**30, 2)
    assert (pod.container, pod.node) == ("llm", "gpu-1")
    assert pod.routable


@pytest.mark.parametrize(
    ("metadata", "status"),
    [
        ({}, {}),
        ({}, {"phase": "Pending"}),
        ({}, {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"conditions": [{"type": "Ready", "status": "True"}]}),
    ],
    ids=["new", "pending", "not ready", "terminating"],
)
def test_a_pod_that_is_not_ready_gets_nothing(metadata: dict[str, str], status: dict[str, Any]) -> None:
    pod = parse_pod({"metadata": {"name": "a", **metadata}, "spec": {}, "status": status}, "cpu")
    assert not pod.routable
    assert pod.cpu_request is None


def test_weights_come_from_the_rule_that_names_the_backends() -> None:
    backends = {"gpu": "chat-gpu", "cpu": "chat-cpu"}

    def route(*refs: dict[str, Any]) -> dict[str, Any]:
        return {"spec": {"rules": [{"matches": []}, {"backendRefs": list(refs)}]}}

    both = route({"name": "chat-gpu", "weight": 700}, {"name": "chat-cpu", "weight": 0}, {"name": "other"})
    assert parse_weights(both, backends) == {"gpu": 700, "cpu": 0}
    assert parse_weights(route({"name": "chat-cpu"}), backends) == {"gpu": 0, "cpu": 1}
    assert parse_weights(route({"name": "other"}), backends) is None
    assert parse_weights({"spec": {}}, backends) is None


def test_selectors_become_a_query_parameter() -> None:
    selector = {
        "matchLabels": {"app": "chat"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "old", "operator": "DoesNotExist"},
            {"key": "new", "operator": "Exists"},
        ],
    }
    assert selector_text(selector) == "app=chat,tier in (a,b),!old,new"
