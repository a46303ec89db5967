"""Suggestion servers with a fault: one that answers late, one that never does, and one that closes connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Fault(StrEnum):
    """What is wrong with a server."""

    LATE = "late"
    """It is ready, and answers each question after 30 seconds."""
    NEVER = "never"
    """It is ready, and answers no question."""
    CLOSES = "closes"
    """It reads each question and closes the connection; whether it is ready cannot be found out either."""


LATE_SECONDS = 30.0


@contextmanager
def faulty_server(fault: Fault) -> Iterator[str]:
    """The URL of such a server."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._hang_up() if fault is Fault.CLOSES else self._answer(200)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            if fault is Fault.CLOSES:
                self._hang_up()
            elif not ended.wait(LATE_SECONDS if fault is Fault.LATE else None):
                self._answer(204)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *arguments: object) -> None:
            del arguments

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that has given up is what is played."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
