"""Measurements over a window, to compare the model with: the latency histogram, the requests received, and the requests
that ran and waited. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlscaler_operator.sensing.buckets import as_classic, summed
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.presets import PRESETS, SERVERS
from rlscaler_operator.sensing.presets import Histogram as Buckets
from rlscaler_operator.sensing.queries import DEFAULT_LABELS
from rlscaler_operator.sensing.requests import Selection
from rlscaler_operator.sensing.results import bound_of
from rlscaler_operator.sensing.subject import Subject

PERCENT = 95.0

PRESET = "_p"
"""Label of the series that a preset names; those of docs/metrics.md are without it."""

RUNNING, WAITING, SPENT = "running", "waiting", "spent"
"""Follow the preset in that label: series of requests that run, of those that wait, and of the sum of the latencies."""

NO_SERIES = "vector(0) < 0"
"""A query without an answer."""


@dataclass(slots=True)
class Histogram:
    """The latency histogram of one service over one window."""

    received: float = math.nan
    """Requests that arrived."""
    within: dict[float, float] = field(default_factory=dict)
    """Requests answered within each bound (seconds)."""

    @property
    def answered(self) -> float:
        """Requests answered, however late."""
        return max(self.within.values(), default=0.0)

    def late(self, slo_seconds: float, unanswered: float | None = None) -> tuple[float, float] | None:
        """Return the fewest and the most requests that can have been late; None where unknown.

        `unanswered` is the number of unanswered requests that count as late, by default all.
        """
        in_time = self.in_time(slo_seconds)
        if in_time is None:
            return None
        late = self.answered + (max(0.0, self.received - self.answered) if unanswered is None else unanswered)
        return late - in_time[1], late - in_time[0]

    def in_time(self, slo_seconds: float) -> tuple[float, float] | None:
        """Return the fewest and the most requests that can have been answered in time; None where unknown."""
        if not self.within or not math.isfinite(self.received):
            return None
        below = max((count for bound, count in self.within.items() if bound <= slo_seconds * (1 + 1e-9)), default=0.0)
        above = min((count for bound, count in self.within.items() if bound >= slo_seconds * (1 - 1e-9)), default=below)
        return below, above

    def p95_bucket_ms(self) -> tuple[float, float] | None:
        """Return the bounds of the bucket that holds the percentile; None where nothing was answered."""
        whole = self.answered
        if not whole > 0:
            return None
        low = 0.0
        for bound, count in sorted(self.within.items()):
            if count >= PERCENT / 100 * whole:
                return 1000 * low, 1000 * bound
            low = bound
        return 1000 * low, math.inf


@dataclass(slots=True)
class JointHistogram(Histogram):
    """Histogram of a first latency, and beside it one of a second latency that has an objective as well."""

    beside: Histogram = field(default_factory=Histogram)
    """Scaled to the requests and to the objective of the first; empty where it is not known."""

    def in_time(self, slo_seconds: float) -> tuple[float, float] | None:
        # Requests that miss one objective may be those that miss the other, or others: of the shares that are late by
        # each, the larger one is a lower bound of the share that is late by either.
        return _each(min, Histogram.in_time(self, slo_seconds), self.beside.in_time(slo_seconds))

    def p95_bucket_ms(self) -> tuple[float, float] | None:
        return _each(max, Histogram.p95_bucket_ms(self), self.beside.p95_bucket_ms())


Range = tuple[float, float]


def _each(function: Callable[[float, float], float], first: Range | None, second: Range | None) -> Range | None:
    """Return a function of both lower and of both upper ends; None where one of the ranges is unknown."""
    return None if first is None or second is None else (function(first[0], second[0]), function(first[1], second[1]))


Histograms = dict[tuple[str, str, str], Histogram]
"""Histograms by (preset, or preset and latency; namespace; Deployment or service)."""


def promql(subjects: Iterable[Subject], window_seconds: float, labels: Labels = DEFAULT_LABELS) -> str:
    """Return one query for all: buckets told apart by `le`, requests received without it, presets by a label of theirs.

    It selects nothing where no subject's preset has a histogram of the latency.
    """
    window = f"[{round(window_seconds)}s]"
    subjects = [s for s in subjects if s.histogram is not None and s.requests.counts_arrivals]
    parts: dict[str, list[str]] = defaultdict(list)
    timed = [latency for subject in subjects for latency in subject.latencies]
    for subject in sorted(timed, key=timed_name):
        histogram, name = subject.histogram, timed_name(subject)
        if name not in parts and histogram is not None:
            selection = Selection.of(subject.timed_by, [s for s in timed if timed_name(s) == name], labels)
            parts[name].append(selection.whole.grown(histogram, window))
    for name in sorted({subject.counted_by for subject in subjects}):
        selection = Selection.of(name, [s for s in subjects if s.counted_by == name], labels)
        arrived = selection.whole.arrived(
            lambda rate: f"increase({rate}{window})", lambda gauge: f"delta({gauge}{window})"
        )
        parts[name].append(arrived)
    working = [subject for subject in subjects if tells_running(subject)]
    for name in sorted({subject.preset for subject in working}):
        selection = Selection.of(name, [s for s in working if s.preset == name], labels)
        for held, gauges in ((RUNNING, PRESETS[name].in_flight), (WAITING, PRESETS[name].waiting)):
            mean = selection.whole.sum(gauges, lambda gauge: labels.once(f"avg_over_time({gauge}{window})"))
            parts[f"{name} {held}"].append(mean)
    spent = [latency for subject in working for latency in subject.latencies]
    for name in sorted({timed_name(subject) for subject in spent}):
        named = [subject for subject in spent if timed_name(subject) == name]
        selection, latency = Selection.of(named[0].timed_by, named, labels), _histogram(name)
        if latency is not None:
            parts[f"{name} {SPENT}"].append(selection.whole.spent(latency, window))
    by_name = [(name, part) for name, each in parts.items() for part in each]
    told_apart = (f'label_replace({part}, "{PRESET}", "{name}", "", "")' if name else part for name, part in by_name)
    return " or ".join(told_apart) or NO_SERIES


def tells_running(subject: Subject) -> bool:
    """Return whether its server tells running requests from waiting ones; a gateway does not see the server's queue.

    Never for `tpot` alone: a request that waits makes no token of another slower.
    """
    server = SERVERS.get(subject.preset)
    return server is not None and bool(server.in_flight and server.waiting) and subject.signal != "tpot"


def timed_name(subject: Subject) -> str:
    """Return the name by which the buckets of a subject's latency are told apart."""
    return subject.timed_by if subject.signal == "endToEnd" else f"{subject.timed_by} {subject.signal}"


def histograms(series: Iterable[Mapping[str, Any]]) -> Histograms:
    """Return finite histograms by (preset, namespace, Deployment or service), bounds in seconds."""
    by_service: Histograms = {}
    for sample in as_classic(series):
        labels, value = sample.get("metric", {}), float(sample.get("value", (0, "nan"))[1])
        if not math.isfinite(value):
            continue
        preset, name = labels.get(PRESET, ""), labels.get("service") or labels.get("deployment", "")
        histogram = by_service.setdefault((preset, labels.get("namespace", ""), name), Histogram())
        latency = _histogram(preset)
        if "le" in labels and latency is not None:
            if not math.isnan(bound := bound_of(labels["le"])):
                histogram.within[bound / latency.per_second] = value
        else:
            histogram.received = value
    return by_service


def histogram_of(histograms: Histograms, subject: Subject) -> Histogram | None:
    """Return the histogram of one service, over both pools where they are counted apart; None where there is none.

    Of two latencies with an objective it is that of the first, with the other one beside it.
    Where each token is counted, the share of tokens within a bound stands for that share of the requests.
    """
    counted = _parts(histograms, subject, subject.counted_by, subject.counted_by)
    within, *others = (_within(histograms, latency) for latency in subject.latencies)
    if not counted and not within:
        return None
    received = sum(part.received for part in counted) if counted else math.nan
    whole = max(within.values(), default=0.0)
    if subject.histogram is not None and subject.histogram.of_tokens and whole > 0 and math.isfinite(received):
        # Tokens stand for requests: scale the histogram to the number of requests.
        within = _scaled(within, received)
    histogram = Histogram(received, within)
    # Where no request got its first token, none is in time by both.
    if subject.token_objectives is None or histogram.answered == 0:
        return histogram
    first, token = subject.token_objectives
    # Requests that run have a first token and no time per token yet: the shares of both are alike, the counts are not.
    return JointHistogram(received, within, Histogram(received, _scaled(others[0], histogram.answered, first / token)))


def _within(histograms: Histograms, subject: Subject) -> dict[float, float]:
    """Return the counts within the bounds of the latency `subject.signal`, over both pools."""
    return summed([part.within for part in _parts(histograms, subject, subject.timed_by, timed_name(subject))])


def _scaled(within: Mapping[float, float], whole: float, seconds: float = 1.0) -> dict[float, float]:
    """Return the counts as shares of `whole` within the bounds times `seconds`; empty where nothing was counted."""
    counted = max(within.values(), default=0.0)
    return {bound * seconds: count / counted * whole for bound, count in within.items()} if counted > 0 else {}


def _parts(histograms: Histograms, subject: Subject, preset: str, name: str) -> list[Histogram]:
    return [
        part for key in subject.identified_by(preset).values() if (part := histograms.get((name, *key))) is not None
    ]


def _histogram(name: str) -> Buckets | None:
    preset, _, signal = name.partition(" ")
    return PRESETS[preset].histograms.get(signal or "endToEnd")
