"""The demo's child processes: started in groups of their own, watched, and ended without leaving anything behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from rlscaler_dev.exceptions import ChildError, DemoError

POLL_SECONDS = 0.05
REFRESH_SECONDS = 0.5
"""Time between two requests to a cluster."""
TAIL_LINES = 15
GRACE_SECONDS = 10.0
"""Time that a child has to end after SIGTERM before it is killed."""


@dataclass(slots=True)
class Child:
    """One process and where its output goes."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def failure(self, what: str) -> ChildError:
        """An error that shows how the child ended and the last lines it wrote."""
        code = self.process.poll()
        ended = "" if code is None else f" ({_exit(code)})"
        return ChildError(f"{self.name} {what}{ended}. The end of {self.log}:\n{tail(self.log)}")


class Supervisor:
    """Starts children, notices when one ends by itself, and ends them in the reverse order."""

    def __init__(self, logs: Path, mark: Mapping[str, str]) -> None:
        self._logs = logs
        self._mark = mark
        self._children: dict[str, Child] = {}

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        """Start `command` with the environment given, by default this process' own; output goes to LOGS/NAME.log.

        Raises ChildError when it cannot be started at all.
        """
        log = self._logs / f"{name}.log"
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**(environment or os.environ), "PYTHONUNBUFFERED": "1", **self._mark},
                    start_new_session=True,
                )
        except OSError as error:
            raise ChildError(f"{name} cannot be started: {command[0]}: {error.strerror}") from error
        child = Child(name, process, log)
        self._children[name] = child
        return child

    def check(self, apart_from: Sequence[Child] = ()) -> None:
        """Raise ChildError when a child has ended by itself."""
        for child in self._children.values():
            if child not in apart_from and not child.running:
                raise child.failure("ended unexpectedly")

    def wait_until(self, child: Child, ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Wait for `ready`; raises ChildError at once when any child ends, or when the time is over."""
        if self._waits_for(lambda: "" if ready() else child.name, timeout_seconds, POLL_SECONDS):
            raise child.failure(f"was not ready after {timeout_seconds:.0f} s")

    def wait_while(self, missing: Callable[[], str], timeout_seconds: float) -> None:
        """Wait until `missing` returns an empty text.

        Raises ChildError at once when any child ends, and DemoError with that text when the time is over.
        """
        if what := self._waits_for(missing, timeout_seconds, REFRESH_SECONDS):
            raise DemoError(f"waited {timeout_seconds:.0f} s for {what}; the logs are in {self._logs}")

    def _waits_for(self, missing: Callable[[], str], timeout_seconds: float, every_seconds: float) -> str:
        """Return the text that is still missing when the time is over; empty where nothing is before."""
        deadline = time.monotonic() + timeout_seconds
        while what := missing():
            self.check()
            if time.monotonic() > deadline:
                break
            time.sleep(every_seconds)
        return what

    def finish(self, name: str) -> int:
        """Forget a child that ended by itself, as it should; returns its exit code."""
        child = self._children.pop(name)
        code = child.process.wait()
        _end_group(child.process, 0)
        return code

    def stop(self, name: str, grace_seconds: float = GRACE_SECONDS) -> None:
        """End a child and everything it started: SIGTERM, after the grace period SIGKILL. Unknown names are fine."""
        child = self._children.pop(name, None)
        if child is None:
            return
        _end_group(child.process, grace_seconds)

    def stop_all(self) -> None:
        for name in reversed(list(self._children)):
            self.stop(name)


def _end_group(leader: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """End the process group of `leader`; returns when no process of it is left, however it takes SIGTERM."""
    _signal_group(leader.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while _group_alive(leader):
        if time.monotonic() >= deadline:
            _signal_group(leader.pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    leader.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # PermissionError: macOS, when only zombies are left
        return


def _group_alive(leader: subprocess.Popen[bytes]) -> bool:
    leader.poll()
    try:
        os.killpg(leader.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return any(
        member.info["status"] != psutil.STATUS_ZOMBIE and _group_of(member.pid) == leader.pid
        for member in psutil.process_iter(["status"])
    )


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log, indented; a note when there are none."""
    try:
        text = path.read_text(errors="replace").rstrip()
    except OSError as error:
        return f"  ({error.strerror})"
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (nothing was written)"
