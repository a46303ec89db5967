"""Answers of the service and cost of its pods, from Prometheus' counters, and the figures of an episode."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.queueing.histogram import quantile
from rlscaler_live.environment.config import EnvironmentConfig
from rlscaler_live.environment.exceptions import LiveEnvironmentError
from rlscaler_operator.sensing.labels import EXPORTED, Labels, narrowed
from rlscaler_operator.sensing.pod_names import deployment_of
from rlscaler_operator.sensing.queries import DEFAULT_LABELS
from rlscaler_operator.sensing.selection import Pods
from rlscaler_operator.sensing.subject import Subject

Float = NDArray[np.float64]
LabelSet = frozenset[tuple[str, str]]

KIND = "_"
RECEIVED, ENDED, ANSWERED, BILLED = "received", "ended", "answered", "billed"
ENDED_COUNTER = "inference_requests_total"
NEEDED = {
    RECEIVED: "inference_requests_received_total",
    ANSWERED: "inference_request_duration_seconds_bucket",
    BILLED: "kube_pod_container_resource_requests",
}


def counters_query(subject: Subject, seconds: float, labels: Labels = DEFAULT_LABELS) -> str:
    """PromQL for everything at once, so that all of it is of one moment.

    Counters come as the pods export them, not summed: a pod that goes must not take its past with it. Replica-seconds
    are of every pod that exists, pending and terminating ones too, over the last `seconds`.
    """
    namespace, service = f'namespace="{subject.namespace}"', f'service="{subject.service}"'
    selectors = (
        f'{namespace},{service},{EXPORTED}service=""',
        f"{EXPORTED}{namespace},{EXPORTED}{service}",
    )
    parts = [
        (kind, " or ".join(labels.once(narrowed(f"{counter}{{{selector}}}", labels.matched)) for selector in selectors))
        for kind, counter in ((RECEIVED, NEEDED[RECEIVED]), (ENDED, ENDED_COUNTER), (ANSWERED, NEEDED[ANSWERED]))
    ]
    # The subqueries below look once a second, so a shorter window might hold no look at all.
    window = f"{max(1000, round(1000 * seconds))}ms"
    here = f'label_replace(vector(1), "namespace", "{subject.namespace}", "", "")'
    for deployment in filter(None, subject.deployments):
        requests = Pods(frozenset({deployment}), labels).of_containers(f'{NEEDED[BILLED]}{{resource="cpu"}}', str)
        pods = f"count by (deployment) ({deployment_of(f'({requests} and on (namespace) {here})', {deployment})})"
        looks = f"scalar(count_over_time(vector(1)[{window}:1s]))"
        parts.append((BILLED, f"sum_over_time(({pods})[{window}:1s]) / {looks} * {seconds:.3f}"))
    return " or ".join(f'label_replace({vector}, "{KIND}", "{kind}", "", "")' for kind, vector in parts)


@dataclass(slots=True)
class Totals:
    """Growth of the counters in an interval or an episode."""

    seconds: float = 0.0
    received: float = 0.0
    ended: float = 0.0
    """Requests that ended with an answer, a rejection, or because the client went away."""
    billed: Float = field(default_factory=lambda: np.zeros(2))
    """(2,) replica-seconds, GPU and CPU."""
    bounds: Float = field(default_factory=lambda: np.zeros(0))
    """(B,) upper bounds of the latency histogram in seconds, rising, the last one infinite."""
    counts: Float = field(default_factory=lambda: np.zeros(0))
    """(B,) requests that ended within each bound, rejections left out."""

    @property
    def dropped(self) -> float:
        """Requests that were refused without a duration."""
        return max(0.0, self.ended - self.timed)

    @property
    def timed(self) -> float:
        """Requests that ended with a duration."""
        return float(self.counts[-1]) if len(self.counts) else 0.0

    def within(self, seconds: float) -> float:
        """Requests that ended within a latency; linear within a bucket."""
        finite = np.isfinite(self.bounds)
        edges = np.concatenate([[0.0], self.bounds[finite]])
        return float(np.interp(seconds, edges, np.concatenate([[0.0], self.counts[finite]])))

    def percentile_ms(self, level: float, timeout_ms: float) -> float:
        """A percentile of the latency as clients see it, milliseconds; NaN where no request ended.

        A refused request counts as the client's timeout, and no client waits longer.
        """
        total = self.timed + self.dropped
        if total <= 0:
            return math.nan
        finite = np.isfinite(self.bounds)
        shares = np.maximum.accumulate(self.counts[finite]) / total
        return float(min(1000 * quantile(shares[None], self.bounds[finite], level)[0], timeout_ms))

    def plus(self, more: Totals) -> Totals:
        """The totals of both together."""
        both = [part for part in (self, more) if len(part.bounds)]
        bounds = np.unique(np.concatenate([part.bounds for part in both])) if both else np.zeros(0)
        counts = sum((_at(part, bounds) for part in both), np.zeros(len(bounds)))
        return Totals(
            self.seconds + more.seconds,
            self.received + more.received,
            self.ended + more.ended,
            self.billed + more.billed,
            bounds,
            counts,
        )


def _at(part: Totals, bounds: Float) -> Float:
    # Cumulative counts are known at a histogram's own bounds only; at another one the next higher bound's count holds.
    return part.counts[np.clip(np.searchsorted(part.bounds, bounds), 0, len(part.bounds) - 1)]


class CounterReader:
    """Differences between readings of the counters. A counter that starts again counts from 0, as in Prometheus."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._last: dict[LabelSet, float] = {}

    def begin(self, result: Sequence[Mapping[str, Any]]) -> None:
        """Count from this reading on. Raises LiveEnvironmentError where a counter is not there."""
        self._last = {}
        self.read(result, 0.0)

    @staticmethod
    def missing(result: Sequence[Mapping[str, Any]]) -> list[str]:
        """Names of the series that a reading needs and does not have."""
        seen = {dict(series.get("metric", {})).get(KIND, "") for series in result}
        return [name for kind, name in NEEDED.items() if kind not in seen]

    def read(self, result: Sequence[Mapping[str, Any]], seconds: float) -> Totals:
        """Return the growth since the last reading, `seconds` ago. Raises LiveEnvironmentError: no counter."""
        self._complain(self.missing(result))
        counters: dict[str, float] = defaultdict(float)
        buckets: dict[float, float] = defaultdict(float)
        billed = np.zeros(2)
        seen: set[str] = set()
        for series in result:
            labels = dict(series.get("metric", {}))
            kind, value = labels.get(KIND, ""), float(series["value"][1])
            seen.add(kind)
            if not math.isfinite(value):
                continue
            if kind == BILLED:
                billed[self._subject.deployments.index(labels.get("deployment"))] += value
                continue
            key = frozenset(labels.items())
            before = self._last.get(key, 0.0)
            self._last[key] = value
            # A container that restarted counts from 0 again: its whole value is growth, as in Prometheus' `increase`.
            growth = value - before if value >= before else value
            if kind == ANSWERED:
                buckets[float(labels.get("le", "nan"))] += growth
            else:
                counters[kind] += growth
        bounds = np.array(sorted(buckets))
        counts = np.array([buckets[bound] for bound in bounds.tolist()])
        # Without a counter of ended requests only those with a duration are known to have ended.
        ended = counters[ENDED] if ENDED in seen else (float(counts[-1]) if len(counts) else 0.0)
        return Totals(seconds, counters[RECEIVED], ended, billed, bounds, counts)

    def _complain(self, missing: list[str]) -> None:
        if missing:
            subject = self._subject
            raise LiveEnvironmentError(
                f"Prometheus has no series {', '.join(missing)} of service {subject.service} in namespace "
                f"{subject.namespace}: the reward needs them; is the service scraped, and under that name?"
            )


@dataclass(slots=True)
class Counts:
    """Numbers of actions in the episode."""

    scale_ups: int = 0
    scale_downs: int = 0
    placement_changes: int = 0
    floor_raises: int = 0
    lost_ticks: int = 0
    """Sensing ticks at which the cluster or Prometheus did not answer."""


def figures(total: Totals, counts: Counts, config: EnvironmentConfig, cost_per_hour: Float) -> dict[str, float]:
    """Return the figures of the cluster's counters (`total`) and of the actions; `cost_per_hour` (2,) of GPU and CPU.

    Late, dropped and queued requests are told apart. NaN where nothing was received.
    """
    # Requests that are still queued at the end count as late: leaving them unanswered must not pay.
    in_time = total.within(config.slo_ms / 1000)
    late, dropped = max(0.0, total.timed - in_time), total.dropped
    queued = max(0.0, total.received - total.ended)
    seconds, received = max(total.seconds, 1e-9), max(total.received, 1.0)
    percentiles = {f"p{q}_ms": total.percentile_ms(q / 100, config.client_timeout_ms) for q in (50, 95, 99)}
    return {
        # In replicas of the GPU pool, as in the simulator: a CPU replica counts by its share of that price.
        "cost": float((total.billed[0] + total.billed[1] * cost_per_hour[1] / cost_per_hour[0]) / seconds),
        "late_percent": 100 * (late + dropped + queued) / received if total.received else math.nan,
        "requests": total.received,
        "in_time": in_time,
        "late": late,
        "dropped": dropped,
        "queued": queued,
        "gpu_replica_seconds": float(total.billed[0]),
        "cpu_replica_seconds": float(total.billed[1]),
        "goodput_rps": in_time / seconds,
        **percentiles,
        "scale_ups": float(counts.scale_ups),
        "scale_downs": float(counts.scale_downs),
        "placement_changes": float(counts.placement_changes),
        "floor_raises": float(counts.floor_raises),
        "lost_ticks": float(counts.lost_ticks),
        "seconds": total.seconds,
    }
