"""Recorded loads: the only reader and writer of trace files, for Locust, training and evaluation alike.

A trace is a CSV file, gzip or not, with the two columns `time_s,requests_per_s` in bins of one width: the rate at
`time_s` holds until the next line. Lines that begin with `#` are comments and name source and licence. Nothing is
guessed or repaired: a file with gaps, doubled or unsorted times, negative rates or other columns is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlscaler_loadgen.errors import TraceError

Float = NDArray[np.float64]
Refuse = Callable[[int, str], NoReturn]

HEADER = "time_s,requests_per_s"
GZIP = b"\x1f\x8b"
SMOOTH_FROM_SECONDS = 10.0
"""Bins at least this wide are joined by straight lines between their middles: a rate that stands still for a minute
and then jumps is an artefact of counting by minutes."""

WIDTH_TOLERANCE = 1e-3
"""How far, as a part of a bin, a time may be off the regular grid: times are often written with few digits."""


@dataclass(frozen=True)
class Trace:
    """A recorded load: `rate[i]` requests/s in bin i; bins of `width_s` seconds, the first begins at 0."""

    rate: Float  # (bins,)
    width_s: float
    comments: tuple[str, ...] = ()
    """Comment lines of the file without their `#`: source and licence."""

    @property
    def length_s(self) -> float:
        return len(self.rate) * self.width_s

    @cached_property
    def _edges(self) -> Float:
        return np.asarray(np.arange(len(self.rate) + 1) * self.width_s, np.float64)

    @cached_property
    def _cumulated(self) -> Float:
        return np.append(0.0, np.cumsum(self.rate * self.width_s))

    def percentile(self, q: float) -> float:
        """The rate in requests/s that is not exceeded `q` % of the time."""
        return float(np.percentile(self.rate, q, method="inverted_cdf"))

    def volume(self, time_s: ArrayLike) -> Float:
        """Requests since the trace's begin, for times of any shape; the trace repeats when it is over."""
        laps, rest = np.divmod(np.asarray(time_s, dtype=float), self.length_s)
        return np.asarray(laps * self._cumulated[-1] + np.interp(rest, self._edges, self._cumulated))

    def per_second(self) -> Float:
        """(whole seconds,) requests/s: wide bins interpolated (`SMOOTH_FROM_SECONDS`), fine ones averaged."""
        seconds = int(self.length_s + 1e-6)
        if seconds < 1:
            raise TraceError(f"a trace of {self.length_s:g} s: at least one second is needed")
        if self.width_s >= SMOOTH_FROM_SECONDS:
            middles = (np.arange(len(self.rate)) + 0.5) * self.width_s
            return np.asarray(np.interp(np.arange(seconds) + 0.5, middles, self.rate))
        if self.width_s == 1:
            return self.rate
        return np.asarray(np.diff(np.interp(np.arange(seconds + 1), self._edges, self._cumulated)))

    def digest(self) -> str:
        """SHA-256 of width and rates: the same for a file however it is compressed or commented."""
        numbers = np.append(self.width_s, self.rate).astype("<f8")
        return hashlib.sha256(numbers.tobytes()).hexdigest()


def read_trace(path: str | Path) -> Trace:
    """Read and check a trace file; TraceError names the file, the line and what to do."""
    path = Path(path)
    numbers, lines, comments = _lines(path)
    if not lines or lines[0].replace(" ", "") != HEADER:
        _refuse_header(path, numbers[0] if numbers else 1, lines[0] if lines else None)
    numbers, lines = numbers[1:], lines[1:]
    if not lines:
        _refuse(f"{path}", "no bins below the header; export the series again over a longer time")
    return _checked(*_columns(path, numbers, lines), comments, lambda at, what: _refuse(f"{path}:{numbers[at]}", what))


def write_trace(path: str | Path, trace: Trace, digits: int = 6) -> None:
    """Write what `read_trace` reads; gzip where the name ends with .gz. Equal traces give equal bytes."""
    path = Path(path)
    head = "".join(f"# {comment}\n" for comment in trace.comments)
    rows = "".join(f"{i * trace.width_s:.12g},{rate:.{digits}g}\n" for i, rate in enumerate(trace.rate.tolist()))
    content = f"{head}{HEADER}\n{rows}".encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)


def _lines(path: Path) -> tuple[list[int], list[str], tuple[str, ...]]:
    """Line numbers and text of the lines that are neither empty nor comments, and the comments."""
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if content[:2] == GZIP else content).decode("utf-8-sig")
    except (EOFError, ValueError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"trace {path}: neither gzip nor UTF-8 text ({error}); copy the file again") from error
    except OSError as error:
        raise TraceError(f"trace {path}: {error.strerror or error}; name a readable CSV file") from error
    kept = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    comments = tuple(line[1:].strip() for _, line in kept if line.startswith("#"))
    rows = [(number, line) for number, line in kept if not line.startswith("#")]
    return [number for number, _ in rows], [line for _, line in rows], comments


def _columns(path: Path, numbers: list[int], lines: list[str]) -> tuple[Float, Float]:
    """Times and rates; the slow walk happens only for a file in which a line is wrong."""
    try:
        table = np.loadtxt(lines, delimiter=",", usecols=(0, 1), ndmin=2, comments=None)
        if all(line.count(",") == 1 for line in lines):
            return table[:, 0], table[:, 1]
        raise ValueError("more than two columns")
    except ValueError:
        for number, line in zip(numbers, lines, strict=True):
            cells = line.split(",")
            if len(cells) != 2 or not all(map(_is_number, cells)):
                _refuse(f"{path}:{number}", f"`{line.strip()}` is not two numbers; every line must be `{HEADER}`")
        raise


def _checked(time: Float, rate: Float, comments: tuple[str, ...], refuse: Refuse) -> Trace:
    """The trace, or `refuse(bin, what is wrong and what to do)`."""
    if len(time) != len(rate):
        refuse(0, f"{len(time)} times and {len(rate)} rates; give as many of the one as of the other")
    if len(time) < 2:
        refuse(0, "at least two bins are needed; export the series again over a longer time")
    for wrong, what in (
        (~np.isfinite(time), "the time is not a finite number; remove the line and fill the bin"),
        (~np.isfinite(rate), "the rate is not a finite number; fill the bin or cut the trace there"),
        (rate < 0, "the rate is negative; a counter's raw value? export `rate(...)` of it"),
    ):
        if wrong.any():
            refuse(int(np.argmax(wrong)), what)
    step = np.diff(time)
    width = float(np.median(step))
    if (repeated := step == 0).any():
        refuse(int(np.argmax(repeated)) + 1, "this time is there twice; keep one rate for it (sum the series first)")
    if (backwards := step < 0).any():
        refuse(int(np.argmax(backwards)) + 1, "the time is before that of the line above; sort the lines by time")
    if (uneven := np.abs(step - width) > width * WIDTH_TOLERANCE).any():
        at = int(np.argmax(uneven))
        found, kind = float(step[at]), "gap" if step[at] > width else "uneven bin"
        refuse(at + 1, f"{kind}: {found:g} s after the line above, bins are {width:g} s wide; fill it or cut there")
    if not rate.any():
        refuse(0, "every rate is 0; nothing to replay, choose a time with traffic")
    return Trace(rate, round(float(time[-1] - time[0]) / (len(time) - 1), 6), comments)


def _refuse_header(path: Path, number: int, line: str | None) -> NoReturn:
    if line is None:
        _refuse(f"{path}", f"the file is empty; the first line must be `{HEADER}`")
    names = [name.strip() for name in line.split(",")]
    if all(map(_is_number, names)):
        _refuse(f"{path}:{number}", f"the header is missing; put `{HEADER}` above the first line")
    unknown = [name for name in names if name not in HEADER.split(",")]
    reason = f"unknown column {', '.join(map(repr, unknown))}" if unknown else f"columns {', '.join(names)}"
    _refuse(f"{path}:{number}", f"{reason}; the columns must be `{HEADER}`, rename or remove the others")


def _refuse(where: str, what: str) -> NoReturn:
    raise TraceError(f"trace {where}: {what}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
