"""The page of `rlscaler ui` on a small API server that lists and watches policies, for tests without a cluster."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
from aiohttp import web
from kubernetes.aio.client import Configuration

from rlscaler_live.ui.server import Options, Page
from rlscaler_operator.cluster.kube import ReadOnly

TOKEN = "secret"


class Cluster:
    """Lists and watches custom objects; `forbidden` maps paths to the message of a refusal."""

    def __init__(self, bodies: Iterable[dict[str, Any]] = ()) -> None:
        self.objects = {(b["kind"], b["metadata"].get("namespace"), b["metadata"]["name"]): b for b in bodies}
        self.forbidden: dict[str, str] = {}
        self.answers: dict[str, Any] = {}
        self.requests: Counter[str] = Counter()
        self._watches: set[tuple[str, asyncio.Queue[dict[str, Any]]]] = set()

    def put(self, body: dict[str, Any], event: str = "MODIFIED") -> None:
        """Send an object to all watches of its kind."""
        key = (body["kind"], body["metadata"].get("namespace"), body["metadata"]["name"])
        if event == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = body
        body["metadata"]["resourceVersion"] = "2"
        for kind, queue in self._watches:
            if kind == body["kind"]:
                queue.put_nowait({"type": event, "object": body})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.requests["watch" if "watch" in request.query else path] += 1
        if message := self.forbidden.get(path):
            return web.json_response({"message": message}, status=403)
        if path in self.answers:
            answer = self.answers[path]
            return web.json_response(answer(request) if callable(answer) else answer)
        plural = path.rpartition("/")[2]
        kind = {"rlscalingpolicies": "RLScalingPolicy", "rlscalingbudgets": "RLScalingBudget"}.get(plural)
        if kind is None:
            return web.json_response({"message": "not found"}, status=404)
        if request.query.get("watch") == "true":
            return await self._watch(request, kind)
        space = path.split("/")[5] if "/namespaces/" in path else None
        items = [body for key, body in self.objects.items() if key[0] == kind and space in (None, key[1])]
        return web.json_response({"items": items, "metadata": {"resourceVersion": "1"}})

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        response, queue = web.StreamResponse(), asyncio.Queue[dict[str, Any]]()
        self._watches.add((kind, queue))
        try:
            await response.prepare(request)
            while True:
                await response.write(json.dumps(await queue.get()).encode() + b"\n")
        finally:
            self._watches.discard((kind, queue))


class Served:
    """A page that is served, and the cluster behind it."""

    def __init__(self, url: str, cluster: Cluster, page: Page, session: aiohttp.ClientSession) -> None:
        self.port = url.rpartition(":")[2]
        self.url, self.cluster, self.page, self.session = url, cluster, page, session

    async def get(self, path: str, status: int = 200, **headers: str) -> str:
        """Return the text of an answer to a visitor with the token's cookie."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.url + path, headers=headers, allow_redirects=False) as response:
            text = await response.text()
            assert response.status == status, (response.status, text)
            return text

    async def until(self, path: str, text: str) -> None:
        """Wait until a page shows a text."""
        async with asyncio.timeout(120):
            while True:
                if text in await self.get(path):
                    return
                await asyncio.sleep(0.01)


@asynccontextmanager
async def served(cluster: Cluster, **options: Any) -> AsyncIterator[Served]:
    """Serve the page of a cluster, on a free port, until the block ends."""
    async with _listening(web.AppRunner(_application(cluster), shutdown_timeout=0.1)) as server:
        kube = ReadOnly(Configuration(host=server))
        page = Page(kube, "ns", Options(**options))
        following = asyncio.create_task(page.follow())
        async with _listening(web.AppRunner(page.app(TOKEN), access_log=None)) as url:
            cookies = {f"rlscaler-ui-{url.rpartition(':')[2]}": TOKEN}
            jar = aiohttp.CookieJar(unsafe=True)
            async with aiohttp.ClientSession(cookies=cookies, cookie_jar=jar) as session:
                yield Served(url, cluster, page, session)
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await kube.close()


def _application(cluster: Cluster) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.answer)
    return app


@asynccontextmanager
async def _listening(runner: web.AppRunner) -> AsyncIterator[str]:
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
