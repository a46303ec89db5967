"""Recorded loads: the only reader and writer of trace files, for Locust, training and evaluation alike.

A trace is a CSV file, gzip or not, with the two columns `time_s,requests_per_s` in bins of one width: the rate at
`time_s` holds until the next line. Lines that begin with `#` are comments and name source and licence. The exports that
`load_file` understands are read as well. Nothing is repaired unasked: a file with gaps, doubled or unsorted times or
negative rates is refused.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlscaler_loadgen.errors import TraceError
from rlscaler_loadgen.load_file import GZIP, HEADER, Float, Samples, read_samples, refuse

__all__ = ["GZIP", "HEADER", "Fill", "Float", "Trace", "read_trace", "write_trace"]

Fill = Literal["hold", "zero"]
CUT = "there (`rlscaler trace import FILE OUT.csv --fill hold` fills)"
"""End of a remedy for missing samples."""

SMOOTH_FROM_SECONDS = 10.0
"""Bins at least this wide are joined by straight lines between their middles: a rate that stands still for a minute
and then jumps is an artefact of counting by minutes."""

WIDTH_TOLERANCE = 0.1
"""Largest distance of a time from the regular grid, as a part of a bin: scrapes come a little late, and times are often
written with few digits."""


@dataclass(frozen=True)
class Trace:
    """A recorded load: `rate[i]` requests/s in bin i; bins of `width_s` seconds, the first begins at 0."""

    rate: Float  # (bins,)
    width_s: float
    comments: tuple[str, ...] = ()
    """Comment lines of the file without their `#`: source and licence."""

    begin: float | None = None
    """Unix seconds at which the first bin begins; None where the file does not say."""

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


def read_trace(path: str | Path, series: str | None = None, fill: Fill | None = None) -> Trace:
    """Read and check a recorded load in any form that `load_file` understands.

    :param series: name of one series of a file that holds several.
    :param fill: value for missing samples, the rate before or none; without it they are refused.
    :raises TraceError: naming the file, the line and the remedy.
    """
    return _checked(read_samples(Path(path), series), fill)


def write_trace(path: str | Path, trace: Trace, digits: int = 6) -> None:
    """Write a trace as `read_trace` reads it; gzip where the name ends with .gz. Equal traces give equal bytes."""
    path = Path(path)
    head = "".join(f"# {comment}\n" for comment in trace.comments)
    begin, width = trace.begin or 0.0, trace.width_s
    rows = "".join(f"{begin + i * width:.12g},{rate:.{digits}g}\n" for i, rate in enumerate(trace.rate.tolist()))
    content = f"{head}{HEADER}\n{rows}".encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)


def _checked(samples: Samples, fill: Fill | None) -> Trace:
    """The trace, or TraceError with the first sample that is wrong."""
    time, rate = samples.time, samples.rate
    places = np.arange(len(time))

    def check(wrong: NDArray[np.bool_], message: str, after: int = 0) -> None:
        if wrong.any():
            refuse(samples.place(int(places[int(np.argmax(wrong)) + after])), message)

    # Numbers first: a NaN would hide in the differences below.
    check(~np.isfinite(time), "the time is not a finite number; remove the line and fill the bin")
    check(np.isinf(rate) if fill else ~np.isfinite(rate), f"the rate is not a finite number; fill the bin or cut {CUT}")
    check(rate < 0, "the rate is negative; a counter's raw value? export `rate(...)` of it")
    if fill:
        known = np.isfinite(rate)
        time, rate, places = time[known], rate[known], places[known]
    if len(time) < 2:
        refuse(samples.place(0), "at least two bins are needed; export the series again over a longer time")
    step = np.diff(time)
    # The median is the width even where some bins are missing.
    width = float(np.median(step))
    clocks = "; were clocks changed? Write the times in UTC or with their offset" if samples.local else ""
    check(step == 0, f"this time is there twice; keep one rate for it (sum the series first){clocks}", 1)
    check(step < 0, f"the time is before that of the line above; sort the lines by time{clocks}", 1)
    tolerance = width * WIDTH_TOLERANCE
    uneven = np.abs(step - (np.rint(step / width) * width if fill else width)) > tolerance
    if uneven.any():
        at = int(np.argmax(uneven))
        kind = "gap" if step[at] > width else "uneven bin"
        remedy = f"bins are {width:g} s wide; fill it or cut {CUT}{clocks}"
        check(uneven, f"{kind}: {step[at]:g} s after the line above, {remedy}", 1)
    bins = round(float(time[-1] - time[0]) / width)
    width = _even(float(time[-1] - time[0]), bins)
    if fill:
        rate = _filled(np.rint((time - time[0]) / width).astype(np.int64), rate, fill)
    if not rate.any():
        refuse(samples.place(0), "every rate is 0; nothing to replay, choose a time with traffic")
    return Trace(rate, width, samples.comments, float(time[0]) if samples.clock else None)


def _even(length: float, bins: int) -> float:
    """Width of `bins` over `length` seconds: in whole seconds where the last one is off their grid by chance alone."""
    exact = length / bins
    whole = round(exact)
    if whole and abs(length - whole * bins) <= WIDTH_TOLERANCE * whole:
        return float(whole)
    return round(exact, 6)


def _filled(at: NDArray[np.int64], rate: Float, fill: Fill) -> Float:
    """Rates of all bins, from those at the indexes `at`."""
    if fill == "zero":
        whole = np.zeros(int(at[-1]) + 1)
        whole[at] = rate
        return whole
    return np.asarray(rate[np.searchsorted(at, np.arange(int(at[-1]) + 1), side="right") - 1])
