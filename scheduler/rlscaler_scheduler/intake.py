"""Bodies of calls: bounds on bytes, nesting and time, so that no caller takes all memory or holds up others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

import numpy as np
from aiohttp import web

MEBI = 2**20

LONGEST_READ_SECONDS = 5.0
"""Seconds within which a caller must have sent its call; a call that never ends holds up no other."""

MOST_BYTES = 64 * MEBI
"""Bytes of all bodies in memory together. Half of them are kept free for small bodies."""

SMALL_BYTES = 256 * 1024
"""Bytes of a small body, which the event loop reads by itself in a millisecond or two: names of 8,000 nodes."""

MOST_QUEUED = 4
"""Larger bodies that wait for the one thread that reads them, or are being read."""

MOST_NESTED = 64
"""Depth of JSON; a Pod of the API has some 20 levels."""

MOST_PARTS = 2**18
"""Values of a JSON text, counted as half of its brackets and commas.
Python takes 60 bytes and more for each, however short."""

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

Read = TypeVar("Read")


class RefusedError(Exception):
    """Raised for a call that is not read; the message says why, and `status` is the HTTP status of the answer."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Intake:
    """The only way by which bodies come in."""

    def __init__(self, largest: int) -> None:
        """Bound a body to `largest` bytes."""
        self._largest = largest
        self._held = 0
        self._queued = 0
        # One thread: memory for one parsed text at a time, and the event loop has its turns between two of them.
        self._reader = ThreadPoolExecutor(1, "reader")

    def close(self) -> None:
        """End the thread."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def body(self, request: web.Request, largest: int | None = None) -> AsyncIterator[bytes]:
        """Read the body, and count its bytes until the context ends. Raises RefusedError and TimeoutError."""
        most = self._largest if largest is None else largest
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise RefusedError(415, "invalid", "a compressed call is not read: send it without Content-Encoding")
        if (request.content_length or 0) > most:
            raise _too_large(most)
        body = bytearray()
        try:
            async with asyncio.timeout(LONGEST_READ_SECONDS):
                async for piece in request.content.iter_any():
                    if len(body) + len(piece) > most:
                        raise _too_large(most)
                    self._held += len(piece)
                    body += piece
                    free = MOST_BYTES if len(body) <= SMALL_BYTES else MOST_BYTES // 2
                    if self._held > free:
                        raise RefusedError(503, "busy", "too many calls are being sent at once: send it again later")
            yield bytes(body)
        finally:
            self._held -= len(body)

    async def read(self, read: Callable[[bytes], Read], body: bytes) -> Read:
        """Return the result of `read` for the body, on another thread for a large body. Raises RefusedError."""
        if len(body) <= SMALL_BYTES:
            return _bounded(read, body)
        if self._queued >= MOST_QUEUED:
            raise RefusedError(429, "busy", f"{MOST_QUEUED} large calls are being read: send it again later")
        self._queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, _bounded, read, body)
        finally:
            self._queued -= 1


def check_json(text: bytes) -> None:
    """Check the bounds of a JSON text before it is parsed. Raises RefusedError."""
    # Brackets and commas within strings count here; only where there are too many are the strings taken out.
    if max(_shape(text)) > 1 and max(_shape(_TEXT.sub(b'""', text))) > 1:
        told = f"JSON of more than {MOST_PARTS} values, or deeper than {MOST_NESTED}, is not read"
        raise RefusedError(413, "invalid", f"{told}: send names of nodes (nodeCacheCapable: true), not whole nodes")


def _shape(text: bytes) -> tuple[float, float]:
    """Return depth and number of values, as shares of the most that is read."""
    marks = {mark: text.count(mark) for mark in (b"[", b"{", b"]", b"}", b",")}
    parts = sum(marks.values()) / (2 * MOST_PARTS)
    # Positions take memory, so they are looked for only where there are few.
    if parts > 1:
        return 0.0, parts
    codes = np.frombuffer(text, np.uint8)
    opens = (codes == ord("[")) | (codes == ord("{"))
    at = np.flatnonzero(opens | (codes == ord("]")) | (codes == ord("}")))
    depth = np.cumsum(np.where(opens[at], 1, -1)).max(initial=0)
    return float(depth) / MOST_NESTED, parts


def _bounded(read: Callable[[bytes], Read], body: bytes) -> Read:
    try:
        return read(body)
    except RecursionError as error:
        raise RefusedError(400, "invalid", "the JSON is nested too deeply") from error


def _too_large(most: int) -> RefusedError:
    text = (
        f"a call of more than {most} bytes is not read: send names of nodes (nodeCacheCapable: true), not whole nodes"
    )
    return RefusedError(413, "too_large", f"{text}, or start the server with a larger --largest-call-mib")
