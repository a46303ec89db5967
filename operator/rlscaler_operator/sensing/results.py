"""From answers of Prometheus to one reading per service or Deployment. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.queries import By

Key = tuple[str, str]
"""(namespace, name of the service or Deployment)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured value; NaN with a reason where it is not known."""

    value: float
    age_seconds: float = math.inf
    reason: str = ""
    message: str = ""

    @property
    def known(self) -> bool:
        return math.isfinite(self.value)


def unknown(reason: str, message: str, age_seconds: float = math.inf) -> Reading:
    return Reading(math.nan, age_seconds, reason, message)


def absent(what: str) -> Reading:
    return unknown("SeriesAbsent", f"Prometheus has no series for {what}")


def group(result: Iterable[Mapping[str, Any]], by: By) -> dict[Key, Reading]:
    """Readings by (namespace, `by`), from the value series (`_="v"`) and the time series (`_="t"`)."""
    values: dict[Key, float] = {}
    ages: dict[Key, float] = {}
    for series in result:
        labels = series.get("metric", {})
        key = (labels.get("namespace", ""), labels.get(by, ""))
        evaluated, text = series["value"]
        number = float(text)
        if labels.get("_") == "v":
            values[key] = number
        elif labels.get("_") == "t" and math.isfinite(number):
            ages[key] = max(0.0, float(evaluated) - number)
    return {key: _reading(values.get(key), ages.get(key, math.inf), key) for key in values.keys() | ages.keys()}


def _reading(value: float | None, age: float, key: Key) -> Reading:
    if value is None:
        return unknown("WindowEmpty", f"{key[1]} has fewer than two samples in the rate window", age)
    if not math.isfinite(value):
        return unknown("NotANumber", f"the value of {key[1]} is {value}", age)
    return Reading(value, age)


def pick(answer: Mapping[Key, Reading] | MetricsError, key: Key) -> Reading:
    """The reading of one service or Deployment, or why there is none."""
    if isinstance(answer, MetricsError):
        return unknown(answer.reason, str(answer))
    return answer.get(key) or absent(f"{key[1]} in namespace {key[0]}")


def ratio(usage: Iterable[Reading], request_per_replica: Iterable[Reading], ready: Iterable[int]) -> Reading:
    """% that the replicas use of what they request: total usage over request per replica times ready replicas.

    A pool without ready replicas is left out; no ready replica at all is unknown.
    """
    used = requested = 0.0
    oldest = 0.0
    for one, request, count in zip(usage, request_per_replica, ready, strict=True):
        if count <= 0:
            continue
        for reading in (one, request):
            if not reading.known:
                return unknown(reading.reason, reading.message, reading.age_seconds)
        used += one.value
        requested += request.value * count
        oldest = max(oldest, one.age_seconds)
    if requested <= 0:
        return unknown("NoReadyReplicas", "no ready replica with a resource request", oldest or math.inf)
    return Reading(100 * used / requested, oldest)


def per_replica(total: Reading, ready: int) -> Reading:
    """Mean over ready replicas, at most 100 %."""
    if not total.known or ready <= 0:
        return total if not total.known else unknown("NoReadyReplicas", "no ready replica", total.age_seconds)
    return Reading(min(100.0, total.value / ready), total.age_seconds)
