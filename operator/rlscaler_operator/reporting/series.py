"""Series of single policies: numbers in dictionaries, turned into metrics when they are read.

A labelled metric of prometheus_client keeps an object with a lock for each series, 1.3 KB: at a thousand policies more
than everything else that the operator knows about them, and a tenth of each tick to set them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LABELS = ("namespace", "policy")

Key = tuple[str, str]
"""(namespace, policy)."""


@dataclass(frozen=True, slots=True, eq=False)
class PerPolicy:
    """One metric that every policy has series of."""

    name: str
    documentation: str
    labels: tuple[str, ...]
    """Labels after `LABELS`."""
    kind: Literal["gauge", "counter"]

    def family(self) -> Any:
        """Return the metric's family, without samples."""
        class_ = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}[self.kind]
        return class_(self.name, self.documentation, labels=(*LABELS, *self.labels))


class Series:
    """The series of one policy."""

    __slots__ = ("_keys", "values")

    def __init__(self, keys: dict[tuple[Any, ...], tuple[Any, ...]]) -> None:
        """`keys` are shared by all policies: each key is kept once."""
        self._keys = keys
        self.values: dict[tuple[Any, ...], float] = {}
        """Values by (metric, further labels ...)."""

    def put(self, metric: PerPolicy, value: float, *labels: str) -> None:
        """Set the value of a gauge."""
        key = (metric, *labels)
        if key not in self.values:
            key = self._keys.setdefault(key, key)
        self.values[key] = value

    def add(self, metric: PerPolicy, amount: float, *labels: str) -> None:
        """Add to a counter; an amount of 0 makes a counter visible that has counted nothing."""
        self.put(metric, self.values.get((metric, *labels), 0.0) + amount, *labels)

    def only(self, metric: PerPolicy, *labels: str) -> None:
        """Set the series with these labels to 1, and remove those of `metric` with other labels."""
        if (metric, *labels) not in self.values:
            for key in [key for key in self.values if key[0] is metric]:
                del self.values[key]
            # Not among the shared keys: names of services and models would stay there after their policies.
            self.values[metric, *labels] = 1.0


class PolicySeries(Collector):
    """The series of all policies."""

    def __init__(self) -> None:
        self.metrics: list[PerPolicy] = []
        self._policies: dict[Key, Series] = {}
        self._keys: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def of(self, key: Key) -> Series:
        series = self._policies.get(key)
        if series is None:
            series = self._policies[key] = Series(self._keys)
        return series

    def forget(self, key: Key) -> None:
        self._policies.pop(key, None)

    def keep(self, wanted: Callable[[Key], bool]) -> None:
        for key in [key for key in self._policies if not wanted(key)]:
            self.forget(key)

    def describe(self) -> Iterator[Metric]:
        for metric in self.metrics:
            yield metric.family()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. May run in a thread: the series of a policy are copied at one moment."""
        families = {metric: metric.family() for metric in self.metrics}
        for key, series in list(self._policies.items()):
            for (metric, *labels), value in list(series.values.items()):
                families[metric].add_metric((*key, *labels), value)
        yield from families.values()
