"""From answers of Prometheus to one reading per service or Deployment. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.newest import Rates, Seen
from rlscaler_operator.sensing.queries import By

NOTHING = ("", "")
"""The key of an answer that belongs to no service and no Deployment."""

Key = tuple[str, str]
"""(namespace, name of the service or Deployment)."""


class Reading(NamedTuple):
    """One measured value; NaN with a reason where it is not known. A tuple: thousands are made at every tick."""

    value: float
    age_seconds: float = math.inf
    reason: str = ""
    message: str = ""
    pods: int | None = None
    """How many pods it is the mean of; None where it is no mean over pods."""
    pools: Mapping[str, Reading] = MappingProxyType({})
    """The same by the label `pool`, where it is a sum over pools."""
    may_lower: bool = True
    """Not where the samples behind it may have stopped: its value may raise replicas then, and not lower them."""
    emptied: float | None = None
    """What Prometheus makes of the same samples now, where the value is of when they were new."""

    @property
    def known(self) -> bool:
        return math.isfinite(self.value)


def unknown(reason: str, message: str, age_seconds: float = math.inf) -> Reading:
    return Reading(math.nan, age_seconds, reason, message)


def absent(what: str) -> Reading:
    return unknown("SeriesAbsent", f"Prometheus has no series for {what}")


def group(result: Iterable[Mapping[str, Any]], by: By, rates: Rates | None = None) -> dict[Key, Reading]:
    """Readings by (namespace, `by`), from value series (`_="v"`), time series (`_="t"`) and numbers of pods (`_="n"`).

    `by` "pool" gives readings by (namespace, service), each the sum of its pools. Two different values of one subject
    are unknown: replicas of Prometheus without deduplication disagree like that, and neither is the right one.
    `rates` is what was seen of them before, where they are rates.
    """
    if by == "nothing":
        return {NOTHING: _single(list(result))}
    name = "service" if by == "pool" else by
    values: dict[tuple[Key, str], float] = {}
    taken: dict[tuple[Key, str], float] = {}
    evaluated = 0.0
    pods: dict[tuple[Key, str], int] = {}
    ambiguous: set[tuple[Key, str]] = set()
    for series in result:
        labels = series.get("metric", {})
        key = (labels.get("namespace", ""), labels.get(name, "")), labels.get("pool", "") if by == "pool" else ""
        at, text = series["value"]
        evaluated, number = float(at), float(text)
        if labels.get("_") == "v":
            if values.setdefault(key, number) != number:
                ambiguous.add(key)
        elif labels.get("_") == "t" and math.isfinite(number):
            taken[key] = min(taken.get(key, math.inf), number)
        elif labels.get("_") == "n" and math.isfinite(number):
            pods[key] = int(number)
    readings: dict[Key, dict[str, Reading]] = {}
    for key in sorted(values.keys() | taken.keys()):
        one = _reading(values.get(key), max(0.0, evaluated - taken.get(key, -math.inf)), key[0], pods.get(key))
        if key in ambiguous and one.known:
            text = f"Prometheus gives several values for {key[0][1]}: deduplicate, or ask one replica"
            one = unknown("SeriesAmbiguous", text, one.age_seconds)
        elif rates is not None and key not in values:
            rates.forget(key)
        elif rates is not None and key in taken and one.known:
            one = _as_seen(one, rates.look(key, one.value, taken[key], evaluated), evaluated)
        readings.setdefault(key[0], {})[key[1]] = one
    return {key: total(pools) if by == "pool" else pools[""] for key, pools in readings.items()}


def _single(result: list[Mapping[str, Any]]) -> Reading:
    """The one sample that a query of the user's own must give."""
    values = [series for series in result if series.get("metric", {}).get("_") == "v"]
    times = [series for series in result if series.get("metric", {}).get("_") == "t"]
    if len(values) != 1:
        what = "no sample" if not values else f"{len(values)} samples"
        reason = "SeriesAbsent" if not values else "SeriesAmbiguous"
        return unknown(reason, f"its query in spec.metrics.queries gives {what}, not one: aggregate it")
    text = values[0]["value"][1]
    ages = [float(at) - float(time) for at, time in (series["value"] for series in times)]
    if not math.isfinite(float(text)):
        return unknown("NotANumber", f"its query in spec.metrics.queries gives {text}")
    return Reading(float(text), max(0.0, *ages) if ages else 0.0)


def _reading(value: float | None, age: float, key: Key, pods: int | None) -> Reading:
    if value is None:
        return unknown("WindowEmpty", f"{key[1]} has fewer than two samples in the rate window", age)
    if not math.isfinite(value):
        return unknown("NotANumber", f"the value of {key[1]} is {value}", age)
    return Reading(value, age, pods=pods)


def _as_seen(now: Reading, seen: Seen, evaluated: float) -> Reading:
    age = max(0.0, evaluated - seen.taken)
    return Reading(seen.value, age, pods=now.pods, may_lower=seen.may_lower, emptied=now.value)


def total(pools: Mapping[str, Reading]) -> Reading:
    """The sum of the pools that are known, as old as the oldest of all; unknown where none is known."""
    known = [reading for reading in pools.values() if reading.known]
    age = max(reading.age_seconds for reading in pools.values())
    if not known:
        return next(iter(pools.values()))._replace(pools=pools)
    may_lower = all(reading.may_lower for reading in known)
    return Reading(sum(reading.value for reading in known), age, pools=pools, may_lower=may_lower)


def arrivals(whole: Reading, ready: Mapping[str, int]) -> Reading:
    """The arrival rate of a service; unknown where a pool with ready replicas is missing from the sum.

    `ready` are the ready replicas by pool. A dead exporter's series vanish, and the rest of the sum would pass for the
    whole. A service that does not label its series by our pools is taken as it is.
    """
    # A rate outlives its series by its window; only the time of the newest sample vanishes with it.
    living = {
        pool: reading if ready.get(pool) != 0 else _of_nobody(reading)
        for pool, reading in whole.pools.items()
        if math.isfinite(reading.age_seconds)
    }
    if not living or "" in whole.pools or not whole.pools.keys() & ready.keys():
        return whole
    for pool, count in ready.items():
        if count > 0 and pool not in living:
            return unknown("SeriesAbsent", f"Prometheus has no series for pool {pool} and has some for another pool")
        if count > 0 and not living[pool].known:
            return living[pool]
    return total(living)


def _of_nobody(reading: Reading) -> Reading:
    """Of a pool that has no ready replica: its samples stop because it is gone, and others have its load now."""
    return reading if reading.emptied is None else reading._replace(value=reading.emptied, may_lower=True)


def pick(answer: Mapping[Key, Reading] | MetricsError, key: Key) -> Reading:
    """The reading of one service or Deployment, or why there is none."""
    if isinstance(answer, MetricsError):
        return unknown(answer.reason, str(answer))
    return answer.get(key) or absent(f"{key[1]} in namespace {key[0]}")


def ratio(usage: Iterable[Reading], request_per_replica: Iterable[Reading], ready: Iterable[int]) -> Reading:
    """% that the replicas use of what they request. `usage` and request are per replica: means over pods with data.

    A pool without ready replicas is left out; no ready replica at all is unknown, and so is a pool of which most pods
    have no data.
    """
    used = requested = 0.0
    oldest, may_lower = 0.0, True
    for one, request, count in zip(usage, request_per_replica, ready, strict=True):
        if count <= 0:
            continue
        for reading in (_of_enough(one, count), request):
            if not reading.known:
                return unknown(reading.reason, reading.message, reading.age_seconds)
        used += one.value * count
        requested += request.value * count
        oldest, may_lower = max(oldest, one.age_seconds), may_lower and one.may_lower
    if requested <= 0:
        return unknown("NoReadyReplicas", "no ready replica with a resource request", oldest or math.inf)
    return Reading(100 * used / requested, oldest, may_lower=may_lower)


def per_replica(mean: Reading, ready: int) -> Reading:
    """Mean over the ready replicas that have data, at most 100 %; unknown where most of them have none."""
    if mean.known and ready <= 0:
        return unknown("NoReadyReplicas", "no ready replica", mean.age_seconds)
    mean = _of_enough(mean, ready)
    return mean._replace(value=min(100.0, mean.value)) if mean.known else mean


def _of_enough(mean: Reading, ready: int) -> Reading:
    if not mean.known or mean.pods is None or 2 * mean.pods >= ready:
        return mean
    return unknown("SeriesAbsent", "Prometheus has no series for most of the ready pods", mean.age_seconds)
