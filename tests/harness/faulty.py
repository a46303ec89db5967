"""Suggestion servers with a fault: one that answers late, one that never does, and one that closes connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from tests.harness.serving import Quiet, serving


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

    class Handler(Quiet):
        def do_GET(self) -> None:  # noqa: N802
            self._hang_up() if fault is Fault.CLOSES else self.answer(200, b"")

        def do_POST(self) -> None:  # noqa: N802
            self.body()
            if fault is Fault.CLOSES:
                self._hang_up()
            elif not ended.wait(LATE_SECONDS if fault is Fault.LATE else None):
                self.answer(204, b"")

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    with serving(Handler) as url:
        try:
            yield url
        finally:
            ended.set()
