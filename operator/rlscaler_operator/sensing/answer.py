"""An answer of Prometheus's HTTP API, or of a server that speaks it, and whether it is whole. Pure.

An answer that lacks a part is none: the rest of a sum would pass for the whole. Thanos says so in `warnings`,
VictoriaMetrics in `isPartial`, and Prometheus in `warnings` where it left out what is beyond `limit` or what a remote
storage did not give. What begins with "PromQL info:" or "PromQL warning:" (util/annotations in Prometheus), and all of
`infos`, is about an expression and the shape of single series; one service's odd series must not blind all others.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, NamedTuple

from rlscaler_operator.exceptions import MetricsError

ANNOTATIONS = ("PromQL info:", "PromQL warning:")
"""How warnings begin that say nothing of data that is missing."""

TRUNCATED = "results truncated due to limit"
"""Prometheus's warning where an answer has more series than `limit` (web/api/v1/api.go)."""

SHOWN_CHARACTERS = 300


class Bounds(NamedTuple):
    """The largest answer that is taken."""

    size: int
    """Bytes."""
    series: int

    @property
    def size_in_words(self) -> str:
        return f"{self.size / 2**20:.3g} MiB" if self.size >= 2**20 else f"{self.size / 2**10:.3g} KiB"


SHARED = Bounds(16 * 2**20, 50_000)
"""The default of those of a query that policies share."""

OWN = Bounds(64 * 2**10, 10)
"""Those of a query in `spec.metrics.queries`, which must give one sample."""


def series_of(body: bytes, bounds: Bounds) -> list[dict[str, Any]]:
    """Return the series of an answer. Raises MetricsError where it is not whole, too large, or not Prometheus's."""
    try:
        answer = json.loads(body)
        data = answer["data"]
        result, kind = data["result"], data.get("resultType", "vector")
        warnings = [str(warning) for warning in answer.get("warnings") or ()]
        partial = answer.get("isPartial", False)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetricsError("the answer is not Prometheus's: check the URL", "PrometheusError") from error
    if kind in ("scalar", "string") and isinstance(result, list):
        result = [{"metric": {}, "value": result}]
    if not isinstance(result, list) or not all(isinstance(one, dict) for one in result):
        raise MetricsError("the answer is not Prometheus's: check the URL", "PrometheusError")
    if len(result) > bounds.series or any(TRUNCATED in warning for warning in warnings):
        raise too_large(bounds, f"{bounds.series} series")
    missing = [warning for warning in warnings if not warning.startswith(ANNOTATIONS)]
    if partial or missing:
        text = shorten("; ".join(missing) or "isPartial")
        raise MetricsError(f"Prometheus answered in part: {text}", "PartialAnswer")
    return result


def too_large(bounds: Bounds, what: str) -> MetricsError:
    """Make the error for an answer with more than `what`."""
    if bounds is OWN:
        text = f"its query in spec.metrics.queries gives more than {what}, not one sample: aggregate it"
    else:
        text = f"the answer has more than {what}: raise RLSCALER_ANSWER_BYTES or RLSCALER_ANSWER_SERIES"
    return MetricsError(text, "AnswerTooLarge")


def refusal(status: int, body: bytes) -> MetricsError:
    """Make the error for an answer with an HTTP status other than 200."""
    if status in (401, 403):
        text = f"Prometheus refused the credential (HTTP {status}): check spec.metrics.prometheus.auth"
        return MetricsError(text, "PrometheusUnauthorized")
    if 300 <= status < 400:
        return MetricsError("Prometheus sends elsewhere: name the URL that it redirects to")
    said = body.decode(errors="replace")
    with contextlib.suppress(ValueError, AttributeError):
        said = str(json.loads(said).get("error", said))
    return MetricsError(f"Prometheus refused the query (HTTP {status}): {shorten(said)}", "PrometheusError")


def shorten(text: str) -> str:
    """Return a text in one line of a limited length."""
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
