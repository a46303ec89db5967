"""A service's past load from Prometheus, as a trace."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np
from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from requests import JSONDecodeError, PreparedRequest, RequestException
from requests.auth import AuthBase
from urllib3.util.retry import Retry

from rlscaler_loadgen.traces import Float, Trace
from rlscaler_rl.workloads.names import WorkloadError

POINTS_PER_QUERY = 10_000
"""Prometheus refuses a range query with more than 11,000 points a series."""

TIMEOUT_SECONDS = 60
FILLS = ("hold", "zero")
"""Values for missing samples: the rate before, or none."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


@dataclass(frozen=True)
class TimeRange:
    """Samples from `begin` on, every `step` seconds, up to `end`; Unix seconds."""

    begin: int
    end: int
    step: int

    @classmethod
    def between(cls, begin: datetime, end: datetime, step: int) -> TimeRange:
        """The multiples of `step` in between: some query front ends move every range to them anyway.

        Raises WorkloadError where none can lie between.
        """
        if end < begin:
            first, last = (_text(round(moment.timestamp())) for moment in (begin, end))
            raise WorkloadError(
                f"--from {first} --to {last}: nothing lies between; ask for a longer time, the earlier moment first"
            )
        return cls(-(-round(begin.timestamp()) // step) * step, round(end.timestamp()) // step * step, step)

    def times(self) -> list[int]:
        return list(range(self.begin, self.end + 1, self.step))


def read_history(url: str, query: str, span: TimeRange, *, token: str | None = None, fill: str | None = None) -> Trace:
    """Return the one series of `query` in bins of `asked.step`, asked for in pieces that Prometheus answers.

    :raises WorkloadError: naming query and remedy, for no or more than one series, for missing samples without a `fill`
    (`FILLS`), and for a Prometheus that cannot be asked.
    """
    samples: dict[int, float] = {}
    client = _client(url, token)
    try:
        # Prometheus limits the points of an answer, so a long range is asked for in pieces.
        for first in range(span.begin, span.end + 1, span.step * POINTS_PER_QUERY):
            last = min(first + span.step * (POINTS_PER_QUERY - 1), span.end)
            samples |= _ask(client, url, query, TimeRange(first, last, span.step))
    finally:
        client.close()
    rate, filled = _complete(query, span, samples, fill)
    if (negative := np.flatnonzero(rate < 0)).size:
        at = _text(span.times()[negative[0]])
        raise WorkloadError(f"query {query}: {rate[negative[0]]:g} at {at}; negative, ask for rate(...) of a counter")
    if not rate.any():
        raise WorkloadError(f"query {query}: 0 all the time; choose a time with traffic")
    comments = (
        f"Source: {_without_credentials(url)}, query {query}",
        f"From {_text(span.begin)} to {_text(span.end)} every {span.step} s"
        + (f"; {filled} missing samples filled ({fill})" if filled else ""),
    )
    return Trace(rate, float(span.step), comments, float(span.begin))


def parse_time(text: str, now: datetime) -> datetime:
    """`now`, `now-7d`, Unix seconds or ISO 8601 (UTC where it names no zone). Raises WorkloadError."""
    text = text.strip()
    if text == "now":
        return now
    if text.startswith("now-"):
        return now - timedelta(seconds=parse_duration(text[4:]))
    try:
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return datetime.fromtimestamp(float(text), UTC)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError) as error:
        raise WorkloadError(
            f"time {text!r}: neither `now`, `now-7d`, Unix seconds nor ISO 8601 like 2026-01-31T12:00:00Z"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_duration(text: str) -> int:
    """The seconds that texts like `90`, `15s`, `1m`, `1h30m` and `7d` say. Raises WorkloadError."""
    text = text.strip()
    if text.isdigit() and int(text):
        return int(text)
    match = _DURATION.fullmatch(text)
    numbers = [int(number or 0) for number in match.groups()] if match else []
    seconds = sum(number * _UNITS[unit] for number, unit in zip(numbers, "wdhms", strict=False))
    if not seconds:
        raise WorkloadError(f"duration {text!r}: write whole seconds or like 15s, 1m, 1h30m, 7d; at least 1 s")
    return seconds


def read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise WorkloadError(f"--bearer-token-file {path}: {error}") from error
    if not token:
        raise WorkloadError(f"--bearer-token-file {path}: is empty; put the token into it")
    return token


class _Bearer(AuthBase):
    """An own class, so that a ~/.netrc does not put another credential in its place."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _client(url: str, token: str | None) -> Any:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise WorkloadError(f"--prometheus {url}: write http:// or https:// and the host")
    retry = Retry(total=2, backoff_factor=0.2, status_forcelist=(502, 503, 504), raise_on_status=False)
    return PrometheusConnect(url=url.rstrip("/"), auth=_Bearer(token) if token else None, retry=retry)


def _ask(client: Any, url: str, query: str, part: TimeRange) -> dict[int, float]:
    """time -> value of the samples that there are in one piece of the range."""
    begin, end = (datetime.fromtimestamp(moment, UTC) for moment in (part.begin, part.end))
    where = f"Prometheus {_without_credentials(url)}"
    try:
        series = client.custom_query_range(query, begin, end, str(part.step), timeout=TIMEOUT_SECONDS)
        labels = [json.dumps(line["metric"], sort_keys=True) for line in series]
        values = {round(float(moment)): float(value) for line in series for moment, value in line["values"]}
    except PrometheusApiClientException as error:
        raise WorkloadError(f"{where}: {_reason(str(error))}") from error
    except (JSONDecodeError, KeyError, TypeError) as error:
        raise WorkloadError(f"{where}: does not answer as Prometheus does ({_short(error)})") from error
    except RequestException as error:
        raise WorkloadError(f"{where}: cannot be asked ({_short(error)}); is the address right?") from error
    if len(labels) > 1:
        some = ", ".join(labels[:2])
        raise WorkloadError(f"query {query}: {len(labels)} series ({some}, ...); one is needed, put sum(...) around it")
    return values


def _complete(query: str, span: TimeRange, samples: dict[int, float], fill: str | None) -> tuple[Float, int]:
    """(bins,) rates, and how many had to be filled."""
    times = span.times()
    if len(times) < 2:
        raise WorkloadError(f"--from {_text(span.begin)} to {_text(span.end)}: shorter than two steps")
    if not samples:
        raise WorkloadError(
            f"query {query}: no data from {_text(span.begin)} to {_text(span.end)}; check the query and the range"
        )
    rate = np.array([samples.get(moment, np.nan) for moment in times])
    missing = ~np.isfinite(rate)
    if not missing.any():
        return rate, 0
    first = int(np.argmax(missing))
    gap = f"query {query}: {int(missing.sum())} of {len(times)} samples are missing, the first at {_text(times[first])}"
    if fill is None:
        raise WorkloadError(f"{gap}; ask for a range without gaps, or fill them with --fill hold or --fill zero")
    if fill == "zero":
        return np.where(missing, 0.0, rate), int(missing.sum())
    if first == 0:
        begin = _text(times[int(np.argmin(missing))])
        raise WorkloadError(f"{gap}: nothing to hold before the first sample; begin with --from {begin}")
    # A running maximum of the known places is the last known sample before each.
    held = np.maximum.accumulate(np.where(missing, 0, np.arange(len(times))))
    return rate[held], int(missing.sum())


def _reason(text: str) -> str:
    """Reason in Prometheus's answer, out of the client's `HTTP Status Code 400 (b'{...}')`."""
    match = re.fullmatch(r"HTTP Status Code (\d+) \((b.*)\)", text, re.DOTALL)
    if match is None:
        return _short(text)
    code, body = match.groups()
    if code in ("401", "403"):
        return f"HTTP {code}, not allowed; name a file with a token by --bearer-token-file"
    try:
        reason = json.loads(ast.literal_eval(body))["error"]
    except (ValueError, KeyError, TypeError):
        reason = "no reason given"
    return f"HTTP {code}: {_short(reason)}"


def _without_credentials(url: str) -> str:
    parts = urlsplit(url.rstrip("/"))
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _text(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _short(error: object) -> str:
    text = re.sub(r"<[^<>]* object at 0x[0-9a-f]+>:? ?", "", " ".join(str(error).split()))
    return text if len(text) <= 200 else text[:199] + "…"
