"""Bounds of the suggestion server: what callers may send, and how many of them may be there."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer

from rlscaler_scheduler import door as doors
from rlscaler_scheduler import intake
from rlscaler_scheduler.objects import amount, pod_facts
from rlscaler_scheduler.server import Server
from tests.harness.placed import RESOURCES, node, pod
from tests.unit.scheduler.test_robustness import asked, server_of
from tests.unit.scheduler.test_wire import body as question


@asynccontextmanager
async def client_of(**settings: object) -> AsyncIterator[tuple[TestClient, Server]]:
    server = server_of(node("a"), node("b"), **settings)
    async with TestClient(TestServer(server.application())) as client:
        yield client, server


async def told(client: TestClient, body: bytes, path: str = "/filter", **headers: str) -> tuple[int, str]:
    answer = await client.post(path, data=io.BytesIO(body), headers=headers)
    return answer.status, (await answer.json())["error"]


async def test_a_call_that_is_too_long_is_refused_before_it_is_read() -> None:
    async with client_of(largest_call_mib=1) as (client, server):
        reader, writer = await asyncio.open_connection(client.host, client.port)
        writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 99000000\r\n\r\n")
        assert b"413" in await reader.readline(), "nothing of the body was sent"
        writer.close()

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield b" " * 2**16

        with suppress(ConnectionError):
            answer = await client.post("/filter", data=endless())
            assert answer.status == 413
            assert "nodeCacheCapable: true" in (await answer.json())["error"]
        metrics = await (await client.get("/metrics")).text()
        assert 'rlscaler_scheduler_declined_total{reason="too_large"} 2.0' in metrics
        assert server.intake._held == 0


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"[" * 2000 + b"]" * 2000, 413, "deeper than 64"),
        (json.dumps({"Pod": pod("p"), "x": [[]] * 200_000}).encode(), 413, "more than 262144 values"),
        (json.dumps(asked(names=["n"] * 50_001)).encode(), 400, "at most 50000 are scored"),
        (json.dumps(asked(names=["n" * 254])).encode(), 400, "more than 253 characters"),
        (json.dumps(asked(names=[{}])).encode(), 400, "a list of texts"),
        (json.dumps(asked("p" * 254)).encode(), 400, "Pod.metadata.name is no text"),
    ],
)
async def test_what_would_take_memory_or_time_is_refused_with_a_sentence(body: bytes, status: int, said: str) -> None:
    async with client_of() as (client, _):
        answered, sentence = await told(client, body)
        assert answered == status
        assert said in sentence
        assert (await client.post("/filter", json=asked())).status == 200


async def test_brackets_in_texts_are_no_nesting() -> None:
    async with client_of() as (client, _):
        answer = await client.post("/filter", json=asked(annotations={"a": '[{"' * 500 + "," * 600_000}))
        assert (await answer.json())["NodeNames"] == ["a", "b"]


async def test_questions_of_the_plugin_have_bounds_too() -> None:
    async with client_of() as (client, server):
        status, sentence = await told(client, question([(0, 0, 0, 0)] * 50_001), "/score")
        assert (status, "at most 50000" in sentence) == (400, True)
        names = [f"n{index}" for index in range(40_000)]
        for roster in range(7):
            await client.post("/score", data=io.BytesIO(question([(0, 0, 0, 0)], names, roster=roster)))
        assert sum(len(held.names) for held in server.rosters._held.values()) <= 200_000


async def test_a_compressed_call_is_refused() -> None:
    async with client_of() as (client, _):
        assert (await told(client, b"x", **{"Content-Encoding": "br"}))[0] in (400, 415)


async def test_bodies_that_are_half_sent_leave_room_for_small_calls(monkeypatch) -> None:
    monkeypatch.setattr(intake, "MOST_BYTES", 1_000_000)
    async with client_of() as (client, server):
        callers = [await asyncio.open_connection(client.host, client.port) for _ in range(8)]
        for _, writer in callers:
            writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n" + b" " * 400_000)
        refused = asyncio.as_completed([reader.readline() for reader, _ in callers])
        assert b"503" in await next(refused)
        assert server.intake._held <= 600_000
        assert (await client.post("/filter", json=asked())).status == 200
        for _, writer in callers:
            writer.close()


async def test_only_some_large_calls_wait_for_the_reader() -> None:
    async with client_of() as (client, server):
        server.intake._queued = intake.MOST_QUEUED
        large = asked(annotations={"a": "x" * intake.SMALL_BYTES})
        assert (await client.post("/filter", json=large)).status == 429
        assert (await client.post("/filter", json=asked())).status == 200
        server.intake._queued = 0
        assert (await client.post("/filter", json=large)).status == 200


async def test_connections_beyond_the_bound_end_the_oldest_of_unknown_callers(monkeypatch) -> None:
    monkeypatch.setattr(doors, "MOST_CONNECTIONS", 8)
    runner = web.AppRunner(server_of(node("a"), node("b")).application(), **doors.LIMITS)
    await runner.setup()
    with doors.listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        task = asyncio.create_task(doors.Door(runner.server, lambda _: False, lambda: None).serve(listener))
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        async with ClientSession() as session, session.post(f"http://127.0.0.1:{port}/filter", json=asked()) as answer:
            assert (await answer.json())["NodeNames"] == ["a", "b"]
        assert len(runner.server.connections) <= 8
        for _, writer in idle:
            writer.close()
        task.cancel()
    await runner.cleanup()


def test_thousands_of_resources_and_long_quantities_cost_nothing() -> None:
    waiting = pod("p", cpu="1")
    waiting["spec"]["initContainers"] = [
        {"resources": {"requests": {f"example.com/r{at}-{index}": "1" for index in range(40)}}} for at in range(1500)
    ]
    waiting["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1" * 2_000_000
    assert pod_facts(waiting, RESOURCES)[5:7] == (1000, 0)
    assert amount("0" * 65) != amount("0" * 65), "no number"
