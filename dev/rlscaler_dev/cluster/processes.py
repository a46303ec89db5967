"""Background processes that outlive the command that started them, and that can be found again and stopped safely.

A process is known by its pid, its start time and the machine's boot id, so a recycled pid is never mistaken for it.
Each also carries the variable CLUSTER_OF_RLSCALER in its environment: a process whose record was lost, because the
starting command was killed between the two, is found by that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from rlscaler_dev.exceptions import StartError

MARKER = "CLUSTER_OF_RLSCALER"
"""Not RLSCALER_…: those are settings, which children may drop."""
START_TIME_TOLERANCE_SECONDS = 2.0
"""Start times are derived from the boot time, which the kernel may correct by a second when the clock is set."""
STOP_TIMEOUT_SECONDS = 60.0


def boot_id() -> str:
    """Changes with every boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{psutil.boot_time():.0f}"


@dataclass(frozen=True)
class ProcessRecord:
    """Record of a started process in the state file."""

    name: str
    pid: int
    start_time: float
    """Seconds since the epoch."""
    boot_id: str
    log: str

    def process(self) -> psutil.Process | None:
        """The living process, or None when it has ended or the pid now belongs to another."""
        if self.boot_id != boot_id():
            return None
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.start_time) <= START_TIME_TOLERANCE_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None

    def check(self, remedy: str = "") -> None:
        """Raise StartError with the end of its log, and a remedy, when it has ended."""
        if self.process() is None:
            raise StartError(f"{self.name} ended; the last lines of {self.log}:\n{self._log_tail()}{remedy}")

    def _log_tail(self, lines: int = 8) -> str:
        try:
            return "\n".join(Path(self.log).read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


def spawn(
    name: str, argv: Sequence[str], state_dir: Path, environment: Mapping[str, str] | None = None
) -> ProcessRecord:
    """Start `argv` in a session of its own, with its output in `state_dir`/logs/NAME.log."""
    log = state_dir / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, **(environment or {}), MARKER: str(state_dir)}
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    try:
        start_time = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        start_time = 0.0
    return ProcessRecord(name, pid, start_time, boot_id(), str(log))


def strays(state_dir: Path) -> list[psutil.Process]:
    """Return other processes of our own user that carry the marker of `state_dir`."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARKER) == str(state_dir):
                processes.append(process)
        except (psutil.Error, OSError):
            continue
    return processes


def stop(records: Iterable[ProcessRecord], state_dir: Path) -> int:
    """Kill the recorded processes and strays of `state_dir`; the number killed.

    They are killed outright: data that they would save after SIGTERM is deleted with the cluster.
    Raises TimeoutError when one survives.
    """
    living = {process.pid: process for record in records if (process := record.process())}
    living.update({process.pid: process for process in strays(state_dir)})
    for process in living.values():
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(list(living.values()), timeout=STOP_TIMEOUT_SECONDS)
    if alive:
        raise TimeoutError(f"processes {sorted(process.pid for process in alive)} did not end after SIGKILL")
    return len(living)


def supported() -> bool:
    """Whether the control plane can be started on this system."""
    return sys.platform == "linux"
