"""The page of the presets, from the table that the operator senses by."""

from __future__ import annotations

from collections.abc import Iterable

from rlscaler_dev.generate.pages import code
from rlscaler_dev.markdown import table
from rlscaler_operator.sensing.presets import PRESETS, Histogram, Preset

INTRODUCTION = """\
# Presets

`spec.metrics.preset` says whose series a policy is measured by, `spec.metrics.frontDoor` what counts requests and
latencies in place of a model server. The same series serve sensing, learned capacity, the evidence of Shadow and the
counted late requests. `spec.metrics.queries` replaces single signals. What is not exported is *unknown*
(`NotExported`), never 0.

`spec.capacity.unit` says what the load is counted in. `tokens` is what is counted and, for each request by which the
queue has grown, the mean of the requests that were over in the last ten minutes; `concurrency` is what is in flight
and waits, as a mean over the rate window. `spec.slo.signal` says which of the latencies the objective is on.

*Derived* arrivals are the requests that are over plus the growth of those in flight and waiting, over the same
window, at least 0. Where a counter has several names, the first that is there counts. Labels that a scrape has
renamed to `exported_*` are understood, and replicas of Prometheus count once
([how it is scraped](../metrics.md#how-prometheus-is-read)).
"""

FULL = "; a replica of which a tenth of the requests wait counts as full"

EMPTY = "not exported"


def presets() -> str:
    """Markdown of the page of presets."""
    return INTRODUCTION + "".join(_section(name, preset) for name, preset in PRESETS.items() if name)


def _section(name: str, preset: Preset) -> str:
    rows = [
        ("found by", f"{preset.identified_by}"),
        ("arrivals", f"{preset.arrivals} {_all(preset.arrived or preset.answered)}".strip()),
        ("answered", _all(preset.answered) or EMPTY),
        ("in flight", _all(preset.in_flight) or EMPTY),
        ("waiting", _all(preset.waiting) or EMPTY),
        ("latency", _histogram(preset.latency)),
        ("time to first token", _histogram(preset.ttft)),
        ("time per token", _histogram(preset.tpot)),
        ("tokens", _tokens(preset)),
        ("utilization", _utilization(preset)),
    ]
    notes = "".join(f"\n- {note}" for note in preset.notes)
    head = f"\n## `{name}`: {preset.title}\n\nReleases: {preset.releases}. Names from: {preset.source}.\n\n"
    return head + table(("signal", "series"), rows) + "\n" + (notes + "\n" if notes else "")


def _all(metrics: Iterable[str]) -> str:
    return " + ".join(" or ".join(code(name) for name in metric.split(" or ")) for metric in metrics)


def _histogram(histogram: Histogram | None) -> str:
    if histogram is None:
        return EMPTY
    each = ", of each token" if histogram.of_tokens else ""
    return f"{_all([histogram.metric])}, in {'seconds' if histogram.per_second == 1 else 'milliseconds'}{each}"


def _tokens(preset: Preset) -> str:
    if preset.tokens is None:
        return EMPTY
    when = "counted when a request is over" if preset.tokens.when_over else "counted as they are worked on"
    return f"{_all(preset.tokens.metrics)}, {when}"


def _utilization(preset: Preset) -> str:
    gauge = preset.utilization
    if gauge is None:
        return "CPU usage of the pods, `DCGM_FI_DEV_GPU_UTIL`"
    scale = "0 to 1" if gauge.percent == 100 else "%"
    both = "" if len(gauge.pools) > 1 else f" of the {gauge.pools[0]} pool, CPU usage of the other one"
    return f"{_all([gauge.metric])} ({scale}){both}{FULL if gauge.full_when_waiting else ''}"
