"""Round trips to the addresses of users: seconds until a TCP connection is open, or until an HTTP server answers.

A round is some samples of every target, one after the other with pauses, so that the traffic is bounded and one burst
of other traffic does not decide. The median counts; a sample without an answer counts as infinitely long, so that a
target which answers less than half of them has no latency.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp

PAUSE_SECONDS = 0.1
"""Between two samples of a target: at most ten a second are sent, however near it is."""

FAILURES = (OSError, aiohttp.ClientError, TimeoutError)
"""Ways in which a target does not answer."""

RoundTrip = Callable[[], Awaitable[None]]


class Target(NamedTuple):
    """An address of users."""

    name: str
    host: str
    port: int
    url: str
    """URL of an HTTP request; empty = a TCP connection is opened."""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `name=host:port` or `name=http(s)://...`. Raises ValueError."""
        name, _, address = text.partition("=")
        url = address if address.startswith(("http://", "https://")) else ""
        try:
            parts = urlsplit(url or f"//{address}")
            port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}; write it as NAME=HOST:PORT or NAME=URL") from error
        if not name or not parts.hostname or not port or (not url and parts.path):
            raise ValueError(f"{text!r} is no target: write it as NAME=HOST:PORT or NAME=URL")
        return cls(name, parts.hostname, port, url)


async def measure(target: Target, samples: int, timeout_seconds: float) -> float:
    """Return the median round trip in milliseconds; NaN where fewer than half of the samples were answered."""
    try:
        async with (_http if target.url else _tcp)(target, timeout_seconds) as once:
            taken = [await _timed(once, timeout_seconds, pause=index > 0) for index in range(samples)]
    except FAILURES:
        return math.nan
    middle = median(taken)
    return middle if math.isfinite(middle) else math.nan


async def _timed(once: RoundTrip, timeout_seconds: float, pause: bool) -> float:
    """Milliseconds of one round trip; infinite where there is no answer."""
    if pause:
        await asyncio.sleep(PAUSE_SECONDS)
    began = time.perf_counter()
    try:
        async with asyncio.timeout(timeout_seconds):
            await once()
    except FAILURES:
        return math.inf
    return 1000.0 * (time.perf_counter() - began)


@asynccontextmanager
async def _tcp(target: Target, timeout_seconds: float) -> AsyncIterator[RoundTrip]:
    """Opens a connection each time, which takes one round trip. The name is looked up before, once."""
    async with asyncio.timeout(timeout_seconds):
        addresses = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    address = str(addresses[0][4][0])

    async def once() -> None:
        _, writer = await asyncio.open_connection(address, target.port)
        # Abort, not close: no second round trip belongs to the measurement.
        writer.transport.abort()

    yield once


@asynccontextmanager
async def _http(target: Target, timeout_seconds: float) -> AsyncIterator[RoundTrip]:
    """Uses one connection, which is opened before: the time of an answer of any status, without its body."""
    async with aiohttp.ClientSession() as session:

        async def once() -> None:
            # HEAD without redirects: the round trip to this address, without a body.
            async with session.head(target.url, allow_redirects=False):
                return

        async with asyncio.timeout(timeout_seconds):
            # The first answer opens the connection and does not count.
            await once()
        yield once
