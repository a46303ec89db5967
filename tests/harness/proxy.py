"""An HTTP proxy in front of a real server that answers wrongly, late or not at all when a test says so.

It stands between an operator and the API server or Prometheus, so that every other client keeps its good connection.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, TraceConfig, web
from yarl import URL

HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "content-encoding", "keep-alive", "host"}


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for."""

    method: str
    path: str
    query: str
    body: bytes
    time: float
    """Monotonic, when it arrived."""

    @property
    def scales(self) -> bool:
        """Is it a write of replicas?"""
        return self.method == "PATCH" and self.path.endswith("/scale")

    @property
    def watches(self) -> bool:
        return "watch=true" in self.query


Match = Callable[[Request], bool]


def anything(_: Request) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request. The first of these that is set counts, after `delay_seconds`."""

    delay_seconds: float = 0.0
    drop: bool = False
    """Close the connection without an answer."""
    status: int = 0
    """Answer with this, without asking the server."""
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    change: Callable[[bytes], bytes] | None = None
    """Change the body of the server's answer."""


@dataclass(eq=False)
class Hold:
    """Stops the first request that matches, before or after the server has done it."""

    match: Match
    after: bool
    reached: threading.Event = field(default_factory=threading.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    taken: bool = False


class Proxy:
    """Listens on 127.0.0.1, in a thread with an event loop of its own."""

    def __init__(self, upstream: str, context: ssl.SSLContext | None = None) -> None:
        self._upstream, self._context = upstream.rstrip("/"), context
        self._faults: list[tuple[Match, Fault]] = []
        self._holds: list[Hold] = []
        self._streams: list[web.BaseRequest] = []
        self._connecting = 0
        """Connections to the server that are being made."""
        self._closing = False
        self.seen: list[Request] = []
        """All requests, in the order of their arrival."""
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()
        self._call(self._open())
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        for hold in self._holds:
            self._loop.call_soon_threadsafe(hold.released.set)
        self._closing = True
        self._call(self._settle())
        # Requests that are under way would open connections of a session that is closed already.
        self._call(_cancel_all())
        self._call(self._shut())
        self._call(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def fault(self, fault: Fault, match: Match = anything) -> Iterator[None]:
        """Spoil the requests that match while the block runs."""
        entry = (match, fault)
        self._faults.append(entry)
        try:
            yield
        finally:
            self._faults.remove(entry)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections while the block runs."""
        self._call(self._shut())
        try:
            yield
        finally:
            self._call(self._open())

    @contextmanager
    def hold(self, match: Match, *, after: bool = False) -> Iterator[Hold]:
        """Stop the next request that matches until the block ends; `after` = once the server has done it."""
        hold = Hold(match, after)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self._holds.remove(hold)
            self._loop.call_soon_threadsafe(hold.released.set)

    def cut(self) -> None:
        """Break every stream that is open."""
        self._call(self._cut())

    def _call(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    async def _open(self) -> None:
        connector = TCPConnector(ssl=self._context or True, limit=0)
        trace = TraceConfig()
        trace.on_connection_create_start.append(self._begin_connecting)
        trace.on_connection_create_end.append(self._end_connecting)
        self._session = ClientSession(
            connector=connector, timeout=ClientTimeout(total=None), auto_decompress=True, trace_configs=[trace]
        )
        self._connecting = 0
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)  # type: ignore[arg-type]
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _begin_connecting(self, *_: object) -> None:
        self._connecting += 1

    async def _end_connecting(self, *_: object) -> None:
        self._connecting -= 1

    async def _settle(self) -> None:
        """Wait for connections that are being made: one that is cancelled in its handshake leaves its socket open."""
        for _ in range(100):
            if self._connecting <= 0:
                return
            await asyncio.sleep(0.02)

    async def _shut(self) -> None:
        await self._cut()
        await self._settle()
        await self._runner.cleanup()
        await self._session.close()

    async def _cut(self) -> None:
        for stream in list(self._streams):
            if stream.transport is not None:
                stream.transport.abort()

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        if self._closing:
            return web.Response(status=503)
        path, _, query = incoming.path_qs.partition("?")
        request = Request(incoming.method, path, query, await incoming.read(), time.monotonic())
        self.seen.append(request)
        fault = next((fault for match, fault in self._faults if match(request)), Fault())
        hold = next((h for h in self._holds if not h.taken and h.match(request)), None)
        if hold is not None:
            hold.taken = True
        if hold is not None and not hold.after:
            await self._stop(hold)
        await asyncio.sleep(fault.delay_seconds)
        if fault.drop:
            if incoming.transport is not None:
                incoming.transport.abort()
            return web.Response(status=502)
        if fault.status:
            response = web.Response(status=fault.status, body=fault.body, content_type=fault.content_type)
            response.headers.extend(fault.headers)
            return response
        return await self._forward(incoming, request, fault, hold if hold is not None and hold.after else None)

    async def _stop(self, hold: Hold) -> None:
        hold.reached.set()
        await hold.released.wait()

    async def _forward(
        self, incoming: web.BaseRequest, request: Request, fault: Fault, hold: Hold | None
    ) -> web.StreamResponse:
        headers = {k: v for k, v in incoming.headers.items() if k.lower() not in HOP_HEADERS}
        url = self._upstream + incoming.path_qs
        try:
            async with self._session.request(
                incoming.method, _verbatim(url), data=request.body or None, headers=headers, allow_redirects=False
            ) as answer:
                kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_HEADERS}
                if request.watches:
                    return await self._stream(incoming, web.StreamResponse(status=answer.status, headers=kept), answer)
                body = await answer.read()
        except (ClientError, OSError):
            return web.Response(status=502, text="the server behind the proxy does not answer")
        if hold is not None:
            await self._stop(hold)
        return web.Response(status=answer.status, headers=kept, body=fault.change(body) if fault.change else body)

    async def _stream(
        self, incoming: web.BaseRequest, response: web.StreamResponse, answer: object
    ) -> web.StreamResponse:
        self._streams.append(incoming)
        with suppress(ClientError, OSError):
            await response.prepare(incoming)
            async for chunk in answer.content.iter_any():  # type: ignore[attr-defined]
                await response.write(chunk)
        self._streams = [stream for stream in self._streams if stream is not incoming]
        return response


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # Transports that were aborted close their sockets in the loop's next rounds.
    await asyncio.sleep(0.1)


def _verbatim(url: str) -> URL:
    """The URL as the client escaped it."""
    return URL(url, encoded=True)
