"""The labels by which series belong to a service or a pod, however they were scraped.

With `honor_labels: false`, as a ServiceMonitor sets it, Prometheus keeps `namespace`, `service`, `pod` and `container`
for the target that it scrapes, and what the series itself says becomes `exported_namespace` and so on. What a series
says of itself counts here, whatever it is called. Replicas of one Prometheus that scrape the same targets (an HA pair)
give every series several times, told apart by an external label only; they count once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlscaler_operator.settings import Settings

EXPORTED = "exported_"
"""What Prometheus puts before a label of a series that its target has as well."""

EVERYWHERE = "*"

SUSPECT = "replica"
"""External label by which HA pairs are often told apart, and which services use too: it is not guessed which."""


@dataclass(frozen=True, slots=True)
class Labels:
    """What the administrator says about the labels of series."""

    replicas: tuple[str, ...] = ("prometheus_replica",)
    """External labels that tell replicas of Prometheus apart."""
    exporters: tuple[str, ...] = (EVERYWHERE,)
    """Namespaces whose targets may say of which namespace their series are."""

    @classmethod
    def of(cls, settings: Settings) -> Labels:
        return cls(settings.replica_labels, settings.exporter_namespaces)

    def once(self, vector: str) -> str:
        """Count the copies of a series that replicas of Prometheus have as one: the largest of them."""
        return f"max without ({', '.join(self.replicas)}) ({vector})" if self.replicas else vector

    def copies(self, selector: str) -> str:
        """Return a PromQL vector of what is there several times, told apart by the label `replica` only."""
        return f"count without ({', '.join((SUSPECT, *self.replicas))}) ({selector}) > 1"

    def by(
        self,
        own: tuple[str, ...],
        select: Callable[[str], str],
        vector: Callable[[str], str],
        fold: str,
        keep: tuple[str, ...] = (),
    ) -> str:
        """Return a PromQL vector with the labels `namespace`, `own` and `keep`, as the series themselves say.

        `select` gives the selector for a prefix of the labels `own` (nothing, or `EXPORTED`), `vector` what is
        computed of a selector, and `fold` the aggregation, which has to be applied once more to the whole.
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
        """Return a matcher of the targets that may say of which namespace their series are; empty = all of them."""
        return "" if EVERYWHERE in self.exporters else f'namespace=~"({"|".join(sorted(self.exporters))})"'

    def _targets(self) -> list[tuple[str, bool]]:
        """Return matchers of targets, and whether these may say of which namespace their series are."""
        if EVERYWHERE in self.exporters:
            return [("", True)]
        if not self.exporters:
            return [("", False)]
        names = "|".join(sorted(self.exporters))
        return [(f'namespace=~"({names})"', True), (f'namespace!~"({names})"', False)]


def narrowed(selector: str, *matchers: str) -> str:
    """Add matchers to a metric, which may have some already; empty ones are left out."""
    metric, _, inside = selector.partition("{")
    return f"{metric}{{{','.join(filter(None, (inside.removesuffix('}'), *matchers)))}}}"
