"""Fields of a preset: the metrics of a server, gateway or proxy, and the labels that identify a service in them.

A metric may have matchers, as in PromQL. Names in different versions of a server are joined by ` or `, the newest
first: the first existing one counts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ByPods:
    """Series of the target's own pods, by the label `pod` of the scrape."""

    suffix: str = ""
    """Suffix of the service's name in the name of the scraped Deployment; empty = the targets' pods are scraped."""

    def __str__(self) -> str:
        return f"pods of the Deployment `<service>{self.suffix}`" if self.suffix else "pods of the targets"


@dataclass(frozen=True, slots=True)
class ByLabels:
    """Series that name a service and its namespace in labels of their own."""

    service: str = "service"
    namespace: str = "namespace"
    pool: str = ""
    """Label with the pool of a service; empty = there is none."""
    apart: str = ""
    """Label with the places that count one request several times, such as its sender and its receiver."""

    def __str__(self) -> str:
        return f"labels `{self.namespace}` and `{self.service}`"


@dataclass(frozen=True, slots=True)
class ByName:
    """Series with a label that holds namespace and service in one name."""

    label: str
    pattern: str
    """Pattern (RE2) of the whole name, in which `{namespaces}` and `{services}` stand for the wanted ones."""
    namespace: str
    """Groups of the pattern that are the namespace."""
    service: str
    """Groups of the pattern that are the service."""

    def __str__(self) -> str:
        return f"label `{self.label}`"


Identity = ByPods | ByLabels | ByName


@dataclass(frozen=True, slots=True)
class Histogram:
    """A latency histogram, with classic buckets or native."""

    metric: str
    """Name without `_bucket` and `_count`."""
    per_second: float = 1.0
    """Units of the bounds in a second."""
    of_tokens: bool = False
    """True where each token is an observation, and not each request."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counters of the tokens of prompts and of answers."""

    metrics: tuple[str, str]
    when_over: bool = False
    """True where the tokens of a request count when it is over, and False where each counts as it is processed."""


@dataclass(frozen=True, slots=True)
class Utilization:
    """Gauge of the utilization of a replica."""

    metric: str
    percent: float
    """Factor from its value to a percentage."""
    pools: tuple[str, ...]
    """Pools that use this gauge; the others use CPU usage or DCGM."""
    full_when_waiting: bool = False
    """True where a replica with a tenth of its requests waiting counts as full, whatever the gauge shows."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One server, gateway or proxy. A field that is None or empty is not exported, and unknown."""

    title: str
    source: str
    """Origin of the names: the version that was read or run."""
    releases: str
    """Releases whose names these are."""
    identified_by: Identity
    arrivals: str
    """One sentence on how arriving requests are counted or derived."""
    arrived: tuple[str, ...] = ()
    """Counters whose sum grows as requests arrive, rejected ones included."""
    answered: tuple[str, ...] = ()
    """Counters whose sum grows when requests are over."""
    refused: tuple[str, ...] = ()
    """Counters of requests that arrived and were refused, where neither sum has them; old versions may lack them."""
    in_flight: tuple[str, ...] = ()
    """Gauges of the requests in work."""
    waiting: tuple[str, ...] = ()
    """Gauges of the waiting requests."""
    latency: Histogram | None = None
    """Time from the arrival of a request until its whole answer."""
    ttft: Histogram | None = None
    """Time until the first token."""
    tpot: Histogram | None = None
    """Time for each token after the first."""
    tokens: Tokens | None = None
    utilization: Utilization | None = None
    ranks: tuple[str, ...] = ()
    """Labels of processes that work on the same requests: each reports all of them, and they count once."""
    exported_every_seconds: float = 0.0
    """Seconds between two updates of the exported values; 0 = a scrape sees the present ones."""
    notes: tuple[str, ...] = ()
    """Further sentences for the user."""

    @property
    def derives(self) -> bool:
        """True where arrivals are derived: answered requests, and the growth of those in flight and waiting."""
        return not self.arrived and bool(self.answered) and bool(self.in_flight or self.waiting)

    @property
    def histograms(self) -> dict[str, Histogram]:
        """Histograms by the names of `slo.signal`."""
        named = {"endToEnd": self.latency, "ttft": self.ttft, "tpot": self.tpot}
        return {signal: histogram for signal, histogram in named.items() if histogram is not None}

    @property
    def histogram_names(self) -> set[str]:
        """Names of all histograms, in all releases."""
        return {name for histogram in self.histograms.values() for name in histogram.metric.split(" or ")}

    @property
    def counts_tokens(self) -> bool:
        """True where the arriving load is known in tokens; waiting requests count by the mean of finished ones."""
        return self.tokens is not None and bool(self.answered) and bool(self.waiting)

    @property
    def counts_arrivals(self) -> bool:
        return bool(self.arrived) or self.derives
