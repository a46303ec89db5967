"""PromQL for requests, loads and latencies, by the series of any preset.

Every vector is by namespace and by the name that identifies the series: the Deployment of the pods, or a service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from rlscaler_core.decision.types import POOLS
from rlscaler_operator.sensing.labels import EXPORTED, SUSPECT, Labels, any_of, narrowed
from rlscaler_operator.sensing.pod_names import literally
from rlscaler_operator.sensing.presets import PRESETS, ByLabels, ByName, ByPods, Histogram, Preset
from rlscaler_operator.sensing.selection import (
    MATCHED_NAMES,
    Pods,
    Vector,
    added,
    alternatives,
    labelled,
    matcher,
    pattern_of,
    several,
    timestamp,
)
from rlscaler_operator.sensing.subject import Subject

OTHER_POOLS = "others"
"""Value of the label `pool` for all pools of other names than ours."""

_POOL = "_pool"

MEAN_SECONDS = 600
"""Range over which the tokens of a request are averaged, to estimate the tokens of waiting requests."""


class Selection(NamedTuple):
    """Series of one preset that belong to some services or pods."""

    preset: Preset
    names: frozenset[str]
    """Deployments or services, as the preset identifies its series."""
    namespaces: frozenset[str]
    labels: Labels
    others: frozenset[str] = frozenset()
    """Names of objects of other kinds, whose pods have other names than a Deployment's."""
    copied: str = "max"
    """Aggregation of the copies of a series: of native histograms there is a mean, and no largest one."""

    @classmethod
    def of(cls, preset: str, subjects: Iterable[Subject], labels: Labels) -> Selection:
        subjects = list(subjects)
        names = frozenset(key[1] for subject in subjects for key in subject.identified_by(preset).values())
        others = frozenset(name for subject in subjects for name in subject.others)
        labels = replace(labels, replicas=(*labels.replicas, *PRESETS[preset].ranks))
        return cls(PRESETS[preset], names, frozenset(subject.namespace for subject in subjects), labels, others)

    @property
    def by(self) -> tuple[str, ...]:
        """Labels of every vector."""
        identity = self.preset.identified_by
        if isinstance(identity, ByPods):
            return ("namespace", "deployment")
        pool = identity.pool if isinstance(identity, ByLabels) else ""
        return ("namespace", "service", *filter(None, [pool]))

    def sum(self, metrics: Sequence[str], vector: Vector, keep: tuple[str, ...] = ()) -> str:
        """Return the sum of `vector` over some metrics, by the labels and `keep`."""
        return added([self._folded(metric, vector, "sum", keep) for metric in metrics], ", ".join((*self.by, *keep)))

    def newest(self, metrics: Sequence[str]) -> str:
        """Return the time of the newest sample of any of some metrics."""
        parts = [self._folded(metric, timestamp, "max", native=timestamp) for metric in metrics]
        return parts[0] if len(parts) == 1 else f"max by ({', '.join(self.by)}) ({' or '.join(parts)})"

    def copies(self, metrics: Sequence[str]) -> str:
        """Return the series that exist several times and differ by the label `replica` only."""
        return self._folded(narrowed(alternatives(metrics[0])[0], f'{SUSPECT}!=""'), self.labels.copies, "max")

    def arrived(self, grown: Vector, changed: Vector) -> str:
        """Return the arrived requests, counted or derived.

        `grown` returns the PromQL for the growth of a counter, `changed` for the change of a gauge, both in a range or
        both per second.
        """
        preset = self.preset
        if preset.arrived:
            return self._once(preset.arrived, grown)
        # A request that arrived is over, or it is one more that runs or waits. Samples of both may be of different
        # moments, so that the sum can be below 0 for a short time.
        pending = self._once((*preset.in_flight, *preset.waiting), changed)
        over, by = self._once(preset.answered, grown), f"on ({', '.join(self.by)})"
        if preset.refused:
            over = f"({over} + {by} ({self._once(preset.refused, grown)} or 0 * {over}))"
        return f"clamp_min({over} + {by} {pending}, 0)"

    def arrivals(self, seconds: float, longer: float) -> str:
        """Return the query for the rate of arrivals over a window of `seconds`.

        A series without two samples in it counts with its rate over the `longer` window: a scrape was missed.
        """
        counters = self.preset.arrived or self.preset.answered
        windows = dict.fromkeys((seconds, longer))

        def grown(series: str) -> str:
            return _first([f"rate({series}[{duration(window)}])" for window in windows])

        def changed(series: str) -> str:
            return _first([f"delta({series}[{duration(window)}]) / {window:g}" for window in windows])

        return self._with_copies({"v": self.arrived(grown, changed), "t": self.newest(counters)}, counters)

    def arriving_tokens(self, span: str, weights: tuple[float, float] = (1.0, 1.0)) -> str:
        """Return the query for the rate at which weighted tokens arrive: the counted ones, and those of new waiting
        requests.
        """
        preset, counters = self.preset, self._token_counters
        assert preset.tokens is not None
        queues = (*preset.in_flight, *preset.waiting) if preset.tokens.when_over else preset.waiting
        seconds, by = float(span.strip("[]s")), f"on ({', '.join(self.by)})"
        counted, grown = self._weighed("rate", span, weights), f"({self._of('delta', queues, span)} / {seconds:g})"
        # A waiting request has as many tokens as the mean of those that were over in the last MEAN_SECONDS.
        long = f"[{MEAN_SECONDS}s]"
        over = self._of("increase", preset.answered, long)
        mean = f"({self._weighed('increase', long, weights)} / {by} {over} < Inf)"
        whole = f"clamp_min({counted} + {by} {grown} * {by} {mean}, 0)"
        # Where the queue has grown and no such mean is known there is no answer: the counted tokens alone would pass
        # for a small load.
        value = f"({whole} or ({counted} unless {by} ({grown} > 0)))"
        return self._with_copies({"v": value, "t": self.newest(counters)}, counters)

    def held(self, span: str) -> str:
        """Return the query for the requests that run or wait, as a mean over a range."""
        gauges = (*self.preset.in_flight, *self.preset.waiting)
        return self._with_copies({"v": self._of("avg_over_time", gauges, span), "t": self.newest(gauges)}, gauges)

    def _weighed(self, function: str, span: str, weights: tuple[float, float]) -> str:
        """Return the sum of a PromQL function of the counters of tokens, each times the weight of its tokens."""
        if weights == (1.0, 1.0):
            return self._of(function, self._token_counters, span)
        parts = [
            f"({weight:g} * {self._of(function, [counter], span)})"
            for counter, weight in zip(self._token_counters, weights, strict=True)
        ]
        return added(parts, ", ".join(self.by))

    def _of(self, function: str, metrics: Sequence[str], span: str) -> str:
        """Return the sum over some metrics of a PromQL function of a range."""
        return self._once(metrics, lambda series: f"{function}({series}{span})")

    def _once(self, metrics: Sequence[str], vector: Vector) -> str:
        """Return the sum of `vector` over some metrics, with the copies of a series counted once."""

        def native(series: str) -> str:
            return self.labels.once(f"histogram_count({vector(series)})")

        parts = [
            self._folded(metric, lambda series: self.labels.once(vector(series)), native=native) for metric in metrics
        ]
        return added(parts, ", ".join(self.by))

    @property
    def _token_counters(self) -> tuple[str, ...]:
        assert self.preset.tokens is not None
        return self.preset.tokens.metrics

    def percentile(self, histogram: Histogram, percentile: float, span: str) -> str:
        """Return the query for a percentile of a latency, in milliseconds."""
        forms = self.whole._forms(histogram, lambda series, _: f"rate({series}{span})")
        quantiles = (f"histogram_quantile({percentile / 100:.6g}, {each})" for each in forms)
        value = f"{1000 / histogram.per_second:g} * ({' or '.join(quantiles)})"
        counted = suffixed(histogram, "_count")
        return self._labelled({"v": value, "t": self.whole.newest([counted])}, counted)

    def buckets(self, histogram: Histogram, span: str) -> str:
        """Return the query for the rates of a histogram's buckets."""
        value, counted = (
            self._either(histogram, lambda series, _: f"rate({series}{span})"),
            suffixed(histogram, "_count"),
        )
        return self._labelled({"v": value, "t": self.newest([counted])}, counted)

    def grown(self, histogram: Histogram, span: str) -> str:
        """Return the growth of a histogram's buckets in a range, with the copies of a series counted once."""
        return self._either(histogram, lambda series, fold: self.labels.once(f"increase({series}{span})", fold))

    def spent(self, histogram: Histogram, span: str) -> str:
        """Return the growth of a histogram's sum in a range, with the copies of a series counted once."""

        def native(series: str) -> str:
            return self.labels.once(f"histogram_sum(increase({series}{span}))")

        counted = suffixed(histogram, "_sum")
        return self._folded(counted, lambda series: self.labels.once(f"increase({series}{span})"), native=native)

    def _either(self, histogram: Histogram, vector: Callable[[str, str], str]) -> str:
        classic, native = self._forms(histogram, vector)
        # With the label of the last bucket it gives way to classic buckets, and is no count of the same labels.
        return f'{classic} or label_replace({native}, "le", "+Inf", "", "")'

    def _forms(self, histogram: Histogram, vector: Callable[[str, str], str]) -> tuple[str, str]:
        """Return a vector of the classic buckets by `le`, and one of the native histogram.

        `vector` is given a selector and the aggregation of copies.
        """
        buckets, native = suffixed(histogram, "_bucket"), self._replace(copied="avg")
        return (
            self._folded(buckets, lambda series: vector(series, self.copied), keep=("le",)),
            native._folded(histogram.metric, lambda series: vector(series, native.copied)),
        )

    @property
    def whole(self) -> Selection:
        """The same series without the label of the pool."""
        return self._replace(preset=_poolless(self.preset))

    def _with_copies(self, vectors: dict[str, str], counters: Sequence[str]) -> str:
        if SUSPECT not in self.labels.replicas:
            vectors["d"] = self.copies(counters)
        return self._labelled(vectors, counters[0])

    def _labelled(self, vectors: dict[str, str], metric: str) -> str:
        """Return several vectors as one, with those whose series are of several clusters."""
        if clusters := self.labels.clusters:
            vectors["c"] = several(self.whole._folded(metric, str, "group", clusters, str), self.whole.by, clusters)
        return labelled(vectors)

    def _folded(
        self,
        metric: str,
        vector: Vector,
        fold: str = "sum",
        keep: tuple[str, ...] = (),
        native: Vector | None = None,
    ) -> str:
        """Return a vector of a metric by the first of its names that exists.

        `native` returns the PromQL of the native histogram in which the metric is the count or the sum: Prometheus may
        have scraped it as one, or converted it.
        """
        parts = [self._one(name, vector, fold, keep) for name in alternatives(metric)]
        if native is not None:
            names = (name.rpartition("_")[0] for name in alternatives(metric) if name.endswith(("_count", "_sum")))
            parts += [self._one(name, native, fold, keep) for name in names if name in self.preset.histogram_names]
        return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"

    def _one(self, metric: str, vector: Vector, fold: str, keep: tuple[str, ...]) -> str:
        identity = self.preset.identified_by
        if isinstance(identity, ByPods):
            others = self.names & self.others
            pods = Pods(self.names - others, self.labels, others, namespaces=self.namespaces)
            return pods.total(metric, vector, fold, keep)
        if isinstance(identity, ByLabels):
            return self._of_labels(identity, metric, vector, fold, keep)
        return self._of_name(identity, metric, vector, fold, keep)

    def _of_labels(self, identity: ByLabels, metric: str, vector: Vector, fold: str, keep: tuple[str, ...]) -> str:
        pattern, service = pattern_of(set(self.names)), identity.service
        inner = (*filter(None, [identity.pool, identity.apart]), *keep)
        namespaces = self.namespaces if len(self.namespaces) <= MATCHED_NAMES else frozenset()

        def select(prefix: str) -> str:
            return narrowed(metric, matcher(f"{prefix}{service}", pattern, bool(prefix) or service != "service"))

        if identity.namespace == "namespace":
            union = self.labels.by((service,), select, vector, fold, inner, namespaces)
        else:
            selector = narrowed(
                select(""), self.labels.matched, any_of(identity.namespace, namespaces), self.labels.believed()
            )
            union = f"{fold} by ({', '.join((identity.namespace, service, *inner))}) ({vector(selector)})"
            union = f'label_replace({union}, "namespace", "$1", "{identity.namespace}", "(.+)")'
        if service != "service":
            union = f'label_replace({union}, "service", "$1", "{service}", "(.+)")'
        if identity.pool:
            return _by_pool(union, identity.pool, fold, keep)
        by = ("namespace", "service", *keep)
        whole = f"{fold} by ({', '.join((*by, *filter(None, [identity.apart])))}) ({union})"
        return f"{self.copied} by ({', '.join(by)}) ({whole})" if identity.apart else whole

    def _of_name(self, identity: ByName, metric: str, vector: Vector, fold: str, keep: tuple[str, ...]) -> str:
        pattern = identity.pattern.format(namespaces=_any(self.namespaces), services=_any(self.names))
        parts = []
        for prefix in ("", EXPORTED):
            label = prefix + identity.label
            plain = "" if prefix else f'{EXPORTED}{identity.label}=""'
            selector = narrowed(metric, self.labels.matched, f'{label}=~"{pattern}"', plain, self.labels.believed())
            part = f"{fold} by ({', '.join((label, *keep))}) ({vector(selector)})"
            for name, groups in (("namespace", identity.namespace), ("_service", identity.service)):
                part = f'label_replace({part}, "{name}", "{groups}", "{label}", "{pattern}")'
            parts.append(f'label_replace({part}, "service", "$1", "_service", "(.+)")')
        return f"{fold} by ({', '.join(('namespace', 'service', *keep))}) ({' or '.join(parts)})"


def _by_pool(union: str, pool: str, fold: str, keep: tuple[str, ...]) -> str:
    """Return a vector by namespace, service, pool and `keep`. All pools of other names are one."""
    # A label has as many values as its exporter likes, and answers are shared. Names are given in a label of its own:
    # two pools with one name would be duplicates before they are added up.
    for name, pattern in ((OTHER_POOLS, ".+"), ("$1", f"({'|'.join(POOLS)})")):
        union = f'label_replace({union}, "{_POOL}", "{name}", "{pool}", "{pattern}")'
    whole = f"{fold} by ({', '.join(('namespace', 'service', _POOL, *keep))}) ({union})"
    return f'label_replace({whole}, "{pool}", "$1", "{_POOL}", "(.+)")'


def duration(seconds: float) -> str:
    """Return a duration in PromQL, which has whole numbers only: `30s`, or `10250ms`."""
    return f"{round(seconds)}s" if seconds == round(seconds) else f"{round(1000 * seconds)}ms"


def _first(vectors: Sequence[str]) -> str:
    """Return a vector with the value of each series in the first vector that has it."""
    return vectors[0] if len(vectors) == 1 else f"({' or '.join(vectors)})"


def suffixed(histogram: Histogram, suffix: str) -> str:
    """Return the names of a part of a histogram, such as its buckets."""
    return " or ".join(name + suffix for name in alternatives(histogram.metric))


def _any(names: Iterable[str]) -> str:
    return "|".join(map(literally, sorted(names, key=lambda name: (-len(name), name))))


def _poolless(preset: Preset) -> Preset:
    identity = preset.identified_by
    return (
        replace(preset, identified_by=replace(identity, pool=""))
        if isinstance(identity, ByLabels) and identity.pool
        else preset
    )
