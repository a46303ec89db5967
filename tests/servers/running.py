"""Real servers as processes, and a load for them.

`RLSCALER_SERVERS_PYTHON` names a Python that has Ray Serve, llama.cpp and Envoy, `RLSCALER_VLLM_PYTHON` one that has
vLLM; docs/development.md says how they are made.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PYTHON = os.environ.get("RLSCALER_SERVERS_PYTHON", "")
VLLM_PYTHON = os.environ.get("RLSCALER_VLLM_PYTHON", "")

MOST_IN_FLIGHT = 200
PATIENCE_SECONDS = 60


@contextmanager
def server(script: str, *arguments: str, python: str = PYTHON) -> Iterator[int]:
    """Run a script of this folder until it says `ready`, and give its process id; it ends when its input does."""
    path = Path(__file__).parent / script
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([python, str(path), *arguments], stdin=pipe, stdout=pipe, stderr=log, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ready = any(line.strip() == "ready" for line in process.stdout)
            assert ready, f"the server ended before it was ready: {_end(log)}"
            yield process.pid
        finally:
            process.stdin.close()
            process.stdout.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _end(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")[-4000:]


def answered(url: str, body: bytes | None) -> bool:
    """Send one request and wait for its answer."""
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).read()
    except OSError:
        return False
    return True


def carried(url: str, body: bytes | None, clients: int, seconds: float) -> float:
    """Requests/s that a server answers under full load: `clients` that ask again as soon as they have an answer."""
    counts, over = [0] * clients, threading.Event()

    def ask(client: int) -> None:
        while not over.is_set():
            counts[client] += answered(url, body)

    with ThreadPoolExecutor(clients) as threads:
        for client in range(clients):
            threads.submit(ask, client)
        over.wait(seconds / 5)
        begin, before = time.monotonic(), sum(counts)
        over.wait(seconds)
        found = (sum(counts) - before) / (time.monotonic() - begin)
        over.set()
    return found


@contextmanager
def load(url: str, body: bytes | None, rate: float | Callable[[float], float]) -> Iterator[list[float]]:
    """Send requests as many users do (a Poisson process), whatever comes back; gives the times at which they were sent.

    `rate` is in requests/s, or says it from the seconds since the begin.
    """
    sent: list[float] = []
    over, drawn = threading.Event(), random.Random(7)

    def send() -> None:
        with ThreadPoolExecutor(MOST_IN_FLIGHT) as threads:
            begin = due = time.monotonic()
            while not over.wait(max(0.0, due - time.monotonic())):
                due += drawn.expovariate(rate(due - begin) if callable(rate) else rate)
                sent.append(time.time())
                threads.submit(answered, url, body)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield sent
    finally:
        over.set()
        sender.join()
