"""Connections to the server: a bounded number, so that callers who only open them take no memory."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

MOST_CONNECTIONS = 128
"""Connections at once, handshakes included. kube-scheduler, Prometheus and the kubelet need some ten; each one takes up
to half a mebibyte."""

HANDSHAKE_SECONDS = 5.0

PAUSE_SECONDS = 0.1
"""Pause where the system has no more descriptors for connections."""

LIMITS: dict[str, Any] = {
    "lingering_time": 1.0,
    "read_bufsize": 2**15,
    "max_headers": 48,
    "max_field_size": 4096,
    "max_line_size": 4096,
}
"""Bounds of aiohttp's request handler: how much of a connection is in memory before a call is answered."""


class Door:
    """Accepts connections for a server; where there are too many, the oldest of an unknown caller is ended."""

    def __init__(
        self, server: web.Server, known: Callable[[RequestHandler], bool], tls: Callable[[], ssl.SSLContext | None]
    ) -> None:
        self._server, self._known, self._tls = server, known, tls
        self._greeted: dict[asyncio.Task[None], None] = {}
        """Handshakes under way, the oldest first."""

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError:
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                if not self._room():
                    connection.close()
                    continue
                task = loop.create_task(self._greet(connection))
                self._greeted[task] = None
                task.add_done_callback(lambda done: self._greeted.pop(done, None))
        finally:
            for task in list(self._greeted):
                task.cancel()

    def _room(self) -> bool:
        """Make room for one more connection; False where all callers are known."""
        connections = self._server.connections
        if len(connections) + len(self._greeted) < MOST_CONNECTIONS:
            return True
        if len(self._greeted) > MOST_CONNECTIONS // 2:
            # Half of the room at most is for handshakes that may never end.
            oldest = next(iter(self._greeted))
            self._greeted.pop(oldest)
            oldest.cancel()
            return True
        for handler in connections:
            if handler.transport is not None and not handler.transport.is_closing() and not self._known(handler):
                handler.transport.abort()
                return True
        return False

    async def _greet(self, connection: socket.socket) -> None:
        tls = self._tls()
        timeout = HANDSHAKE_SECONDS if tls else None
        # A caller that ends its handshake, or fails in it, is none of the server's errors.
        with suppress(OSError, TimeoutError):
            await asyncio.get_running_loop().connect_accepted_socket(
                self._server, connection, ssl=tls, ssl_handshake_timeout=timeout
            )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises OSError."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.create_server(address[:2], family=family, backlog=MOST_CONNECTIONS)
    listener.setblocking(False)
    return listener
