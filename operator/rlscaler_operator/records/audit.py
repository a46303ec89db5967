"""The audit log: a file of JSON lines that a thread writes, rotates and compresses.

Decisions never wait for the disk: records that it does not take in time are dropped and counted. The log is no
write-ahead log, so kill -9 loses the queued records.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler.audit")

QUEUE = 2_000
"""Most records that wait for the disk, about 25 KB each; further ones are lost."""

CLOSE_SECONDS = 2.0
"""Longest wait for the queue when the operator ends."""

COMPLAIN_SECONDS = 60.0
"""Shortest time between two messages about lost records in the operator's own log."""

Build = Callable[[], Mapping[str, Any]]
"""Function that returns a record; it is called in the writing thread."""


def uuid7(unix_seconds: float | None = None) -> str:
    """Return a UUID version 7 (RFC 9562), which sorts by time. The standard library has it from Python 3.14 on."""
    milliseconds = int((time.time() if unix_seconds is None else unix_seconds) * 1000)
    value = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 7 << 76
    return str(UUID(int=value & ~(0x3 << 62) | 2 << 62))


class AuditLog:
    """Queue of records and the thread that writes them. Without a file it does nothing."""

    def __init__(self, settings: Settings, lost: Callable[[], object] = lambda: None) -> None:
        """`lost` is called for every record that is not in the file."""
        self._lost = lost
        self._file: LogFile | None = None
        if settings.audit_log is not None:
            self._file = LogFile(settings.audit_log, settings.audit_max_bytes, settings.audit_files)
            self._queue: queue.Queue[Build | None] = queue.Queue(QUEUE)
            self._complained_at = float("-inf")
            self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
            self._thread.start()

    @property
    def enabled(self) -> bool:
        return self._file is not None

    def write(self, build: Build) -> None:
        """Queue a record; this never waits."""
        if self._file is None:
            return
        try:
            self._queue.put_nowait(build)
        except queue.Full:
            self._lost()
            self._complain(f"{QUEUE} records wait for the disk")

    def close(self) -> None:
        """Write the queued records, for CLOSE_SECONDS at most."""
        if self._file is None:
            return
        try:
            self._queue.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        assert self._file is not None
        while (build := self._queue.get()) is not None:
            try:
                text = json.dumps(build(), separators=(",", ":"), allow_nan=False)
                self._file.append(text.encode() + b"\n")
            except OSError as error:
                self._lost()
                self._complain(f"{error.strerror or error}: free some space, or name another file with --audit-log")
            except Exception:
                self._lost()
                log.exception("a decision cannot be recorded")
        self._file.close()

    def _complain(self, why: str) -> None:
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = now
            log.error("decisions are missing in the audit log: %s", why)


class LogFile:
    """File to which one process appends whole lines, unbuffered.

    A full file becomes PATH.1.gz, that one PATH.2.gz and so on up to number `rotated`. `max_bytes` 0 = never rotated.
    """

    def __init__(self, path: Path, max_bytes: int, rotated: int) -> None:
        self._path, self._max_bytes, self._rotated = path, max_bytes, rotated
        self._descriptor: int | None = None
        self._size = 0
        self._torn = False

    def append(self, line: bytes) -> None:
        """Append a line. Raises OSError where the file does not take all of it."""
        if self._descriptor is None:
            self._descriptor = self._open()
        if self._max_bytes and self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
            self._descriptor = self._open()
        # A line that was cut short, by a full disk or by kill -9, must not swallow the next one.
        data = b"\n" + line if self._torn else line
        self._torn = True
        written = os.write(self._descriptor, data)
        self._size += written
        if written < len(data):
            raise OSError(f"{self._path}: {written} of {len(data)} bytes were written")
        self._torn = False

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(descriptor).st_size
        self._torn = self._size > 0 and os.pread(descriptor, 1, self._size - 1) != b"\n"
        return descriptor

    def _rotate(self) -> None:
        """Move the names up by one; a process that is killed here leaves an uncompressed PATH.1, which counts too."""
        self.close()
        self._size = 0
        for number in range(self._rotated, 0, -1):
            for suffix in ("", ".gz"):
                old = self._numbered(number, suffix)
                if old.exists():
                    old.unlink() if number == self._rotated else old.rename(self._numbered(number + 1, suffix))
        if self._rotated == 0:
            self._path.unlink(missing_ok=True)
            return
        full = self._numbered(1, "")
        self._path.rename(full)
        _compress(full, self._numbered(1, ".gz"))

    def _numbered(self, number: int, suffix: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}{suffix}")


def _compress(full: Path, target: Path) -> None:
    """Compress a full file; where the disk has no room for it, the file stays as it is."""
    partial = target.with_name(target.name + ".partial")
    try:
        with full.open("rb") as source, gzip.open(partial, "wb", compresslevel=6) as into:
            shutil.copyfileobj(source, into, 1 << 20)
        partial.rename(target)
        full.unlink()
    except OSError as error:
        partial.unlink(missing_ok=True)
        log.warning("%s is not compressed: %s", full, error.strerror or error)


def files_of(path: Path) -> list[Path]:
    """Return the existing files of a log, oldest first."""
    numbered: dict[int, Path] = {}
    for file in path.parent.glob(f"{path.name}.*"):
        number = file.name.removeprefix(path.name + ".").removesuffix(".gz")
        # A process that is killed while it compresses leaves both files of a number; the compressed one is whole.
        if number.isdecimal() and (file.suffix == ".gz" or int(number) not in numbered):
            numbered[int(number)] = file
    rotated = [numbered[number] for number in sorted(numbered, reverse=True)]
    return [*rotated, path] if path.exists() else rotated
