"""Files of recorded loads as tools export them: times and rates of one series, with the place of each sample.

Understood are CSV files (comma, semicolon or tab; UTF-8 or UTF-16; gzip or not) such as Grafana, Excel, promtool and
Locust write them, and the JSON of Prometheus (`query_range`, `query`) and Grafana (data frames of a panel's inspector
or of `/api/ds/query`). Nothing is guessed: a cell that is ambiguous is refused with its line, column and remedy.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from rlscaler_loadgen.errors import TraceError

Float = NDArray[np.float64]

HEADER = "time_s,requests_per_s"
GZIP = b"\x1f\x8b"
ZIP = b"PK"
UTF16 = (b"\xff\xfe", b"\xfe\xff")

TIME_NAMES = ("time_s", "time", "timestamp", "date", "datetime", "date/time", "@timestamp", "ts", "time_ms")
MISSING = ("", "null", "n/a", "na", "-", "undefined")
"""Cells that stand for a sample that is not there, in lower case."""

UNITS = ("req/s", "requests/s", "reqps", "rps", "r/s", "ops/s", "c/s", "cps", "/s")
"""Requests per second as Grafana writes them behind a number."""

CLOCK_FROM = 1e8
"""Numbers of seconds from here on (1973) are Unix times; smaller ones count from a begin that the file does not say."""

LARGEST_SECONDS = 1e11
"""Unix times above (the year 5138) are in a smaller unit: milliseconds, microseconds or nanoseconds."""

EXCEL_DAYS = (20_000, 80_000)
"""Serial dates of Excel, days since 1900, lie between (1954 to 2119)."""

EXCEL_STEP = 0.05
"""No load is counted in narrower bins, in seconds; two serial dates of 15 s lie 0.00017 apart."""

_ENGLISH = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?")
_LETTERS = "abcdefghijklmnopqrstuvwxyz/ "
_ZONE = re.compile(r"\s+(?=[+-]\d\d:?\d\d$)|\s*(UTC|GMT)$")
_TIMES = "write ISO 8601 like 2026-01-31T12:00:00Z, or Unix seconds"
_FORMATTED = "export plain numbers (Grafana: switch off `Formatted data`)"


@dataclass(frozen=True, slots=True)
class Samples:
    """One series of a file. Times are in seconds: of Unix where `clock`, else from a begin that is not known."""

    time: Float
    rate: Float  # NaN where the file has no number
    clock: bool
    local: bool
    """Whether the times are those of a clock without its offset from UTC."""

    comments: tuple[str, ...]
    place: Callable[[int], str]
    """Index of a sample -> where it stands, such as `load.csv:17`."""


def refuse(where: object, message: str) -> NoReturn:
    """Raise TraceError for a place in a file."""
    raise TraceError(f"trace {where}: {message}")


def read_samples(path: Path, series: str | None = None) -> Samples:
    """Read one series of a CSV or JSON file.

    :param series: its name, or a part that no other name has; needed where the file holds several.
    :raises TraceError: naming the file, the line, the column and the remedy.
    """
    text = _text(path)
    if text.lstrip()[:1] in ("{", "["):
        return _from_json(path, text, series)
    return _from_csv(path, text, series)


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content[:2] == GZIP:
            content = gzip.decompress(content)
        if content[:2] == ZIP:
            refuse(path, "an Excel workbook or archive; save the sheet as CSV")
        return content.decode("utf-16" if content[:2] in UTF16 else "utf-8-sig")
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            refuse(path, f"neither gzip nor UTF-8 text ({error}); copy the file again")
        refuse(path, f"{error.strerror or error}; name a readable CSV file")
    except (EOFError, UnicodeError, zlib.error) as error:
        refuse(path, f"neither gzip nor UTF-8 text ({error}); copy the file again")


def _from_csv(path: Path, text: str, series: str | None) -> Samples:
    comments: list[str] = []

    def uncommented() -> Iterator[str]:
        for line in io.StringIO(text, newline=None):
            # Comments become empty lines, so that numbers of lines are those of the file.
            if line.startswith("#"):
                comments.append(line[1:].strip())
                yield ""
            else:
                yield "" if line[:4].lower() == "sep=" else line

    lines = uncommented()
    skipped = 0
    head = ""
    for head in lines:
        skipped += 1
        if head.strip():
            break
    else:
        refuse(path, f"the file is empty; the first line must be `{HEADER}`")
    delimiter = next((mark for mark in (";", "\t") if mark in head), ",")
    reader = csv.reader(chain([head], lines), delimiter=delimiter)
    names = [name.strip() for name in next(reader)]
    first = next((row for row in reader if any(cell.strip() for cell in row)), None)
    where = f"{path}:{skipped}"
    if all(map(_is_number, names)):
        refuse(where, f"the header is missing; put `{HEADER}` above the first line")
    if first is None:
        refuse(path, "no bins below the header; export the series again over a longer time")
    time_at = next((i for wanted in TIME_NAMES for i, name in enumerate(names) if name.lower() == wanted), 0)
    rate_at = _column(where, names, first, time_at, series)
    times, rates, numbers = [], [], []
    for row in chain([first], reader):
        number = reader.line_num + skipped - 1
        if len(row) == len(names):
            times.append(row[time_at])
            rates.append(row[rate_at])
            numbers.append(number)
        elif any(cell.strip() for cell in row):
            refuse(
                f"{path}:{number}",
                f"`{delimiter.join(row)}` has {len(row)} cells where the header has {len(names)}; write one cell a "
                "column, and a number with thousands separators in quotes",
            )

    def cell(at: int, column: int) -> str:
        return f"{path}:{numbers[at]}: column {names[column]!r}"

    seconds, clock, local = _seconds(times, names[time_at], lambda at: cell(at, time_at))
    rate = _rates(rates, delimiter, lambda at: cell(at, rate_at))
    return Samples(seconds, rate, clock, local, tuple(comments), lambda at: f"{path}:{numbers[at]}")


def _column(where: str, names: Sequence[str], first: Sequence[str], time_at: int, series: str | None) -> int:
    """Index of the column with the rate: the one that is asked for, or the only one with numbers."""
    others = [i for i in range(min(len(names), len(first))) if i != time_at]
    if not others:
        refuse(where, f"one column ({names[0]}); a column of times and one of requests/s are needed")
    numeric = [i for i in others if series is not None or _is_number(_plain(first[i]))] or others
    return numeric[_chosen(where, [names[i] for i in numeric], series)]


def _chosen(where: object, names: Sequence[str], series: str | None) -> int:
    """Index of the series that is asked for among `names`; without a wish the only one."""
    if series is None:
        if len(names) > 1 and "requests_per_s" not in names:
            some = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
            refuse(
                where,
                f"{len(names)} series ({some}); name one with --series (`rlscaler trace import FILE OUT.csv --series "
                "NAME` makes a file of it), or sum them before the export",
            )
        return names.index("requests_per_s") if len(names) > 1 else 0
    # An exact name wins over names that merely contain it.
    matches = [i for i, name in enumerate(names) if name == series] or [i for i, n in enumerate(names) if series in n]
    if len(matches) != 1:
        refuse(where, f"{len(matches)} series match --series {series!r}; there are {', '.join(map(repr, names[:8]))}")
    return matches[0]


def _seconds(texts: Sequence[str], name: str, cell: Callable[[int], str]) -> tuple[Float, bool, bool]:
    """Seconds, whether they are of Unix, and whether their offset from UTC is unknown."""
    if (numbers := _numbers(texts)) is not None:
        return _unit(numbers, name, cell)
    if _is_number(texts[0]):
        at = next(at for at, text in enumerate(texts) if not _is_number(text))
        refuse(cell(at), f"{texts[at].strip()!r} is no time; {_TIMES}")
    seconds = np.empty(len(texts))
    local = False
    for at, text in enumerate(texts):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = _other_date(text, cell, at)
        if moment.tzinfo is None:
            local, moment = True, moment.replace(tzinfo=UTC)
        seconds[at] = moment.timestamp()
    return seconds, True, local


def _unit(numbers: Float, name: str, cell: Callable[[int], str]) -> tuple[Float, bool, bool]:
    """`_seconds` of times that are numbers: of seconds, or of a smaller unit."""
    known = numbers[np.isfinite(numbers)]
    if not known.size:
        return numbers, False, False
    begin, step = float(known[0]), float(np.median(np.abs(np.diff(known)))) if len(known) > 1 else 0.0
    if EXCEL_DAYS[0] < begin < EXCEL_DAYS[1] and 0 < step < EXCEL_STEP:
        refuse(cell(0), f"{begin:g} is a serial date of Excel; format the column as 2026-01-31 12:00:00 and save again")
    if name.lower().endswith("_ms") and begin < LARGEST_SECONDS:
        numbers = numbers / 1000
    # Seconds, milliseconds, microseconds and nanoseconds of Unix lie a factor of 1000 apart.
    while begin > LARGEST_SECONDS:
        begin, numbers = begin / 1000, numbers / 1000
    return numbers, begin >= CLOCK_FROM, False


def _other_date(text: str, cell: Callable[[int], str], at: int) -> datetime:
    """A date as ISO 8601 almost has it, or with the day before the month and points between."""
    text = text.strip()
    for form in ("%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M"):
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    try:
        return datetime.fromisoformat(_ZONE.sub(lambda match: "+00:00" if match[1] else "", text))
    except ValueError:
        why = "may begin with the day or the month" if "/" in text else "is no time"
        refuse(cell(at), f"{text!r} {why}; {_TIMES}")


def seconds_of(text: str) -> float:
    """Seconds of one time: a number (of Unix also in milliseconds), or ISO 8601 in UTC where it names no zone.

    :raises ValueError: where the text is no time.
    """
    try:
        seconds = float(_seconds([text], "", lambda at: "a time")[0][0])
    except TraceError:
        seconds = np.nan
    if not np.isfinite(seconds):
        raise ValueError(f"{text!r} is no time; {_TIMES}")
    return seconds


def _rates(texts: Sequence[str], delimiter: str, cell: Callable[[int], str]) -> Float:
    # Where commas do not part the columns, they are decimal: so Excel writes in countries with a decimal comma.
    decimal_comma = delimiter != "," and any("," in text for text in texts)
    unit = texts[0][len(texts[0].rstrip(_LETTERS)) :]
    plain = [text.removesuffix(unit) for text in texts] if unit.strip() in UNITS else texts
    if decimal_comma:
        plain = [text.replace(".", "").replace(",", ".") if "," in text else text for text in plain]
    if (numbers := _numbers(plain)) is not None:
        return numbers
    rates = np.empty(len(texts))
    for at, text in enumerate(plain):
        try:
            rates[at] = float(_plain(text))
        except ValueError:
            if text.strip().lower() not in MISSING:
                refuse(cell(at), f"{texts[at].strip()!r} is no number of requests/s; {_FORMATTED}")
            rates[at] = np.nan
    return rates


def _numbers(texts: Sequence[str]) -> Float | None:
    """The numbers, or None where one text is none."""
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return None


def _plain(text: str) -> str:
    """The digits of a number as float() takes them: without unit and separators of thousands."""
    digits = text.strip()
    for unit in UNITS:
        digits = digits.removesuffix(unit)
    digits = re.sub(r"[\s\u00a0\u202f']", "", digits)
    return digits.replace(",", "") if _ENGLISH.fullmatch(digits) else digits


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_json(path: Path, text: str, series: str | None) -> Samples:
    try:
        body = json.loads(text)
    except ValueError as error:
        refuse(path, f"not JSON ({error}); export it again")
    if isinstance(body, dict) and body.get("status") == "error":
        refuse(path, f"Prometheus answered with an error: {body.get('error')}; ask again")
    found = list(_series(body))
    if not found:
        refuse(path, "no series in this JSON; export a panel's data from Grafana, or the answer of `query_range`")
    name, times, values = found[_chosen(path, [name for name, _, _ in found], series)]
    if len(times) < 2:
        refuse(path, f"{len(times)} sample of {name!r}; ask Prometheus for a range (`query_range`), not for a moment")

    def place(at: int) -> str:
        return f"{path}: series {name!r}, sample {at + 1}"

    seconds, clock, local = _seconds([str(time) for time in times], "", place)
    rate = _rates([str(value) if value is not None else "" for value in values], ",", place)
    return Samples(seconds, rate, clock, local, (), place)


def _series(body: Any) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Name, times and values of every series in the JSON of Prometheus or Grafana, however deep it lies."""
    if isinstance(body, list):
        for part in body:
            yield from _series(part)
    elif isinstance(body, dict):
        if "metric" in body and ("values" in body or "value" in body):
            samples = body.get("values") or [body["value"]]
            yield _labels(body["metric"], "value"), [time for time, _ in samples], [value for _, value in samples]
        elif "datapoints" in body:  # Grafana's older form: [value, milliseconds]
            yield (
                str(body.get("target", "value")),
                [t for _, t in body["datapoints"]],
                [v for v, _ in body["datapoints"]],
            )
        elif "schema" in body and "data" in body:
            columns = body["data"].get("values", [])
            fields = body["schema"].get("fields", [])
            yield from _frame([field | {"values": values} for field, values in zip(fields, columns, strict=False)])
        elif isinstance(body.get("fields"), list):
            yield from _frame(body["fields"])
        else:
            for part in body.values():
                yield from _series(part)


def _frame(fields: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[Any], list[Any]]]:
    times = next((field for field in fields if field.get("type") == "time"), None)
    for field in fields:
        if times is not None and field.get("type") == "number":
            config = field.get("config") or {}
            shown = config.get("displayNameFromDS") or config.get("displayName")
            name = shown or _labels(field.get("labels") or {}, field.get("name", "value"))
            yield name, times.get("values", []), field.get("values", [])


def _labels(labels: dict[str, str], without: str) -> str:
    """A series' name as PromQL writes it."""
    inside = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()) if key != "__name__")
    return labels.get("__name__", "") + (f"{{{inside}}}" if inside else "") or without
