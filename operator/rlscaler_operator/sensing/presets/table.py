"""What a preset says: which metrics there are, and how their series are found to be of a service.

A metric may carry matchers, as in PromQL. Where versions of a server call it differently, the names are joined by
` or `, the newest first: the first that is there counts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ByPods:
    """Series of the target's own pods, by the label `pod` that the scrape gives them."""

    suffix: str = ""
    """What follows the service's name in that of the Deployment whose pods are scraped; empty = the targets' pods."""

    def __str__(self) -> str:
        return f"pods of the Deployment `<service>{self.suffix}`" if self.suffix else "pods of the targets"


@dataclass(frozen=True, slots=True)
class ByLabels:
    """Series that name a service and its namespace in labels of their own."""

    service: str = "service"
    namespace: str = "namespace"
    pool: str = ""
    """Label that tells the pools of a service apart; empty = none does."""
    apart: str = ""
    """Label by which one request is counted several times, such as by its sender and its receiver."""

    def __str__(self) -> str:
        return f"labels `{self.namespace}` and `{self.service}`"


@dataclass(frozen=True, slots=True)
class ByName:
    """Series whose label holds namespace and service in one name."""

    label: str
    pattern: str
    """Pattern (RE2) of the whole name, in which `{namespaces}` and `{services}` stand for those that are looked for."""
    namespace: str
    """Groups of the pattern that are the namespace."""
    service: str
    """Groups of the pattern that are the service."""

    def __str__(self) -> str:
        return f"label `{self.label}`"


FoundBy = ByPods | ByLabels | ByName


@dataclass(frozen=True, slots=True)
class Histogram:
    """A latency histogram with classic buckets."""

    metric: str
    """Its name without `_bucket` and `_count`."""
    per_second: float = 1.0
    """Units of the bounds in a second."""
    of_tokens: bool = False
    """True where each token is counted, and not each request."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counters of the tokens of prompts and answers."""

    metrics: tuple[str, ...]
    when_over: bool = False
    """True where those of a request count when it is over, and False where each counts as it is worked on."""


@dataclass(frozen=True, slots=True)
class Utilization:
    """A gauge of how full a replica is."""

    metric: str
    percent: float
    """What its value is multiplied by to be a percentage."""
    pools: tuple[str, ...]
    """Pools that it is the utilization of; the others go by CPU usage or DCGM."""
    full_when_waiting: bool = False
    """True where a replica of which a tenth of the requests wait counts as full, whatever the gauge says."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One server, gateway or proxy. What is None or empty is not exported, and unknown."""

    title: str
    source: str
    """Where the names are from: the version that was read or run."""
    found_by: FoundBy
    arrivals: str
    """One sentence: how the requests that arrive are counted, or what they are derived from."""
    arrived: tuple[str, ...] = ()
    """Counters whose sum grows as requests arrive, rejected ones included."""
    answered: tuple[str, ...] = ()
    """Counters whose sum grows when requests are over."""
    refused: tuple[str, ...] = ()
    """Counters of requests that arrived and were refused, where neither sum has them; old versions may lack them."""
    in_flight: tuple[str, ...] = ()
    """Gauges of the requests that are being worked on."""
    waiting: tuple[str, ...] = ()
    """Gauges of the requests that wait."""
    latency: Histogram | None = None
    """The time from the arrival of a request until its whole answer."""
    ttft: Histogram | None = None
    """Until the first token."""
    tpot: Histogram | None = None
    """For each token after the first."""
    tokens: Tokens | None = None
    utilization: Utilization | None = None
    exported_every_seconds: float = 0.0
    """Seconds between two updates of what is exported; 0 = a scrape sees everything at once."""
    notes: tuple[str, ...] = ()
    """Sentences on what a user has to know besides."""

    @property
    def derives(self) -> bool:
        """Arrivals are what was answered and the growth of what is in flight and waiting."""
        return not self.arrived and bool(self.answered) and bool(self.in_flight or self.waiting)

    @property
    def histograms(self) -> dict[str, Histogram]:
        """Histograms by the names of `slo.signal`."""
        named = {"endToEnd": self.latency, "ttft": self.ttft, "tpot": self.tpot}
        return {signal: histogram for signal, histogram in named.items() if histogram is not None}

    @property
    def counts_tokens(self) -> bool:
        """Tell what arrives in tokens: those that wait are known by the mean of the requests that are over."""
        return self.tokens is not None and bool(self.answered) and bool(self.waiting)

    @property
    def counts_arrivals(self) -> bool:
        return bool(self.arrived) or self.derives
