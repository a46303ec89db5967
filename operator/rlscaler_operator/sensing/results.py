"""Readings of services and Deployments from answers of Prometheus. Pure: times are passed in.

A rate is taken over a window that ends now. When samples stop coming the window only empties: the rate falls although
nothing was measured. So a rate is held at its newest raw sample: until a newer sample comes it has the value of the
moment when that sample was first seen, and ages. The rate of a window that may not be full is too low: it may raise
replicas and not lower them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from rlscaler_core.queueing.histogram import quantile
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.buckets import as_classic, summed
from rlscaler_operator.sensing.queries import By, Window

NOTHING = ("", "")
"""Key of an answer without service and Deployment."""

Key = tuple[str, str]
"""(namespace, name of the service or Deployment)."""

Pool = tuple[Key, str]
"""(key of the service or Deployment, name of the pool or empty) of one rate."""

FORGET_SECONDS = 3600.0
"""Age at which a held rate is forgotten: the longest `maxAgeSeconds`, so that no policy uses an older one."""

FULL_SCRAPES = 1.1
"""Prometheus's `rate` extrapolates to an end of its window that is nearer to a sample than this many scrapes
(extrapolatedRate in promql/functions.go): such a window counts as full."""

COPIES = (
    "Prometheus has series that differ only by the label replica (of an HA pair: name it in RLSCALER_REPLICA_LABELS; "
    "of the service: rename it)"
)

CLUSTERS = (
    "Prometheus has series of several clusters: name this one's label in prometheus.matchLabels of the chart "
    "(RLSCALER_MATCH_LABELS=cluster=…) or in spec.metrics.prometheus.matchLabels"
)

LATER_SCRAPES = 0.5
"""Scrapes by which a sample may come later than the promptest one before its rate is in doubt."""


class Reading(NamedTuple):
    """One measured value; NaN with a reason where it is unknown. A tuple, because each tick makes thousands."""

    value: float
    age_seconds: float = math.inf
    reason: str = ""
    message: str = ""
    pods: int | None = None
    """Number of pods behind a mean over pods; None for other values."""
    pools: Mapping[str, Reading] = MappingProxyType({})
    """Readings by the label `pool` whose sum is the value, or readings of buckets by `le`."""
    may_lower: bool = True
    """False where its samples may have stopped: the value may raise replicas then, and not lower them."""
    emptied: float | None = None
    """Present rate in Prometheus, where `value` is held at the newest sample; None where nothing is held."""

    @property
    def known(self) -> bool:
        return math.isfinite(self.value)


Answers = dict[str, dict[Key, Reading] | MetricsError]
"""Readings by the name of the query, or the error of the query."""


class TimedAnswers(NamedTuple):
    """Answers to own queries, and the seconds that Prometheus took."""

    answers: Answers
    seconds: float = 0.0


def unknown(reason: str, message: str, age_seconds: float = math.inf) -> Reading:
    """Return a reading without a value; `reason` is CamelCase as in Kubernetes conditions."""
    return Reading(math.nan, age_seconds, reason, message)


def absent(subject: str) -> Reading:
    """Return the unknown reading for a series that Prometheus does not have."""
    return unknown("SeriesAbsent", f"Prometheus has no series for {subject}")


def group(result: Iterable[Mapping[str, Any]], by: By, rates: HeldRates | None = None) -> dict[Key, Reading]:
    """Return readings by (namespace, `by`), from series of values (`_="v"`), times (`_="t"`) and pods (`_="n"`).

    With `by` "pool" each reading is the sum of a service's pools; with "le" its `pools` are the buckets of a histogram
    by their upper bounds, and its own value is meaningless. A subject with two different values, or whose series exist
    several times (`_="d"`) or in several clusters (`_="c"`), is unknown: none of the values is known to be right.
    `rates` are the held rates of former answers; None where the values are no rates.
    """
    if by == "nothing":
        return {NOTHING: _single(list(result))}
    name, _, part = ("service", "", "pool") if by == "pool" else by.partition(", ")
    values: dict[Pool, float] = {}
    taken: dict[Pool, float] = {}
    evaluated = 0.0
    pods: dict[Pool, int] = {}
    ambiguous: dict[Pool, str] = {}
    clusters: set[Key] = set()
    for series in as_classic(result) if part == "le" else result:
        if "value" not in series:
            continue  # A native histogram where a number is asked for: one service's odd series blinds no other.
        labels = series.get("metric", {})
        key = (labels.get("namespace", ""), labels.get(name, "")), labels.get(part, "") if part else ""
        at, text = series["value"]
        evaluated, number = float(at), float(text)
        if labels.get("_") == "v":
            if values.setdefault(key, number) != number:
                ambiguous[key] = f"Prometheus gives several values for {key[0][1]}: deduplicate, or ask one replica"
        elif labels.get("_") == "t" and math.isfinite(number):
            taken[key] = min(taken.get(key, math.inf), number)
        elif labels.get("_") == "n" and math.isfinite(number):
            pods[key] = int(number)
        elif labels.get("_") == "d":
            ambiguous[key] = f"{COPIES} for {key[0][1]}: deduplicate, or ask one replica"
        elif labels.get("_") == "c":
            clusters.add(key[0])
    if part == "le":
        # The time is that of the whole histogram (its `_count`), so each bucket gets the time of its histogram.
        counted = {key[0] for key in values}
        times = {key: at for key, at in taken.items() if key[0] not in counted}
        taken = times | {key: taken[key[0], ""] for key in values if (key[0], "") in taken}
    readings: dict[Key, dict[str, Reading]] = {}
    for key in sorted(values.keys() | taken.keys()):
        reading = _reading(values.get(key), max(0.0, evaluated - taken.get(key, -math.inf)), key[0], pods.get(key))
        if (key in ambiguous or key[0] in clusters) and reading.known:
            text = CLUSTERS if key[0] in clusters else ambiguous[key]
            reading = unknown("SeriesAmbiguous", text, reading.age_seconds)
        elif rates is not None and key not in values:
            rates.forget(key)
        elif rates is not None and key in taken and reading.known:
            reading = _held(reading, rates.hold(key, reading.value, taken[key], evaluated), evaluated)
        readings.setdefault(key[0], {})[key[1]] = reading
    return {key: total(pools) if part else pools[""] for key, pools in readings.items()}


def _single(result: list[Mapping[str, Any]]) -> Reading:
    """Return a reading of the one sample that a user's own query must give."""
    result = [series for series in result if "value" in series]
    values = [series for series in result if series.get("metric", {}).get("_") == "v"]
    times = [series for series in result if series.get("metric", {}).get("_") == "t"]
    if len(values) != 1:
        number = f"{len(values)} samples" if values else "no sample"
        reason = "SeriesAmbiguous" if values else "SeriesAbsent"
        return unknown(reason, f"its query in spec.metrics.queries gives {number}, not one: aggregate it")
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


def _held(now: Reading, held: HeldRate, evaluated: float) -> Reading:
    age = max(0.0, evaluated - held.taken)
    return Reading(held.value, age, pods=now.pods, may_lower=held.may_lower, emptied=now.value)


def total(pools: Mapping[str, Reading]) -> Reading:
    """Return the sum of the known pools, as old as the oldest of all pools; unknown where none is known."""
    known = [reading for reading in pools.values() if reading.known]
    age = max(reading.age_seconds for reading in pools.values())
    if not known:
        return next(iter(pools.values()))._replace(pools=pools)
    may_lower = all(reading.may_lower for reading in known)
    return Reading(sum(reading.value for reading in known), age, pools=pools, may_lower=may_lower)


def percentile_of(histograms: Sequence[Reading], percentile: float, milliseconds: float) -> Reading:
    """Return a percentile of the sum of several histograms, in milliseconds; missing histograms are left out.

    `milliseconds` is the length of one unit of their bounds.
    """
    present = [histogram for histogram in histograms if math.isfinite(histogram.age_seconds)]
    if not present:
        return histograms[0]
    whole_seen = True
    parts: list[dict[float, float]] = []
    for each in present:
        buckets = {bound: bucket for le, bucket in each.pools.items() if not math.isnan(bound := bound_of(le))}
        if (bad := next((bucket for bucket in buckets.values() if not bucket.known), None)) is not None:
            return bad
        parts.append({bound: bucket.value for bound, bucket in buckets.items()})
        # Buckets of a native histogram come and go with single requests; its window is that of its count.
        whole_seen &= math.inf not in buckets or buckets[math.inf].may_lower
    rates = summed(parts)
    age, whole = max(histogram.age_seconds for histogram in present), rates.get(math.inf, math.nan)
    if not rates:
        return present[0]
    if not whole > 0:
        return unknown("NotANumber", "no request was answered in the rate window", age)
    bounds = np.array(sorted(bound for bound in rates if math.isfinite(bound)))
    shares = np.maximum.accumulate([rates[bound] / whole for bound in bounds])
    value = float(quantile(shares[None], bounds, percentile / 100)[0])
    # As with Prometheus's `histogram_quantile`, a percentile beyond the last finite bound is that bound.
    value = min(value, float(bounds[-1])) if len(bounds) else math.nan
    return Reading(milliseconds * value, age, may_lower=whole_seen)


def bound_of(le: str) -> float:
    """Return the upper bound of a bucket; NaN where its label is no number: Prometheus leaves it out, too."""
    try:
        return float(le)
    except ValueError:
        return math.nan


def arrivals(whole: Reading, ready: Mapping[str, int]) -> Reading:
    """Return the arrival rate of a service; unknown where a pool with ready replicas is missing from the sum.

    `ready` are the ready replicas by pool. A service that does not label its series by our pools is left unchanged.
    """
    # A dead exporter's series vanish, and the rest of the sum would pass for the whole.
    # A rate outlives its series by its window; only the time of the newest sample vanishes with the series.
    living = {
        pool: reading if ready.get(pool) != 0 else _not_held(reading)
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


def _not_held(reading: Reading) -> Reading:
    """Return the present rate: the samples of a pool without ready replicas stop as other pools take its load."""
    return reading if reading.emptied is None else reading._replace(value=reading.emptied, may_lower=True)


def pick(answer: Mapping[Key, Reading] | MetricsError, key: Key) -> Reading:
    """Return the reading of one service or Deployment; unknown with the reason where there is none."""
    if isinstance(answer, MetricsError):
        return unknown(answer.reason, str(answer))
    return answer.get(key) or absent(f"{key[1]} in namespace {key[0]}")


def ratio(usage: Iterable[Reading], request_per_replica: Iterable[Reading], ready: Iterable[int]) -> Reading:
    """Return the percentage of their resource request that the replicas of one or several pools use.

    `usage` and `request_per_replica` are means over the pods of each pool that have data, `ready` are the ready
    replicas of each. A pool without ready replicas is left out. The result is unknown where no replica is ready, and
    where most pods of a pool have no data.
    """
    used = requested = 0.0
    oldest, may_lower = 0.0, True
    for mean, request, count in zip(usage, request_per_replica, ready, strict=True):
        if count <= 0:
            continue
        for reading in (_with_enough_pods(mean, count), request):
            if not reading.known:
                return unknown(reading.reason, reading.message, reading.age_seconds)
        # The mean over the pods with data stands for all ready replicas of the pool.
        used += mean.value * count
        requested += request.value * count
        oldest, may_lower = max(oldest, mean.age_seconds), may_lower and mean.may_lower
    if requested <= 0:
        return unknown("NoReadyReplicas", "no ready replica with a resource request", oldest or math.inf)
    return Reading(100 * used / requested, oldest, may_lower=may_lower)


def per_replica(mean: Reading, ready: int) -> Reading:
    """Return the mean over the ready replicas that have data, at most 100 %; unknown where most of them have none."""
    if mean.known and ready <= 0:
        return unknown("NoReadyReplicas", "no ready replica", mean.age_seconds)
    mean = _with_enough_pods(mean, ready)
    return mean._replace(value=min(100.0, mean.value)) if mean.known else mean


def _with_enough_pods(mean: Reading, ready: int) -> Reading:
    """Return the mean; unknown where it is over less than half of the ready pods."""
    if not mean.known or mean.pods is None or 2 * mean.pods >= ready:
        return mean
    return unknown("SeriesAbsent", "Prometheus has no series for most of the ready pods", mean.age_seconds)


class HeldRate(NamedTuple):
    """Rate at the moment when its newest raw sample was first seen."""

    value: float
    taken: float
    """Time of that sample, in unix seconds by Prometheus's clock."""
    lag_seconds: float
    """Least age at which a newest sample was first seen."""
    begun: float
    """Time of the newest sample when the window first had two of them: the other one is a scrape older."""
    may_lower: bool
    """True where its window was full; otherwise the samples may be late or may have stopped."""


def hold(before: HeldRate | None, value: float, taken: float, evaluated: float, window: Window) -> HeldRate:
    """Return the held rate after an answer with `value` at the time `evaluated` and its newest sample at `taken`.

    Times are unix seconds.
    """
    age, scrape = max(0.0, evaluated - taken), window.scrape_seconds
    # The window of a rate that is seen first, or first after Prometheus's clock was set back, may not be full.
    if before is None or before.taken > evaluated:
        return HeldRate(value, taken, age, begun=taken, may_lower=False)
    if taken <= before.taken:
        return before
    # A sample is prompt if Prometheus extrapolates over its age, or if samples of this series always come that late.
    # A stamp of an exporter whose clock is ahead says nothing about the time of a sample.
    ahead = taken > evaluated + scrape
    prompt = not ahead and age < max(FULL_SCRAPES * scrape, before.lag_seconds + LATER_SCRAPES * scrape)
    # The window is full when its oldest sample is nearer to its begin than Prometheus extrapolates; that sample is a
    # scrape older than `begun`.
    filled = taken - before.begun > window.seconds - (1 + FULL_SCRAPES) * scrape
    lag = min(age, before.lag_seconds) if prompt else age
    return HeldRate(value, taken, lag, before.begun, may_lower=prompt and filled)


class HeldRates:
    """Rates of one query, each held at its newest sample."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._held: dict[Pool, HeldRate] = {}
        self._swept = 0.0

    def hold(self, pool: Pool, value: float, taken: float, evaluated: float) -> HeldRate:
        """Apply the function `hold` to a rate and remember the result."""
        if evaluated - self._swept > FORGET_SECONDS:
            self._held = {key: held for key, held in self._held.items() if evaluated - held.taken <= FORGET_SECONDS}
            self._swept = evaluated
        held = self._held[pool] = hold(self._held.get(pool), value, taken, evaluated, self._window)
        return held

    def forget(self, pool: Pool) -> None:
        """Forget a rate whose window has too few samples: the window has to fill again."""
        self._held.pop(pool, None)
