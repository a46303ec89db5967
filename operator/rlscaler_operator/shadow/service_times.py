"""The time of work on a request at a replica, its spread, and the part until the first token: measured over a window.
Pure.

The histogram has the time from the arrival to the answer. The part of it spent waiting follows from the gauges of
waiting and running requests. At a low load nothing waits, and the histogram alone suffices: a gauge that is read every
half minute would find hardly anything running, or by chance a lot.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.types import POOLS, Float
from rlscaler_core.queueing.latency import USUAL_SPREAD
from rlscaler_operator.sensing.subject import WHOLE, Subject
from rlscaler_operator.shadow.calibration import (
    PERCENT,
    RUNNING,
    SPENT,
    WAITING,
    Histogram,
    Histograms,
    tells_running,
    timed_name,
)

FEWEST_ANSWERED = 20.0
"""Requests of a window from which on it says how long they are worked on."""

FEWEST_FOR_PERCENTILE = 100.0
"""And from which on the slowest twentieth is more than a few of them."""

DOUBT = 3.0
"""Requests more that may be as slow as none was seen to be, with 95 % confidence (the rule of three)."""

HARDLY_WAITING = 0.05
"""Share of the requests held that wait, up to which the latencies are those of the work alone."""

LEAST_FIRST = 0.1
"""Share of a mean time to the first token that is work at least: the gauge of waiting requests is read now and then."""

LEAST_SPREAD, MOST_SPREAD = 0.05, 1.2

_NORMAL = NormalDist()


class ServiceTimes(NamedTuple):
    """(2,) for each pool; NaN where it is not known."""

    seconds: Float
    """Mean time of work on a request, in seconds."""
    spread: Float
    """Standard deviation of the logarithm of the time that the latency counts beside the wait."""
    timed: Float
    """Mean of that time in seconds, where the latency does not count the whole work."""


def unknown_times() -> ServiceTimes:
    return ServiceTimes(*(np.full(len(POOLS), np.nan) for _ in ServiceTimes._fields))


def service_times(histograms: Histograms, subject: Subject, window_seconds: float) -> ServiceTimes:
    """Return the times of each pool in a window of `window_seconds`."""
    times = unknown_times()
    if not tells_running(subject) or subject.histogram is None:
        return times
    running = _by_pool(histograms, subject, subject.preset, f"{subject.preset} {RUNNING}")
    waiting = _by_pool(histograms, subject, subject.preset, f"{subject.preset} {WAITING}")
    latencies = [_answers(histograms, latency) for latency in subject.latencies]
    for number, pool in enumerate(POOLS):
        if not (pool in running and pool in waiting and all(pool in each for each in latencies)):
            continue
        answers, means = zip(*(each[pool] for each in latencies), strict=True)
        if answers[0].answered < FEWEST_ANSWERED:
            continue
        held = running[pool].received, waiting[pool].received
        if subject.signal == "endToEnd":
            times.seconds[number], times.spread[number] = _whole(means[0], answers[0], held, window_seconds)
        else:
            work, first = _to_first_token(means[0], answers[0].answered, held, window_seconds)
            # A second latency counts as a share of its objective, in seconds of the first.
            first_ms, token_ms = subject.token_objectives or (1.0, 1.0)
            shares = [first, *(mean * first_ms / token_ms for mean in means[1:])]
            times.seconds[number], times.timed[number] = work, max(shares)
            if math.isfinite(first):
                slowest = shares.index(max(shares))
                times.spread[number] = _spread(answers[slowest], (first, *means[1:])[slowest], alone=True)
    return times


def _answers(histograms: Histograms, latency: Subject) -> dict[str, tuple[Histogram, float]]:
    """Return by pool the histogram of one latency, and its mean in seconds."""
    name = timed_name(latency)
    answered = _by_pool(histograms, latency, latency.timed_by, name)
    spent = _by_pool(histograms, latency, latency.timed_by, f"{name} {SPENT}")
    if latency.histogram is None:
        return {}
    each_second = latency.histogram.per_second
    return {
        pool: (histogram, spent[pool].received / each_second / max(histogram.answered, 1.0))
        for pool, histogram in answered.items()
        if pool in spent
    }


def _whole(mean: float, answers: Histogram, held: tuple[float, float], window_seconds: float) -> tuple[float, float]:
    """Return mean and spread of the work on a request; `held` are the requests that run and that wait.

    By Little's law the mean latency times the requests answered in a second is the number of requests at a replica.
    Where the gauges found more than that, they are believed: at a high load many requests are not yet answered.
    """
    # Little's law: requests held = mean latency * requests answered in a second.
    requests = max(sum(held), mean * answers.answered / window_seconds)
    waits = held[1] / requests if requests > 0 else 0.0
    # The share of held requests that wait is the share of the latency spent waiting.
    seconds = mean * (1 - waits)
    return (seconds, _spread(answers, seconds, waits <= HARDLY_WAITING)) if seconds > 0 else (math.nan, math.nan)


def _to_first_token(
    mean: float, answers: float, held: tuple[float, float], window_seconds: float
) -> tuple[float, float]:
    """Return the mean time of work on a request, and the part of it until its first token; NaN where many waited.

    `mean` is the time to the first token with the wait, and `answers` are the first tokens of the window.
    """
    running, waiting = held
    if not running + waiting > 0 or waiting > HARDLY_WAITING * (running + waiting):
        return math.nan, math.nan
    # Little's law: seconds of a request = requests held / requests in a second.
    work, wait = running * window_seconds / answers, waiting * window_seconds / answers
    return work, max(mean - wait, LEAST_FIRST * mean)


def _by_pool(histograms: Histograms, subject: Subject, preset: str, name: str) -> dict[str, Histogram]:
    """Return histograms by pool; a count of the whole service belongs to the only pool, where there is one."""
    parts = {
        pool: histograms[name, *key]
        for pool, key in subject.identified_by(preset).items()
        if (name, *key) in histograms
    }
    pools = [pool for pool, target in zip(POOLS, subject.deployments, strict=True) if target is not None]
    return {pools[0]: parts[WHOLE]} if len(pools) == 1 and WHOLE in parts else parts


def _spread(histogram: Histogram, seconds: float, alone: bool) -> float:
    """Return the spread nearest to the usual one that the buckets allow for lognormal times of a mean of `seconds`.

    A request takes no less than the work on it, so no more are worked on for longer than a bound than took longer. If
    they were `alone`, as hardly any waited, the percentile is that of the work.
    """
    whole = histogram.answered
    most = MOST_SPREAD
    for bound, within in histogram.within.items():
        # A pessimistic share of requests beyond the bound.
        beyond = (whole - within + DOUBT) / whole
        if bound > seconds and beyond < 0.5 and math.isfinite(bound):
            most = min(most, _spread_at(bound / seconds, _NORMAL.inv_cdf(1 - beyond)))
    least, bucket = LEAST_SPREAD, histogram.p95_bucket_ms()
    if alone and whole >= FEWEST_FOR_PERCENTILE and bucket is not None and bucket[0] > 1000 * seconds:
        least = _spread_at(bucket[0] / 1000 / seconds, _NORMAL.inv_cdf(PERCENT / 100))
    return max(min(USUAL_SPREAD, most), least)


def _spread_at(ratio: float, deviate: float) -> float:
    """Return the spread at which a time of `ratio` means, above 1, is so many `deviate` above the middle.

    ln(ratio) = deviate * spread - spread^2 / 2.
    """
    # The smaller root: the larger one has most requests far below the mean.
    root = deviate**2 - 2 * math.log(ratio)
    return min(max(deviate - math.sqrt(root), LEAST_SPREAD), MOST_SPREAD) if root > 0 else MOST_SPREAD
