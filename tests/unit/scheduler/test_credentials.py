"""Credentials for the Prometheus of node metrics: what a folder may hold, and that they are sent as they are now."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rlscaler_scheduler.connections import access
from rlscaler_scheduler.node_metrics import QUANTITY, NodeMetrics
from rlscaler_scheduler.settings import SchedulerError, Settings
from tests.harness.placed import cache_of, node

URL = "https://prometheus:9090"


def folder_of(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text)
    return path


def test_without_a_folder_nothing_is_sent() -> None:
    assert access(URL, None) == access(URL, None)
    assert access(URL, None).bearer_token == ""
    assert access(URL, None).basic is None


def test_a_token_or_a_user_with_a_password(tmp_path: Path) -> None:
    found = access(URL, folder_of(tmp_path, token="abc\n"))
    assert (found.url, found.bearer_token, found.basic, found.certificates) == (URL, "abc", None, None)
    (tmp_path / "token").unlink()
    found = access(URL, folder_of(tmp_path, username="me\n", password="a b\n"))
    assert (found.bearer_token, found.basic) == ("", ("me", "a b"))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "has none of the files token, username"),
        ({"token": "a b"}, "is no bearer token"),
        ({"token": "a", "username": "me", "password": "b"}, "exclude each other"),
        ({"username": "me"}, "username and password go together"),
        ({"tls_key": "k"}, r"tls\.crt and tls\.key go together"),
        ({"ca_crt": "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n"}, "no usable PEM"),
        ({"tls_crt": "no", "tls_key": "no"}, "no usable PEM"),
    ],
)
def test_what_cannot_be_used_is_said_with_the_remedy(tmp_path: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(SchedulerError, match=said):
        access(URL, folder_of(tmp_path, **files))


def test_a_token_that_is_renewed_is_sent_from_then_on(tmp_path: Path, caplog) -> None:
    folder = folder_of(tmp_path, token="old")

    async def play() -> list[str]:
        seen: list[str] = []
        refused, answered = asyncio.Event(), asyncio.Event()

        async def query(request: web.Request) -> web.Response:
            seen.append(request.headers.get("Authorization", ""))
            if seen[-1] != "Bearer new":
                refused.set()
                return web.Response(status=401, text="no")
            if len(seen) > 2 and seen[-2] == "Bearer new":
                answered.set()  # what was answered before has been taken over
            values = {"cpu": "0.5", "memory": "0.25", "sampled": "4e9"}
            series = [{"metric": {"node": "a", QUANTITY: name}, "value": [0, value]} for name, value in values.items()]
            body = {"status": "success", "data": {"resultType": "vector", "result": series}}
            return web.Response(text=json.dumps(body), content_type="application/json")

        application = web.Application()
        application.router.add_post("/api/v1/query", query)
        async with TestServer(application) as server:
            options = {"prometheus_url": str(server.make_url("")), "prometheus_credentials": folder}
            metrics = NodeMetrics(cache_of(node("a")), Settings(node_metrics_seconds=1, **options))
            task = asyncio.create_task(metrics.run())
            async with asyncio.timeout(60):
                await refused.wait()
                (folder / "token").write_text("new")
                await answered.wait()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert metrics.of("a")["cpu"] == 0.5
        return seen

    seen = asyncio.run(play())
    assert (seen[0], seen[-1]) == ("Bearer old", "Bearer new")
    said = [record.message for record in caplog.records]
    assert any(text.startswith("node metrics cannot be read: ") for text in said)
    assert said[-1] == "node metrics are read again"
