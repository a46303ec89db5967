"""Kafka client in a process of its own, so that a fault in the client library does not end the operator."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing.connection import Pipe

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.kafka_access import KafkaAccess, client_settings
from rlscaler_operator.sensing.kafka_client import Answer, Cluster, GroupTopics

log = logging.getLogger("rlscaler.kafka")

MODULE = "rlscaler_operator.sensing.kafka_process"

ENDED = "KafkaClientEnded"
"""Reason of a request that the process did not answer."""

START_SECONDS = 20.0
"""Longest start of the process, on a machine that is busy otherwise."""

ROUNDS = 4
"""Requests that follow one another in a look: topics, groups, commits and ends."""


class Brokers:
    """Kafka clusters of all policies. The process starts with the first request."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._process: _Process | None = None

    async def look(self, access: KafkaAccess, wanted: Sequence[GroupTopics]) -> dict[GroupTopics, Answer]:
        """Ask for all of `wanted` at once. A failure is the answer for the groups that it concerns; never raises."""
        try:
            if access.refused is not None:
                reason, text = access.refused
                raise MetricsError(text, reason)
            return await self._ask(self._cluster(access), wanted)
        except MetricsError as error:
            return dict.fromkeys(wanted, error)
        except Exception as error:
            log.exception("%s could not be read", ", ".join(access.servers))
            text = f"{_named(access)} cannot be read: {error}"
            return dict.fromkeys(wanted, MetricsError(text, "BrokerUnreachable"))

    def close(self) -> None:
        """End the process; open requests get an error."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _cluster(self, access: KafkaAccess) -> Cluster:
        settings = client_settings(access, self._timeout_seconds)
        user = "ANONYMOUS" if access.login is None else access.login[1]
        return Cluster(tuple(sorted(settings.items())), _named(access), user)

    async def _ask(self, cluster: Cluster, wanted: Sequence[GroupTopics]) -> dict[GroupTopics, Answer]:
        """Ask the process; one that has ended, or ends now, is replaced once. Raises MetricsError."""
        process = self._process
        if process is not None:
            try:
                return await self._answer(process, cluster, wanted)
            except EndedError as error:
                log.warning("%s", error)
        if self._process is process or self._process is None:  # another request may have replaced it already
            self._process = _Process(self._timeout_seconds)
        return await self._answer(self._process, cluster, wanted)

    async def _answer(
        self, process: _Process, cluster: Cluster, wanted: Sequence[GroupTopics]
    ) -> dict[GroupTopics, Answer]:
        # Each round may take the timeout of a request, and a second for the work around it.
        longest = START_SECONDS + ROUNDS * (self._timeout_seconds + 1)
        try:
            return await asyncio.wait_for(process.ask(cluster, wanted), longest)
        except TimeoutError:
            process.end()
            raise MetricsError(f"{cluster.name}: the Kafka client hangs and is started anew", ENDED) from None


class EndedError(MetricsError):
    """Raised where the Kafka client's process ended before it answered."""

    reason = ENDED


class _Process:
    """The process and its open requests."""

    def __init__(self, timeout_seconds: float) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            inherited = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(inherited), str(timeout_seconds)],
                pass_fds=[inherited],
                stdin=subprocess.DEVNULL,
            )
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._open: dict[int, Future[dict[GroupTopics, Answer]]] = {}
        self._over = False
        threading.Thread(target=self._read, name="kafka", daemon=True).start()

    async def ask(self, cluster: Cluster, wanted: Sequence[GroupTopics]) -> dict[GroupTopics, Answer]:
        """Send a request and wait for its answer. Raises EndedError."""
        future: Future[dict[GroupTopics, Answer]] = Future()
        with self._lock:
            if self._over:
                raise self._ended()
            number = next(self._numbers)
            self._open[number] = future
        # In a thread: a process that hangs blocks the sender once its buffer is full.
        await asyncio.to_thread(self._send, (number, cluster, list(wanted)))
        return await asyncio.wrap_future(future)

    def _send(self, request: tuple[int, Cluster, list[GroupTopics]]) -> None:
        with self._sending, contextlib.suppress(OSError):  # the reading thread reports the end of the process
            self._connection.send(request)

    def end(self) -> None:
        self._process.kill()

    def _read(self) -> None:
        try:
            while True:
                number, answers = self._connection.recv()
                with self._lock:
                    future = self._open.pop(number)
                if future.set_running_or_notify_cancel():
                    future.set_result(answers)
        except (EOFError, OSError):
            self._process.kill()
        self._process.wait()
        with self._lock:
            self._over = True
            left, self._open = list(self._open.values()), {}
            self._connection.close()
        for future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(self._ended())

    def _ended(self) -> EndedError:
        code = self._process.returncode
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        return EndedError(f"the Kafka client ended ({how}) and is started anew")


def _named(access: KafkaAccess) -> str:
    return f"Kafka {', '.join(access.servers)}"
