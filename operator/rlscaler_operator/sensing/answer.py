"""Answers of Prometheus's HTTP API, or of a compatible server, and the check whether they are whole. Pure.

An answer that lacks a part is refused: the rest of a sum would pass for the whole. Thanos reports a missing part in
`warnings`, VictoriaMetrics in `isPartial`, and Prometheus in `warnings` where `limit` or a failed remote storage cut
the answer. Warnings that begin with "PromQL info:" or "PromQL warning:" (util/annotations in Prometheus), and all of
`infos`, are about an expression and the shape of single series; one service's odd series must not blind all others.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, NamedTuple

from rlscaler_operator.exceptions import MetricsError

ANNOTATIONS = ("PromQL info:", "PromQL warning:")
"""Beginnings of warnings that do not mean missing data."""

TRUNCATED = "results truncated due to limit"
"""Prometheus's warning where an answer has more series than `limit` (web/api/v1/api.go)."""

SHOWN_CHARACTERS = 300

SLOW = "QueryTooSlow"
"""Reason of an unknown signal whose query is not answered in time by a server that answers others."""

OF_THE_QUERY = (400, 413, 414, 422)
"""HTTP statuses that are about the query: it is wrong, too long, or one that Prometheus will not execute."""

TIMED_OUT = re.compile(r"(?i)timed? ?out|deadline exceeded")
"""Words of a server that gave a query up: Prometheus says `query timed out` with 503, Mimir and Cortex have others."""

TENANT = re.compile(r"(?i)\borg ?id\b|tenant")
"""Words of a server that misses the tenant: Mimir and Cortex say `no org id`."""


class Bounds(NamedTuple):
    """Limits of the size of an answer."""

    size: int
    """Bytes."""
    series: int

    @property
    def size_in_words(self) -> str:
        return f"{self.size / 2**20:.3g} MiB" if self.size >= 2**20 else f"{self.size / 2**10:.3g} KiB"


SHARED = Bounds(16 * 2**20, 50_000)
"""Default limits for a query that policies share."""

OWN = Bounds(64 * 2**10, 10)
"""Limits for a query in `spec.metrics.queries`, which must give one sample."""


def series_of(body: bytes, bounds: Bounds) -> list[dict[str, Any]]:
    """Return the series of an answer. Raises MetricsError where it is not whole, too large, or not Prometheus's."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        text = "the answer is no JSON, or a part of one: check the URL, and proxies before the server"
        raise MetricsError(text, "PrometheusError") from error
    if isinstance(answer, dict) and answer.get("status") == "error":
        raise refusal(200, body)
    try:
        data = answer["data"]
        result, kind = data["result"], data.get("resultType", "vector")
        warnings = [str(warning) for warning in answer.get("warnings") or ()]
        partial = answer.get("isPartial", False)
    except (KeyError, TypeError, AttributeError) as error:
        raise MetricsError("the answer is not Prometheus's: check the URL", "PrometheusError") from error
    if kind in ("scalar", "string") and isinstance(result, list):
        result = [{"metric": {}, "value": result}]
    if not isinstance(result, list) or not all(isinstance(series, dict) for series in result):
        raise MetricsError("the answer is not Prometheus's: check the URL", "PrometheusError")
    if len(result) > bounds.series or any(TRUNCATED in warning for warning in warnings):
        raise too_large(bounds, f"{bounds.series} series")
    missing = [warning for warning in warnings if not warning.startswith(ANNOTATIONS)]
    if partial or missing:
        text = shorten("; ".join(missing) or "isPartial")
        raise MetricsError(f"Prometheus answered in part: {text}", "PartialAnswer")
    return result


def too_large(bounds: Bounds, limit: str) -> MetricsError:
    """Return the error for an answer beyond a limit, which is given in words."""
    if bounds is OWN:
        text = f"its query in spec.metrics.queries gives more than {limit}, not one sample: aggregate it"
    else:
        text = f"the answer has more than {limit}: raise RLSCALER_ANSWER_BYTES or RLSCALER_ANSWER_SERIES"
    return divisible(MetricsError(text, "AnswerTooLarge"))


def refusal(status: int, body: bytes) -> MetricsError:
    """Return the error for an answer with an HTTP status other than 200."""
    message = body.decode(errors="replace")
    with contextlib.suppress(ValueError, AttributeError):
        message = str(json.loads(message).get("error", message))
    # A proxy answers with a page: its words without the tags.
    message = shorten(re.sub(r"<[^<>]*>", " ", message))
    if status in (401, 403):
        tenant = ".tenant (or RLSCALER_PROMETHEUS_HEADERS)" if TENANT.search(message) else ""
        text = f"Prometheus refused the credential (HTTP {status}{f', {message}' if message else ''})"
        return MetricsError(f"{text}: check spec.metrics.prometheus.auth{tenant}", "PrometheusUnauthorized")
    if 300 <= status < 400:
        return MetricsError("Prometheus sends elsewhere: name the URL that it redirects to")
    if status == 504 or (status >= 500 and TIMED_OUT.search(message)):
        return divisible(MetricsError(f"Prometheus gave up the query: {message}", SLOW))
    error = MetricsError(f"Prometheus refused the query (HTTP {status}): {message}", "PrometheusError")
    return divisible(error) if status in OF_THE_QUERY else error


def divisible(error: MetricsError) -> MetricsError:
    """Return an error of a query for which single policies may be the reason."""
    error.divisible = True
    return error


def shorten(text: str) -> str:
    """Return a text in one line of at most SHOWN_CHARACTERS."""
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
