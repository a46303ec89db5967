"""Preflight of the series in Prometheus: signals with their ages, buckets around the objective, capacity."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlscaler_core.decision.belief import believed
from rlscaler_core.decision.units import LOADS
from rlscaler_operator.cli.checks import Check
from rlscaler_operator.cli.pages import latency_unit
from rlscaler_operator.cli.preflight.look import Look
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing import fallbacks
from rlscaler_operator.sensing.labels import EXPORTED
from rlscaler_operator.sensing.measure import MEASURED, missing_signals
from rlscaler_operator.sensing.presets import PRESETS
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import Histograms, histogram_of, histograms, promql
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS

UTILIZATIONS = {"gpu": "gpu_utilization", "cpu": "cpu_utilization"}

SHOWN_NAMES = 5

EXACT = 1e-6
"""Relative difference below which two bounds of a histogram are the same."""

REMEDIES = {
    "WindowEmpty": "tell the operator how often Prometheus scrapes it (prometheus.scrapeInterval of the chart), or "
    "have it scraped more often",
    "SampleStale": "is the exporter still scraped? See Prometheus's page of targets; or raise "
    "spec.metrics.maxAgeSeconds",
    "PrometheusUnreachable": "correct spec.metrics.prometheus.url; from outside of the cluster, forward a port and "
    "name it with --prometheus-url",
}
"""Remedy by the reason of an unknown reading whose message has none."""


async def check_series(look: Look) -> list[Check]:
    """Check the signals, the latency histogram and the capacities of a policy."""
    title = f"Prometheus answers at {look.access.url or 'spec.metrics.prometheus.url'}"
    if look.access.refused is not None:
        return [Check(title, look.access.refused[1], "prometheus")]
    answered = {signal: look.policy.decision.readings[signal] for signal in _wanted(look)}
    reasons = {(reading.reason, reading.message) for reading in answered.values()}
    # All signals are unknown for one and the same reason: Prometheus itself is the trouble, not a series.
    if look.outcome is not None and len(reasons) == 1 and not any(reading.known for reading in answered.values()):
        return [Check(title, _text(answered["arrival_rate"]), "prometheus")]
    if look.outcome is None:
        return [Check(title, about="prometheus")]
    checks = [Check(title, about="prometheus"), *_signals(look, await _labels_there(look)), *_fallbacks(look)]
    if look.policy.spec.signal is None:
        checks += await check_buckets(look)
    return [*checks, *_capacities(look)]


def _wanted(look: Look) -> list[str]:
    """Return the signals of the policy, without the utilization of a pool that it does not have."""
    pools = [pool for pool, _ in look.policy.facts.targets]
    absent = [signal for pool, signal in UTILIZATIONS.items() if pool not in pools]
    return [signal for signal in MEASURED if signal not in absent]


def _signals(look: Look, hint: str) -> Iterator[Check]:
    policy = look.policy
    readings, limit = policy.decision.readings, policy.spec.metrics.max_age_seconds
    cache, pools = look.context.engine.cache, policy.facts.targets
    there = {pool: cache.deployments[key].replicas for pool, key in pools if key in cache.deployments}
    present = ("gpu" in there, "cpu" in there)
    replicas = (there.get("gpu", 0), there.get("cpu", 0))
    missing = dict(missing_signals(readings, present, replicas, limit))
    for signal in _wanted(look):
        reading = missing.get(signal, readings[signal])
        if reading.known:
            title = f"{signal} is {reading.value:.4g} {_unit(look, signal)}, {reading.age_seconds:.0f} s old"
            yield Check(f"{title} (at most {limit} s)", about=signal)
            continue
        idle = signal == "p95_latency" and readings["arrival_rate"].value == 0
        trouble = "nothing arrives at the moment: send some requests to see it" if idle else _text(reading)
        if hint and signal in ("arrival_rate", "p95_latency") and reading.reason == "SeriesAbsent":
            trouble = f"{trouble}; {hint}"
        yield Check(f"{signal} is known", trouble, signal, stops=signal in missing)


def _fallbacks(look: Look) -> Iterator[Check]:
    """Warn of constant sides of own queries, which are left out."""
    for name, text in look.policy.subject.queries:
        if left_out := fallbacks.measured(text).left_out:
            title = f"spec.metrics.queries.{name} measures and assumes nothing"
            yield Check(title, fallbacks.warning_of(name, left_out), "queries", stops=False)


def _unit(look: Look, signal: str) -> str:
    """Return the unit of a signal, for a token latency with its name."""
    if signal == "p95_latency":
        return latency_unit(look.policy.spec.slo.to_dict())
    return LOADS[look.policy.subject.unit] if signal == "arrival_rate" else "%"


def _text(reading: Reading) -> str:
    remedy = REMEDIES.get(reading.reason, "")
    return f"{reading.message}: {remedy}" if remedy else reading.message


async def _labels_there(look: Look) -> str:
    """Return a hint to the labels under which the missing arrivals are stored; empty where there is no doubt."""
    subject = look.policy.subject
    own = "arrivalRate" if subject.unit == "requests" else "load"
    if look.policy.decision.readings["arrival_rate"].reason != "SeriesAbsent" or own in dict(subject.queries):
        return ""
    counters = subject.counters
    if not counters:
        return f"the preset {subject.counted_by} counts no requests: name what does in spec.metrics.frontDoor"
    preset = subject.counted_by if subject.unit == "requests" else subject.preset
    counter = counters[0].partition(" or ")[0]
    names = ["namespace", EXPORTED + "namespace", "service", EXPORTED + "service"]
    try:
        series = await look.context.engine.sensing.sources.instant(
            look.access, f"count by ({', '.join(names)}) ({counter})"
        )
    except MetricsError as error:
        return str(error)
    metrics = [row.get("metric", {}) for row in series]
    # A label that the series itself had before it was scraped (exported_*) counts more than that of the target.
    services = {
        (metric.get(names[1]) or metric.get(names[0], ""), metric.get(names[3]) or metric.get(names[2], ""))
        for metric in metrics
    }
    if not services:
        return (
            f"it has no series {counter} at all: let your Prometheus scrape the service, or name your own series in "
            "spec.metrics.preset or spec.metrics.queries (docs/metrics.md)"
        )
    here = sorted(name for space, name in services if space == subject.namespace)
    if here and not preset:
        return (
            f"the label service of {subject.namespace} is {' or '.join(here[:SHOWN_NAMES])}: set spec.metrics.service"
        )
    shown = ", ".join(f"{space}/{name}".rstrip("/") for space, name in sorted(services)[:SHOWN_NAMES])
    if preset:
        return f"{counter} is there for {shown}, and the preset goes by {PRESETS[preset].identified_by}"
    return f"{counter} is there for {shown}: the label namespace has to be {subject.namespace}"


async def check_buckets(look: Look) -> list[Check]:
    """Check each latency histogram for a bound at its objective: late requests are counted by its buckets."""
    subject, slo = look.policy.subject, look.policy.spec.slo
    query = promql([subject], WINDOW_SECONDS, look.context.engine.sensing.labels(look.access))
    try:
        measured = histograms(await look.context.engine.sensing.sources.instant(look.access, query))
    except MetricsError as error:
        return [Check("the latency histogram has a bucket at the objective", str(error), "buckets", stops=False)]
    objectives = [("buckets", "spec.slo.latencyMilliseconds", slo.latency_milliseconds)]
    if slo.time_per_output_token_milliseconds is not None:
        field = "spec.slo.timePerOutputTokenMilliseconds"
        objectives.append(("buckets-tpot", field, slo.time_per_output_token_milliseconds))
    return [
        _check_bucket(measured, latency, *objective)
        for latency, objective in zip(subject.latencies, objectives, strict=True)
    ]


def _check_bucket(measured: Histograms, subject: Subject, about: str, field: str, milliseconds: int) -> Check:
    """Check the histogram of one latency for a bound at its objective, which is set in `field`."""
    slo = milliseconds / 1000
    named = "latency" if subject.signal == "endToEnd" else f"{subject.signal} latency"
    title = f"the {named} histogram has a bucket at the objective"
    histogram = histogram_of(measured, subject)
    bounds = sorted(histogram.within) if histogram is not None else []
    if not bounds:
        trouble = f"no histogram grew in the last {WINDOW_SECONDS / 60:.0f} minutes: Shadow cannot count late requests"
        return Check(title, f"{trouble} before it does", about, stops=False)
    below = max((bound for bound in bounds if bound <= slo * (1 + EXACT)), default=0.0)
    above = min((bound for bound in bounds if bound >= slo * (1 - EXACT)), default=math.inf)
    if below and math.isclose(below, above, rel_tol=2 * EXACT):
        return Check(f"{title}: {slo:g} s", about=about)
    if math.isinf(above):
        largest = max((bound for bound in bounds if math.isfinite(bound)), default=0.0)
        trouble = f"its largest bound is {largest:g} s and {field} is {slo:g} s: late requests are not known"
        return Check(title, f"{trouble}; add a bucket", about)
    trouble = (
        f"{slo:g} s lies between its bounds {below:g} and {above:g} s, and requests between them count for neither"
    )
    return Check(title, f"{trouble}: add a bucket, or set {field} to {_nearest(below, above, slo)}", about, False)


def _nearest(below: float, above: float, slo: float) -> str:
    choices = [bound for bound in (below, above) if bound > 0]
    return f"{1000 * min(choices, key=lambda bound: abs(bound - slo)):.0f}"


def _capacities(look: Look) -> Iterator[Check]:
    assert look.outcome is not None
    spec, unit = look.policy.spec, LOADS[look.policy.spec.capacity.unit]
    for i, (pool, key) in enumerate((("gpu", look.policy.deployments[0]), ("cpu", look.policy.deployments[1]))):
        target, about = spec.targets.pool(pool), f"capacity-{pool}"
        if target is None:
            continue
        value = float(believed(look.outcome.entry.params, look.outcome.state).requests_per_second[0, i])
        if math.isfinite(value):
            source = "set" if spec.per_replica(pool) is not None else "measured"
            yield Check(f"a replica of {key} carries {value:.4g} {unit} ({source})", about=about)
        elif spec.capacity.trust == "learned":
            yield Check(f"how many {unit} a replica of {key} carries is measured once it is under load", about=about)
        else:
            trouble = f"nothing is scaled down: set spec.{spec.per_replica_field(pool)}, or capacity.trust to learned"
            yield Check(f"how many {unit} a replica of {key} carries is known", trouble, about, False)
