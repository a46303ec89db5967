"""Recording rules that give the series of every preset one set of names, from the table that the operator senses by.

The operator does not read them. They are for people: for dashboards over services of several kinds, and for
`rlscaler trace import`, which takes one query.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.presets import PRESETS, ByName
from rlscaler_operator.sensing.requests import Selection, suffixed

WINDOW = "2m"
WINDOW_SECONDS = 120.0
SPAN = f"[{WINDOW}]"
"""Four scrapes of 30 s, the default of kube-prometheus-stack."""

PERCENTILE = 0.95


def recorded() -> list[str]:
    """Presets that have rules: those whose series say of themselves, or by their pods, whose they are."""
    return [name for name, preset in PRESETS.items() if name and not isinstance(preset.identified_by, ByName)]


def rules(name: str) -> str:
    """Return the file of one preset: one group of rules."""
    listed = [{"record": record, "expr": expression, "labels": {"preset": name}} for record, expression in _rules(name)]
    return yaml.safe_dump({"groups": [{"name": f"rlscaler-{name}", "rules": listed}]}, sort_keys=False, width=120)


def _rate(counter: str) -> str:
    return f"rate({counter}{SPAN})"


def _rules(name: str) -> Iterator[tuple[str, str]]:
    selection, labels = Selection.of(name, (), Labels()), Labels()
    preset = selection.preset
    if preset.counts_arrivals:
        arrived = selection.arrived(_rate, lambda gauge: f"delta({gauge}{SPAN}) / {WINDOW_SECONDS:g}")
        yield f"rlscaler:arrivals:rate{WINDOW}", arrived
    if preset.tokens is not None:
        tokens = selection.sum(preset.tokens.metrics, lambda counter: labels.once(_rate(counter)))
        yield f"rlscaler:tokens:rate{WINDOW}", tokens
    for what, gauges in (("running", preset.in_flight), ("waiting", preset.waiting)):
        if gauges:
            yield f"rlscaler:requests_{what}:sum", selection.sum(gauges, labels.once)
    for what, histogram in (("latency", preset.latency), ("ttft", preset.ttft)):
        if histogram is not None:
            rates = selection.whole.sum([suffixed(histogram, "_bucket")], _rate, ("le",))
            value = f"histogram_quantile({PERCENTILE}, {rates}) / {histogram.per_second:g}"
            yield f"rlscaler:{what}_seconds:p95_{WINDOW}", value
