"""Histograms in Prometheus's answers, classic or native, as counts within bounds. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

Series = Mapping[str, Any]


def as_classic(result: Iterable[Series]) -> Iterator[Series]:
    """Yield the series of an answer, with the classic buckets of native histograms in place of these."""
    for series in result:
        if "histogram" not in series:
            yield series
            continue
        at, histogram = series["histogram"]
        for bound, count in _within(histogram).items():
            yield {"metric": {**series.get("metric", {}), "le": str(bound)}, "value": [at, str(count)]}


def _within(histogram: Mapping[str, Any]) -> dict[float, float]:
    """Return the counts within the bounds of the buckets that are not empty: the only ones in an answer."""
    within: dict[float, float] = {}
    count = 0.0
    for _, low, high, inside in histogram.get("buckets") or ():
        if math.isfinite(lower := float(low)):
            within.setdefault(lower, count)
        count += float(inside)
        within[float(high)] = count
    return within | {math.inf: float(histogram["count"])}


def summed(parts: Sequence[Mapping[float, float]]) -> dict[float, float]:
    """Return the sum of counts within bounds, at the bounds at which the counts of all parts are known.

    Between two bounds with the same count the count is known as well.
    """
    tables = [(sorted(part), list(accumulate((part[bound] for bound in sorted(part)), max))) for part in parts]
    known: dict[float, float] = {}
    for bound in sorted({bound for bounds, _ in tables for bound in bounds}):
        counts = [_at(bounds, within, bound) for bounds, within in tables]
        if not any(map(math.isnan, counts)):
            known[bound] = sum(counts)
    return known


def _at(bounds: Sequence[float], within: Sequence[float], bound: float) -> float:
    """Return the count within a bound; NaN where it lies in a bucket that is not empty."""
    number = bisect_left(bounds, bound)
    if number < len(bounds) and bounds[number] == bound:
        return within[number]
    below = within[number - 1] if number else 0.0
    return below if number < len(bounds) and within[number] == below else math.nan
