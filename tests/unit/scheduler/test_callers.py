"""Callers of the suggestion server: by certificate, by token, and how kube-scheduler is told to bring them."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import pytest
from aiohttp import ClientConnectorError, ClientSession, ServerDisconnectedError, web
from aiohttp.test_utils import TestClient, TestServer

from rlscaler_scheduler.callers import token_of
from rlscaler_scheduler.configuration import configuration
from rlscaler_scheduler.door import LIMITS, Door, listen
from rlscaler_scheduler.explain import NotFoundError, ask
from rlscaler_scheduler.settings import SchedulerError
from tests.harness.placed import node
from tests.unit.operator.test_access import Authority
from tests.unit.scheduler.test_robustness import asked, server_of

POSTS = ("/filter", "/prioritize", "/score")
FOR_ALL = ("/metrics", "/healthz", "/readyz")


async def test_without_the_token_nobody_moves_or_reads_placements(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    server = server_of(node("a"), node("b"), caller_token_file=token)
    async with TestClient(TestServer(server.application())) as client:
        for headers in ({}, {"Authorization": "Bearer other"}):
            assert [(await client.post(path, json=asked(), headers=headers)).status for path in POSTS] == [401] * 3
            assert (await client.get("/suggestions", headers=headers)).status == 401
        assert [(await client.get(path)).status for path in FOR_ALL] == [200] * 3
        first, second = ({"Authorization": f"Bearer {text}"} for text in ("first", "second"))
        assert (await client.post("/filter", json=asked(), headers=first)).status == 200
        (tmp_path / "new").write_text("second")
        os.replace(tmp_path / "new", token)
        assert (await client.post("/filter", json=asked(), headers=first)).status == 401
        assert (await client.post("/filter", json=asked(), headers=second)).status == 200
        token.write_text("")
        assert (await client.post("/filter", json=asked(), headers=second)).status == 200, "an empty file is no token"
        metrics = await (await client.get("/metrics")).text()
    assert 'declined_total{reason="unknown_caller"} 9.0' in metrics
    assert "rlscaler_scheduler_open 0.0" in metrics


async def test_without_authority_and_token_the_server_says_that_it_is_open() -> None:
    async with TestClient(TestServer(server_of(node("a")).application())) as client:
        assert "rlscaler_scheduler_open 1.0" in await (await client.get("/metrics")).text()


def write(folder: Path, authority: Authority) -> Path:
    folder.mkdir(exist_ok=True)
    for name, key in (("tls.crt", "certificate"), ("tls.key", "private_key"), ("ca.crt", "ca")):
        (folder / name).write_text(authority.texts[key])
    return folder


async def test_a_certificate_of_the_authority_lets_in_and_another_does_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    own, client = (write(tmp_path / name, authority) for name in ("own", "client"))
    server = server_of(node("a"), node("b"), tls_folder=own)
    other = write(tmp_path / "foreign", Authority(tmp_path / "other"))
    runner = web.AppRunner(server.application(), **LIMITS)
    await runner.setup()

    def shown(folder: Path | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(own / "ca.crt"))
        if folder is not None:
            context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        return context

    async def status(folder: Path | None, path: str = "/filter") -> int:
        async with ClientSession() as session:
            call = session.get if path in FOR_ALL else session.post
            body = {} if path in FOR_ALL else {"json": asked()}
            async with call(f"https://127.0.0.1:{port}{path}", ssl=shown(folder), **body) as answer:
                return answer.status

    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        task = asyncio.create_task(Door(runner.server, server.knows, server.callers.tls).serve(listener))
        assert await status(client) == 200
        assert await status(None) == 401
        assert await status(None, "/readyz") == 200, "the kubelet's probes show none"
        with pytest.raises((ClientConnectorError, ServerDisconnectedError, OSError)):
            await status(other)
        with pytest.raises(NotFoundError, match="no pod shop/none is pending"):
            await asyncio.to_thread(ask, f"https://127.0.0.1:{port}", "shop", "none", client)
        write(own, authority)
        assert await status(client) == 200, "the certificate was renewed"
        task.cancel()
    await runner.cleanup()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match=r"tls\.crt, tls\.key or ca\.crt is missing"):
        server_of(tls_folder=tmp_path)
    (tmp_path / "token").write_text(" \n")
    with pytest.raises(SchedulerError, match="write a token into it"):
        token_of(tmp_path / "token")


def test_kube_scheduler_is_told_what_to_show() -> None:
    files = {"caFile": "/c/ca.crt", "certFile": "/c/tls.crt", "keyFile": "/c/tls.key"}
    (extender,) = configuration("https://s:8899", credentials="/c")["extenders"]
    assert (extender["enableHTTPS"], extender["tlsConfig"]) == (True, files)
    told = configuration("https://s:8899", plugin=True, credentials="/c/", token_file="/t/token")
    arguments = told["profiles"][0]["pluginConfig"][0]["args"]
    assert arguments.items() >= (files | {"tokenFile": "/t/token"}).items()
    with pytest.raises(ValueError, match="begin the url with https"):
        configuration("http://s:8899", credentials="/c")
    with pytest.raises(ValueError, match="an extender sends no token"):
        configuration("https://s:8899", token_file="/t/token")
