"""Labels by which series belong to a service or a pod, however they were scraped.

With `honor_labels: false`, as a ServiceMonitor sets it, Prometheus sets `namespace`, `service`, `pod` and `container`
to those of the scraped target, and the series' own labels become `exported_namespace` and so on. The series' own label
counts here, whatever its name. Replicas of one Prometheus that scrape the same targets (an HA pair) give every series
several times, with different values of one external label; they count once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlscaler_operator.settings import Settings

EXPORTED = "exported_"
"""Prefix that Prometheus gives to a label of a series if its target has the same label."""

EVERYWHERE = "*"

SUSPECT = "replica"
"""External label of many HA pairs, which services use too: its meaning is not guessed."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Settings of the administrator about the labels of series."""

    replicas: tuple[str, ...] = ("prometheus_replica",)
    """External labels that differ between replicas of Prometheus."""
    exporters: tuple[str, ...] = (EVERYWHERE,)
    """Namespaces whose targets may export series of other namespaces."""

    @classmethod
    def of(cls, settings: Settings) -> Labels:
        return cls(settings.replica_labels, settings.exporter_namespaces)

    def once(self, vector: str) -> str:
        """Return a PromQL vector in which the copies of a series by replicas of Prometheus are one: the largest."""
        return f"max without ({', '.join(self.replicas)}) ({vector})" if self.replicas else vector

    def copies(self, selector: str) -> str:
        """Return a PromQL vector of the series that exist several times and differ by the label `replica` only."""
        return f"count without ({', '.join((SUSPECT, *self.replicas))}) ({selector}) > 1"

    def by(
        self,
        own: tuple[str, ...],
        select: Callable[[str], str],
        vector: Callable[[str], str],
        fold: str,
        keep: tuple[str, ...] = (),
    ) -> str:
        """Return a PromQL vector with the labels `namespace`, `own` and `keep` of the series themselves.

        `select` returns the selector for a prefix of the labels `own` (empty, or `EXPORTED`), `vector` the PromQL for a
        selector; `fold` is the aggregation, which has to be applied once more to the whole.
        """
        parts = []
        for prefix in ("", EXPORTED):
            for spaces, believed in self._targets():
                plain = "" if prefix else f'{EXPORTED}{own[0]}=""'
                selector = narrowed(select(prefix), plain, spaces)
                named = ["namespace", *([EXPORTED + "namespace"] if believed else []), *(prefix + name for name in own)]
                part = f"{fold} by ({', '.join([*named, *keep])}) ({vector(selector)})"
                renamed = [*(own if prefix else ()), *(["namespace"] if believed else [])]
                for name in renamed:
                    part = f'label_replace({part}, "{name}", "$1", "{EXPORTED}{name}", "(.+)")'
                parts.append(part)
        return " or ".join(parts)

    def believed(self) -> str:
        """Return a matcher of the targets that may export series of other namespaces; empty = all of them."""
        return "" if EVERYWHERE in self.exporters else f'namespace=~"({"|".join(sorted(self.exporters))})"'

    def _targets(self) -> list[tuple[str, bool]]:
        """Return matchers of targets, and whether these may export series of other namespaces."""
        if EVERYWHERE in self.exporters:
            return [("", True)]
        if not self.exporters:
            return [("", False)]
        names = "|".join(sorted(self.exporters))
        return [(f'namespace=~"({names})"', True), (f'namespace!~"({names})"', False)]


def narrowed(selector: str, *matchers: str) -> str:
    """Return a metric with further matchers; empty ones are left out."""
    metric, _, inside = selector.partition("{")
    return f"{metric}{{{','.join(filter(None, (inside.removesuffix('}'), *matchers)))}}}"
