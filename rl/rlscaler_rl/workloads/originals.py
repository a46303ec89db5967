"""Traces out of published files: access logs, lists of requests, tables of counts.

A `Recipe` describes one kind of file. The loads of the library have theirs in `data/days.json`, and `rlscaler trace
count` makes one from its options, so that a load of one's own goes the same way.

Times are those that the file states. A file in local time without its offset has an hour twice, and another not at all,
where clocks are changed: the first is an error unless `repeats` is set, the second a hole.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator

from rlscaler_loadgen.load_file import CLOCK_FROM, seconds_of
from rlscaler_loadgen.traces import GZIP, Trace
from rlscaler_rl.workloads.names import WorkloadError

Float = NDArray[np.float64]

BZIP2 = b"BZ"
ACCESS = re.compile(r"\[(\d{1,2}/[A-Z][a-z]{2}/\d{4}:\d{2}:\d{2}:\d{2})(?: ([+-]\d{4}))?\]")
"""The time in a line of the common and the combined log format."""

GRID_TOLERANCE = 0.02
"""Largest distance of a count's time from the grid of the first one, as a part of a bin."""

MOST_BINS = 50_000_000
"""More bins than this, some 19 months of seconds, mean that a time was read in the wrong unit."""


class Recipe(BaseModel):
    """Description of a published file's form. Times are ISO 8601, or seconds where the file has seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reader: Literal["access-log", "events", "bins", "counts"]
    """access-log: a line for every request, in common or combined log format. events: a CSV row for every request.
    bins: a CSV row for every bin. counts: numbers and white space, one for every bin."""
    width_s: float = Field(default=1.0, gt=0)
    """Width of a bin: of the file with the readers `bins` and `counts`, else of the counted bins."""
    join: int = Field(default=1, gt=0)
    """Number of these bins that become one of the trace; a rest at the end is dropped."""
    time: str = "{timestamp}"
    """Of `events` and `bins`: the time, from the columns in braces; `{hour:0>2}` fills with zeros to two digits."""
    value: str = "value"
    """Of `bins`: the column with the count."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a file without a line that names them."""
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    unit: Literal["count", "rate"] = "count"
    """Whether a value is a number of requests or requests/s."""
    begin: str | None = None
    """Begin of the trace; earlier bins are dropped. Of `counts`: the time of the first kept number."""
    end: str | None = None
    first: int = Field(default=0, ge=0)
    """Of `counts`: how many numbers are left out at the begin."""
    bins: int | None = Field(default=None, gt=0)
    """Of `counts`: how many numbers are kept."""
    holes: Literal["refuse", "line"] = "refuse"
    """Treatment of bins that the file lacks: an error, or a straight line between those around the hole."""
    longest_hole_s: float = Field(default=3600.0, gt=0)
    """A longer hole is an error in any case; cut the file there."""
    silence_s: float | None = Field(default=None, gt=0)
    """So many seconds without any request are a hole, not a load of zero: the counter had stopped."""
    repeats: Literal["refuse", "mean", "sum"] = "refuse"
    """Of `bins`: the meaning of a time that comes twice."""

    @field_validator("begin", "end")
    @classmethod
    def _a_time(cls, value: str | None) -> str | None:
        if value is not None:
            seconds_of(value)
        return value


def read_original(paths: Sequence[Path], recipe: Recipe, comments: Iterable[str] = ()) -> tuple[Trace, int]:
    """The trace, and how many bins were holes and are filled, counted before bins are joined.

    Several files are one load: lines of a log follow one another, counts of the same time are added. Raises
    WorkloadError that names the file, the line or the time, and the remedy.
    """
    if recipe.reader == "counts":
        counts = [_counts(path, recipe) for path in paths]
        if len({len(column) for column in counts}) > 1:
            sizes = ", ".join(str(len(column)) for column in counts)
            raise WorkloadError(f"{paths[0]} and the others have {sizes} numbers: counts of the same bins are added")
        rate = np.sum(counts, axis=0)
        start = 0.0
    elif recipe.reader == "bins":
        tables = [_bins(path, recipe) for path in paths]
        start, rate = _added(paths, tables, recipe)
    else:
        read = _access if recipe.reader == "access-log" else _events
        times = np.concatenate([np.array(list(read(path, recipe)), float) for path in paths])
        start, rate = _counted(paths[0], times, recipe)
    rate = rate if recipe.unit == "rate" else rate / recipe.width_s
    if recipe.silence_s:
        rate = _without_silence(rate, max(round(recipe.silence_s / recipe.width_s), 1))
    rate, filled = _filled(rate, recipe, start, paths[0])
    rate = rate[: len(rate) // recipe.join * recipe.join].reshape(-1, recipe.join).mean(1)
    if len(rate) < 2 or not rate.any():
        raise WorkloadError(
            f"{paths[0]}: fewer than two bins, or no requests at all; is the time column the right one?"
        )
    if (rate < 0).any():
        at = _moment(start + int(np.argmax(rate < 0)) * recipe.width_s)
        raise WorkloadError(f"{paths[0]}: a negative count at {at}; a counter's raw value? export its increase")
    begin = start if start >= CLOCK_FROM else None
    return Trace(rate, recipe.width_s * recipe.join, tuple(comments), begin), filled


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """The file as text, unpacked from gzip, bzip2 or an archive of tar. Old logs hold bytes that are no UTF-8."""
    try:
        with path.open("rb") as raw:
            magic = raw.read(2)
        with _unpacked(path, magic) as text:
            yield text
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or error
        raise WorkloadError(f"{path}: {reason}; name a file that can be read") from error


def _unpacked(path: Path, magic: bytes) -> IO[str]:
    if tarfile.is_tarfile(path):
        return _only_file(path)
    if magic == GZIP:
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace")
    if magic == BZIP2:
        return bz2.open(path, "rt", encoding="utf-8-sig", errors="replace")
    return path.open(encoding="utf-8-sig", errors="replace")


def _only_file(path: Path) -> IO[str]:
    """The one file in an archive, as text. Raises WorkloadError for none or several."""
    with tarfile.open(path) as archive:
        members = [member for member in archive if member.isfile()]
        if len(members) != 1:
            raise WorkloadError(f"{path}: {len(members)} files are in the archive; unpack it and name one of them")
        content = archive.extractfile(members[0])
        assert content is not None
        return io.StringIO(content.read().decode("utf-8-sig", errors="replace"))


def _access(path: Path, recipe: Recipe) -> Iterator[float]:
    """Unix seconds of every request; lines without a time are left out, a file without any is an error."""
    known: dict[tuple[str, str | None], float] = {}
    with _opened(path) as lines:
        for line in lines:
            match = ACCESS.search(line)
            if match is None:
                continue
            key = (match[1], match[2])
            if key not in known:
                try:
                    zone = match[2] or "+0000"
                    known[key] = datetime.strptime(f"{match[1]} {zone}", "%d/%b/%Y:%H:%M:%S %z").timestamp()
                except ValueError:
                    continue
            yield known[key]
    if not known:
        raise WorkloadError(f"{path}: no line has a time like [01/Jul/1995:00:00:01 -0400]; is it an access log?")


def _events(path: Path, recipe: Recipe) -> Iterator[float]:
    for number, row in _rows(path, recipe):
        yield _time(path, number, row, recipe)


def _bins(path: Path, recipe: Recipe) -> tuple[Float, Float]:
    """Times and values, in the order of time."""
    times, values = [], []
    for number, row in _rows(path, recipe):
        times.append(_time(path, number, row, recipe))
        try:
            values.append(float(row[recipe.value]))
        except (KeyError, TypeError, ValueError) as error:
            raise WorkloadError(
                f"{path}:{number}: no number in column {recipe.value!r}; name the column with the count"
            ) from error
    if not times:
        raise WorkloadError(f"{path}: no rows; is it the file itself, and not a pointer to it?")
    order = np.argsort(times, kind="stable")
    return np.array(times)[order], np.array(values)[order]


def _counts(path: Path, recipe: Recipe) -> Float:
    with _opened(path) as text:
        try:
            numbers = np.array(text.read().split(), float)
        except ValueError as error:
            raise WorkloadError(f"{path}: not only numbers and white space ({error})") from error
    chosen = numbers[recipe.first :][: recipe.bins]
    if recipe.bins is not None and len(chosen) < recipe.bins:
        raise WorkloadError(
            f"{path}: {len(numbers)} numbers where {recipe.first + recipe.bins} are needed; fetch the original again"
        )
    return chosen


def _rows(path: Path, recipe: Recipe) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells by the names of their columns."""
    with _opened(path) as text:
        reader = csv.reader(text, delimiter=recipe.delimiter)
        names = recipe.columns or [name.strip() for name in next(reader, [])]
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, dict(zip(names, map(str.strip, cells), strict=False))
        except csv.Error as error:
            raise WorkloadError(f"{path}:{reader.line_num}: no CSV ({error}); name a file of rows") from error


def _time(path: Path, number: int, row: dict[str, str], recipe: Recipe) -> float:
    try:
        text = recipe.time.format_map(row).strip()
    except (KeyError, IndexError, ValueError) as error:
        there = ", ".join(map(str, row))
        raise WorkloadError(f"{path}: no column {error} for the time {recipe.time}; there are {there}") from error
    try:
        return seconds_of(text)
    except ValueError as error:
        raise WorkloadError(f"{path}:{number}: {text!r} is no time; write ISO 8601 or Unix seconds") from error


def _counted(path: Path, times: Float, recipe: Recipe) -> tuple[float, Float]:
    """Begin and counts per bin. The bins begin at a multiple of their width, and the first and last one is a whole one:
    by default the second bin with a request to the last but one."""
    if not len(times):
        raise WorkloadError(f"{path}: no rows; is it the file itself, and not a pointer to it?")
    width = recipe.width_s
    index = np.floor(times / width).astype(np.int64)
    # The first and the last bin may have been counted in part.
    low = index.min() + 1 if recipe.begin is None else round(seconds_of(recipe.begin) // width)
    high = index.max() if recipe.end is None else round(seconds_of(recipe.end) // width)
    if not 0 < high - low <= MOST_BINS:
        raise WorkloadError(
            f"{path}: {high - low} bins of {width:g} s between first and last time; "
            "is the unit of the times seconds, and does the file cover the asked range?"
        )
    inside = index[(index >= low) & (index < high)] - low
    return float(low * width), np.bincount(inside, minlength=high - low).astype(float)


def _added(paths: Sequence[Path], tables: Sequence[tuple[Float, Float]], recipe: Recipe) -> tuple[float, Float]:
    """Begin and the sum of the tables on one grid; NaN where one of them lacks a bin."""
    width = recipe.width_s
    start = min(times[0] for times, _ in tables)
    if recipe.begin is not None:
        start += np.ceil(max(seconds_of(recipe.begin) - start, 0) / width) * width
    last = max(times[-1] for times, _ in tables)
    if recipe.end is not None:
        last = min(last, seconds_of(recipe.end) - width)
    bins = round((last - start) / width) + 1
    if not 1 < bins <= MOST_BINS:
        raise WorkloadError(
            f"{paths[0]}: {bins} bins of {width:g} s; is the width right, and does the file cover the asked range?"
        )
    summed = np.zeros(bins)
    for path, (times, values) in zip(paths, tables, strict=True):
        place = (times - start) / width
        at = np.rint(place).astype(np.int64)
        inside = (at >= 0) & (at < bins)
        if (off := inside & (np.abs(place - at) > GRID_TOLERANCE)).any():
            wrong = _moment(float(times[int(np.argmax(off))]))
            raise WorkloadError(
                f"{path}: {wrong} is not a multiple of {width:g} s after the first; give the right width"
            )
        at, values = at[inside], values[inside]
        if recipe.repeats == "refuse" and (twice := np.flatnonzero(np.diff(at) == 0)).size:
            wrong = _moment(start + float(at[twice[0]]) * width)
            raise WorkloadError(
                f"{path}: {wrong} is there twice; did clocks go back? Take the mean or the sum (repeats)"
            )
        # A time that comes twice adds up, unless the mean is asked for.
        there = np.bincount(at, minlength=bins)
        total = np.bincount(at, values, minlength=bins)
        share = np.maximum(there, 1) if recipe.repeats == "mean" else 1
        summed += np.where(there, total / share, np.nan)
    return float(start), summed


def _without_silence(rate: Float, shortest: int) -> Float:
    """NaN where `shortest` or more bins in a row have no request."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (rate == 0).astype(np.int8), [0]])))
    silent = rate.copy()
    for begin, end in edges.reshape(-1, 2):
        if end - begin >= shortest:
            silent[begin:end] = np.nan
    return silent


def _filled(rate: Float, recipe: Recipe, start: float, path: Path) -> tuple[Float, int]:
    hole = ~np.isfinite(rate)
    if not hole.any():
        return rate, 0
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hole.astype(np.int8), [0]]))).reshape(-1, 2)
    lengths = (edges[:, 1] - edges[:, 0]) * recipe.width_s
    longest = int(np.argmax(lengths))
    worst = f"{lengths[longest]:g} s from {_moment(start + edges[longest, 0] * recipe.width_s)} on"
    if recipe.holes == "refuse":
        raise WorkloadError(f"{path}: {len(edges)} holes, the longest {worst}; cut there, or fill by a straight line")
    if lengths[longest] > recipe.longest_hole_s:
        raise WorkloadError(f"{path}: a hole of {worst}, longer than {recipe.longest_hole_s:g} s; cut the file there")
    known = np.flatnonzero(~hole)
    return np.interp(np.arange(len(rate)), known, rate[known]), int(hole.sum())


def _moment(seconds: float) -> str:
    """A time for people; small numbers are seconds since a begin that the file does not state."""
    known = abs(seconds) >= 86_400 * 365
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") if known else f"second {seconds:g}"
