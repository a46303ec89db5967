"""What was measured over a window, to hold the model against: the latency histogram and the requests received. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlscaler_operator.sensing.queries import Subject
from rlscaler_operator.sensing.results import Key

PERCENT = 95.0


@dataclass(slots=True)
class Histogram:
    """The latency histogram of one service over one window."""

    received: float = math.nan
    """Requests that arrived."""
    within: dict[float, float] = field(default_factory=dict)
    """Requests answered within each bound (seconds)."""

    def late(self, slo_seconds: float) -> tuple[float, float] | None:
        """The fewest and the most requests that can have been late, refused ones included; None where unknown."""
        in_time = self.in_time(slo_seconds)
        if in_time is None:
            return None
        received = max(self.received, *self.within.values())
        return received - in_time[1], received - in_time[0]

    def in_time(self, slo_seconds: float) -> tuple[float, float] | None:
        """The fewest and the most requests that can have been answered in time; None where unknown."""
        if not self.within or not math.isfinite(self.received):
            return None
        below = max((count for bound, count in self.within.items() if bound <= slo_seconds * (1 + 1e-9)), default=0.0)
        above = min((count for bound, count in self.within.items() if bound >= slo_seconds * (1 - 1e-9)), default=below)
        return below, above

    def p95_bucket_ms(self) -> tuple[float, float] | None:
        """Bounds of the bucket that holds the percentile; None where nothing was answered."""
        whole = max(self.within.values(), default=0.0)
        if not whole > 0:
            return None
        low = 0.0
        for bound, count in sorted(self.within.items()):
            if count >= PERCENT / 100 * whole:
                return 1000 * low, 1000 * bound
            low = bound
        return 1000 * low, math.inf


def promql(subjects: Iterable[Subject], window_seconds: float) -> str:
    """One query for all: buckets told apart by `le`, requests received without it."""
    subjects = list(subjects)
    names = {label: sorted({getattr(s, label) for s in subjects}) for label in ("namespace", "service")}
    chosen = ",".join(
        f'{label}=~"{"|".join(n.replace(".", chr(92) * 2 + ".") for n in values)}"' for label, values in names.items()
    )
    window = f"[{round(window_seconds)}s]"
    buckets = (
        f"sum by (namespace, service, le) (increase(inference_request_duration_seconds_bucket{{{chosen}}}{window}))"
    )
    received = f"sum by (namespace, service) (increase(inference_requests_received_total{{{chosen}}}{window}))"
    return f"{buckets} or {received}"


def histograms(series: Iterable[Mapping[str, Any]]) -> dict[Key, Histogram]:
    """Histograms by (namespace, service); what is no finite number is left out."""
    found: dict[Key, Histogram] = {}
    for one in series:
        labels, value = one.get("metric", {}), float(one["value"][1])
        if not math.isfinite(value):
            continue
        histogram = found.setdefault((labels.get("namespace", ""), labels.get("service", "")), Histogram())
        if "le" in labels:
            histogram.within[float(labels["le"])] = value
        else:
            histogram.received = value
    return found
