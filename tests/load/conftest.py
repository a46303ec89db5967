"""The real service as a process, on free ports of the loopback address."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

SERVICE = [sys.executable, "-c", "from rlscaler_loadgen.cli import service; service()"]
READY = re.compile(r"serving (http://\S+), metrics (http://\S+)")


@dataclass(frozen=True)
class Served:
    """A running service."""

    process: subprocess.Popen[str]
    url: str
    metrics_url: str

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(10)


Start = Callable[..., Served]


@pytest.fixture
def start_service() -> Iterator[Start]:
    """Starts `rlscaler service ...` on free ports and waits for its ready line."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> Served:
        process = subprocess.Popen(
            [*SERVICE, *arguments, "--port", "0", "--metrics-port", "0"], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        found = READY.search(line)
        assert found, f"the service did not start: {line!r}"
        return Served(process, *found.groups())

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
