"""Labels by which series belong to a service or a pod, however they were scraped.

With `honor_labels: false`, as a ServiceMonitor sets it, Prometheus sets `namespace`, `service`, `pod` and `container`
to those of the scraped target, and the series' own labels become `exported_namespace` and so on. The series' own label
counts here, whatever its name. Replicas of one Prometheus that scrape the same targets (an HA pair) give every series
several times, with different values of one external label; they count once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from rlscaler_operator.sensing.pod_names import literally
from rlscaler_operator.settings import CLUSTER_LABELS, Settings

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

    told_apart_by: tuple[str, ...] = CLUSTER_LABELS
    """External labels that tell clusters apart."""
    labels: tuple[tuple[str, str], ...] = ()
    """Names and values of labels that all series must have."""

    @classmethod
    def of(cls, settings: Settings) -> Labels:
        return cls(settings.replica_labels, settings.exporter_namespaces, settings.cluster_labels)

    @property
    def clusters(self) -> tuple[str, ...]:
        """Labels by which series of several clusters differ: neither matched, nor of replicas of one Prometheus."""
        known = {*dict(self.labels), *self.replicas}
        return tuple(name for name in self.told_apart_by if name not in known)

    @property
    def matched(self) -> str:
        """Matchers that hold for all series."""
        return ",".join(f'{name}="{value}"' for name, value in self.labels)

    def once(self, vector: str, fold: str = "max") -> str:
        """Return a PromQL vector in which the copies of a series by replicas of Prometheus are one, by `fold`."""
        return f"{fold} without ({', '.join(self.replicas)}) ({vector})" if self.replicas else vector

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
        namespaces: frozenset[str] = frozenset(),
    ) -> str:
        """Return a PromQL vector with the labels `namespace`, `own` and `keep` of the series themselves.

        `select` returns the selector for a prefix of the labels `own` (empty, or `EXPORTED`), `vector` the PromQL for a
        selector; `fold` is the aggregation, which has to be applied once more to the whole. No `namespaces` means all.
        """
        parts = []
        for prefix in ("", EXPORTED):
            plain = "" if prefix else f'{EXPORTED}{own[0]}=""'
            for space, matchers in self._spaces(namespaces):
                selector = narrowed(select(prefix), self.matched, *matchers, plain)
                # Labels of the target that the series' own ones replace are summed up before: two targets in different
                # namespaces may export the same series, which would be duplicates once renamed.
                labels = [space, *(prefix + name for name in own), *keep]
                part = f"{fold} by ({', '.join(labels)}) ({vector(selector)})"
                for name in labels:
                    if name.startswith(EXPORTED):
                        part = f'label_replace({part}, "{name.removeprefix(EXPORTED)}", "$1", "{name}", "(.+)")'
                parts.append(part)
        return " or ".join(parts)

    def believed(self) -> str:
        """Return a matcher of the targets that may export series of other namespaces; empty = all of them."""
        return "" if EVERYWHERE in self.exporters else any_of("namespace", self.exporters)

    def _spaces(self, namespaces: frozenset[str]) -> list[tuple[str, tuple[str, ...]]]:
        """Return labels with the namespace of a series, and matchers of the series and namespaces for which they hold.

        Each series is matched once.
        """
        own = f'{EXPORTED}namespace=""'
        exported = any_of(EXPORTED + "namespace", namespaces) or f'{EXPORTED}namespace!=""'
        if EVERYWHERE in self.exporters:
            return [("namespace", (any_of("namespace", namespaces), own)), (EXPORTED + "namespace", (exported,))]
        if not self.exporters:
            return [("namespace", (any_of("namespace", namespaces),))]
        spaces: list[tuple[str, tuple[str, ...]]] = [(EXPORTED + "namespace", (exported, self.believed()))]
        trusted = namespaces & set(self.exporters) if namespaces else frozenset(self.exporters)
        if trusted:
            spaces.append(("namespace", (any_of("namespace", trusted), own)))
        if not namespaces:
            spaces.append(("namespace", (f"namespace!~{any_of('', self.exporters)[2:]}",)))
        elif others := namespaces - trusted:
            spaces.append(("namespace", (any_of("namespace", others),)))
        return spaces


def any_of(label: str, names: Collection[str]) -> str:
    """Return a matcher of a label with any of some values; empty without values."""
    return f'{label}=~"{"|".join(map(literally, sorted(names)))}"' if names else ""


def narrowed(selector: str, *matchers: str) -> str:
    """Return a metric with further matchers; empty ones are left out."""
    # Prometheus takes matchers in turn and stops at one that nothing matches, so the cheapest ones are last to be added
    # and first to be written.
    metric, _, inside = selector.partition("{")
    return f"{metric}{{{','.join(filter(None, (*matchers, inside.removesuffix('}'))))}}}"
