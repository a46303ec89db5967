"""PromQL: one query per signal and preset, for all policies that share a Prometheus.

Every query returns series with the label `_`: `v` for the value, `t` for the time (unix seconds) of the newest raw
sample behind it, for usage `n` for the number of pods behind it, `c` where
series of several clusters exist, and for counters `d` where series exist several times.
Without the time, an instant query would return the last value of a dead exporter for minutes; without the number, pods
whose series vanished would count as idle. For the same reason usage is a mean over pods, and arrivals carry the label
`pool`.

Utilization covers the ready pods, by `kube_pod_status_ready`, and all pods in namespaces that have no such series.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from rlscaler_core.decision.units import SignalName
from rlscaler_operator.sensing.fallbacks import is_scalar, measured
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.presets import PRESETS, Preset
from rlscaler_operator.sensing.requests import Selection
from rlscaler_operator.sensing.selection import Pods, added, labelled
from rlscaler_operator.sensing.subject import SHOWN_PERCENTILE, Subject
from rlscaler_operator.settings import Settings

By = Literal["service", "pool", "deployment", "service, le", "deployment, le", "nothing"]
"""Labels that a query's results are grouped by; `pool` stands for a service and the sum of its pools, `nothing` for one
value with any labels."""

REPLACES = {
    "arrivalRate": "arrival_rate",
    "load": "load",
    "cpuUtilization": "cpu_utilization",
    "memoryUtilization": "memory_utilization",
    "gpuUtilization": "gpu_utilization",
    "p95Latency": "p95_latency",
}
"""Signals by names in `spec.metrics.queries`."""

BUSY_SECONDS = 60
"""Rate window of the CPU usage by which pods are ordered; only the order matters."""

CPU_USAGE = "container_cpu_usage_seconds_total"
MEMORY_USAGE = "container_memory_working_set_bytes"

DEFAULT_LABELS = Labels()


class Window(NamedTuple):
    """Window of a rate."""

    seconds: float
    scrape_seconds: float
    """Time between two scrapes of the counters."""
    prompt_seconds: float | None = None
    """Shorter window for arrivals; None = there is none."""


@dataclass(frozen=True, slots=True)
class Query:
    """One request to Prometheus."""

    name: str
    by: By
    promql: str
    window: Window | None = None
    """Window of the query's rate; None = the query has no rate."""


def windows(settings: Settings) -> tuple[Window, Window]:
    """Return the rate windows of the service's metrics and of the containers' metrics."""
    scrape = settings.scrape_interval_seconds
    resource_scrape = settings.resource_scrape_interval_seconds or scrape
    service = Window(settings.window_seconds, scrape, settings.arrival_window_seconds)
    return service, Window(settings.resource_window_seconds, resource_scrape)


def of_arrivals(preset: Preset, window: Window) -> Window:
    """Return the window of a preset's arrivals: the shorter one where they are exported without delay."""
    if window.prompt_seconds is None or preset.exported_every_seconds:
        return window
    return Window(window.prompt_seconds, window.scrape_seconds)


def load_seconds(subject: Subject, window: Window) -> float:
    """Return the seconds over which a policy's load is a mean: from the first sample of its window to the last."""
    prompt = subject.unit == "requests" and not subject.queries
    used = of_arrivals(subject.requests, window) if prompt else window
    return used.seconds - used.scrape_seconds


def batch(
    subjects: Iterable[Subject], window: Window, resource_window: Window, labels: Labels = DEFAULT_LABELS
) -> list[Query]:
    """Return the queries for all `subjects`, without those that no subject needs and without `own_queries`.

    Their number grows with the presets in use, and not with the subjects. Arrivals and latencies come first: without
    them nothing is decided.
    """
    subjects = list(subjects)
    if not subjects:
        return []
    queries: list[Query] = []
    for preset in sorted({subject.counted_by for subject in subjects}):
        queries += _of_requests(preset, [s for s in subjects if s.counted_by == preset], window, labels)
    for preset, load in sorted({(s.preset, s.load) for s in subjects if s.unit != "requests" and s.counts_load}):
        queries.append(_of_load(preset, [s for s in subjects if (s.preset, s.load) == (preset, load)], window, labels))
    timed = [latency for subject in subjects for latency in subject.latencies]
    for preset, signal in sorted({(latency.timed_by, latency.signal) for latency in timed}):
        alike = [latency for latency in timed if (latency.timed_by, latency.signal) == (preset, signal)]
        queries += _of_latency(preset, alike, window, labels)
    queries += _of_pods(subjects, resource_window, labels) + _of_sizes(subjects, resource_window, labels)
    for preset in sorted({subject.preset for subject in subjects}):
        queries += _of_server(preset, [s for s in subjects if s.preset == preset], labels)
    needed = set.union(*(_needed(subject) for subject in subjects))
    return [query for query in queries if query.name in needed]


def _of_pods(subjects: Sequence[Subject], window: Window, labels: Labels) -> list[Query]:
    """Return the queries for usage and requests of pods, by the series of nodes and cluster."""
    pods, span = _pods(subjects, labels), f"[{window.seconds}s]"
    usage = labelled(pods.usage(CPU_USAGE, lambda series: f"rate({series}{span})"))
    return [
        Query("cpu_usage", "deployment", usage, window),
        Query("memory_usage", "deployment", labelled(pods.usage(MEMORY_USAGE, str))),
        Query("cpu_request", "deployment", labelled(pods.request("cpu", CPU_USAGE))),
        Query("memory_request", "deployment", labelled(pods.request("memory", MEMORY_USAGE))),
        Query("gpu_utilization", "deployment", labelled(pods.gpu_utilization())),
    ]


def _of_sizes(subjects: Sequence[Subject], window: Window, labels: Labels) -> list[Query]:
    """Return the queries for the usage of pods whose size is recommended, for each name of a container."""
    queries, span = [], f"[{window.seconds}s]"
    others = frozenset(name for subject in subjects for name in subject.others)
    namespaces = frozenset(subject.namespace for subject in subjects)
    for container in sorted({container for subject in subjects for _, container in subject.sized}):
        names = frozenset(name for subject in subjects for name, sized in subject.sized if sized == container)
        pods = Pods(names - others, labels, names & others, container, namespaces)
        cpu = labelled(pods.most(CPU_USAGE, lambda series: f"rate({series}{span})"))
        queries.append(Query(size_name("cpu", container), "deployment", cpu, window))
        queries.append(Query(size_name("memory", container), "deployment", labelled(pods.most(MEMORY_USAGE, str))))
    return queries


def size_name(resource: str, container: str) -> str:
    """Return the name of the query for the largest usage of `cpu` or `memory` by a container."""
    return f"{resource}_size {container}".rstrip()


def _of_requests(name: str, subjects: Sequence[Subject], window: Window, labels: Labels) -> list[Query]:
    """Return the query for the arriving requests of a preset, or none."""
    preset = PRESETS[name]
    if not preset.counts_arrivals:
        return []
    selection, prompt = Selection.of(name, subjects, labels), of_arrivals(preset, window)
    arrivals = selection.arrivals(prompt.seconds, window.seconds)
    return [Query(named(name, "arrival_rate"), _by(selection), arrivals, prompt)]


def _of_load(name: str, subjects: Sequence[Subject], window: Window, labels: Labels) -> Query:
    """Return the query for an arriving load in one unit other than requests."""
    first, selection, span = subjects[0], Selection.of(name, subjects, labels), f"[{window.seconds}s]"
    tokens = first.unit == "tokens"
    arriving = selection.arriving_tokens(span, first.token_weights) if tokens else selection.held(span)
    return Query(named(name, f"load {first.load}"), _by(selection), arriving, window if tokens else None)


def _of_latency(name: str, subjects: Sequence[Subject], window: Window, labels: Labels) -> list[Query]:
    """Return the queries for a latency by a preset's histogram; all subjects have the same signal."""
    histogram, signal, span = subjects[0].histogram, subjects[0].signal, f"[{window.seconds}s]"
    if histogram is None:
        return []
    queries = []
    by_deployment = _by(Selection.of(name, subjects, labels)) == "deployment"
    single, several = [s for s in subjects if not s.sums_pools], [s for s in subjects if s.sums_pools]
    for percentile in sorted({SHOWN_PERCENTILE, *(s.percentile for s in single)} if single else ()):
        shown = [s for s in single if percentile in (SHOWN_PERCENTILE, s.percentile)]
        promql = Selection.of(name, shown, labels).percentile(histogram, percentile, span)
        by: By = "deployment" if by_deployment else "service"
        queries.append(Query(named(name, latency_name(percentile, signal)), by, promql, window))
    if several:
        promql = Selection.of(name, several, labels).buckets(histogram, span)
        bounds: By = "deployment, le" if by_deployment else "service, le"
        queries.append(Query(named(name, buckets_name(signal)), bounds, promql, window))
    return queries


def _by(selection: Selection) -> By:
    return "deployment" if selection.by == ("namespace", "deployment") else "pool"


def _of_server(name: str, subjects: Sequence[Subject], labels: Labels) -> list[Query]:
    """Return the query for the utilization that a preset's server exports, or none."""
    preset = PRESETS[name]
    if preset.utilization is None:
        return []
    vectors = _pods(subjects, labels).utilization(preset.utilization, preset.in_flight, preset.waiting)
    return [Query(named(name, "utilization"), "deployment", labelled(vectors))]


def _pods(subjects: Iterable[Subject], labels: Labels) -> Pods:
    subjects = list(subjects)
    others = frozenset(name for s in subjects for name in s.others)
    deployments = frozenset(name for s in subjects for name in s.deployments if name is not None)
    return Pods(deployments - others, labels, others, namespaces=frozenset(s.namespace for s in subjects))


def _needed(subject: Subject) -> set[str]:
    """Return the names of the queries that a subject needs."""
    replaced = {REPLACES[name] for name, _ in subject.queries}
    needed = {size_name(resource, container) for _, container in subject.sized for resource in ("cpu", "memory")}
    if "arrival_rate" not in replaced:
        needed.add(named(subject.counted_by, "arrival_rate"))
    if "load" not in replaced:
        needed.add(named(subject.preset, f"load {subject.load}"))
    percentiles = {SHOWN_PERCENTILE, subject.percentile} - ({SHOWN_PERCENTILE} if "p95_latency" in replaced else set())
    for latency in subject.latencies if percentiles else ():
        needed |= {named(latency.timed_by, latency_name(percentile, latency.signal)) for percentile in percentiles}
        needed.add(named(latency.timed_by, buckets_name(latency.signal)))
    if "memory_utilization" not in replaced:
        needed |= {"memory_usage", "memory_request"}
    gauge = subject.server.utilization
    for pool, builtin in (("gpu", {"gpu_utilization"}), ("cpu", {"cpu_usage", "cpu_request"})):
        if f"{pool}_utilization" not in replaced:
            exported = gauge is not None and pool in gauge.pools
            needed |= {named(subject.preset, "utilization")} if exported else builtin
    return needed


def named(preset: str, name: str) -> str:
    """Return the name of a query of a preset."""
    return f"{preset} {name}" if preset else name


def own_queries(subject: Subject) -> list[Query]:
    """Return the queries in the policy's spec, without constant sides; each must give one sample."""
    return [Query(own_name(*query), "nothing", _own(measured(query[1]).promql)) for query in subject.queries]


def busy_pods(deployment: str, labels: Labels = DEFAULT_LABELS, preset: str = "", namespace: str = "") -> str:
    """Return the query for the present work of each pod of a Deployment; the label `_` is `in_flight`, `gpu` or `cpu`.

    Requests in flight are those of the preset's server, and left out where it exports none. Without a namespace the
    answer has pods of Deployments with the same name in all of them.
    """
    pods = Pods(frozenset({deployment}), labels, namespaces=frozenset({namespace} if namespace else ()))
    gauges = [pods.plain(name) for name in (*PRESETS[preset].in_flight, *PRESETS[preset].waiting)]
    in_flight = {"in_flight": added(gauges, "namespace, pod")} if gauges else {}
    return labelled(
        {
            **in_flight,
            "gpu": pods.of_gpus(),
            "cpu": pods.of_containers(CPU_USAGE, lambda series: f"rate({series}[{BUSY_SECONDS}s])"),
        }
    )


def latency_name(percentile: float, signal: SignalName = "endToEnd") -> str:
    """Return the name of the query for a latency percentile."""
    return f"{_of_signal(signal)}p{percentile:g}_ms"


def buckets_name(signal: SignalName = "endToEnd") -> str:
    """Return the name of the query for the buckets of a latency."""
    return f"{_of_signal(signal)}latency_buckets"


def _of_signal(signal: SignalName) -> str:
    return "" if signal == "endToEnd" else f"{signal} "


def own_name(signal: str, promql: str) -> str:
    """Return the name of a query in the policy's spec that replaces a built-in one."""
    return f"{signal}: {promql}"


NUMBER = "_q"
"""Label with the number of a query, where several own queries are sent as one."""


def together(queries: Iterable[Query]) -> str:
    """Return one query for several, with the number of each in the label `NUMBER` of its results."""
    numbered = (f'label_replace({query.promql}, "{NUMBER}", "{i}", "", "")' for i, query in enumerate(queries))
    return " or ".join(numbered)


_NO_CODE = re.compile(r"""\"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|\#[^\n]*""")
"""String literals and comments of PromQL."""

_CALL = re.compile(r"\b(?!(?i:offset)\b)[a-zA-Z_:][\w:]*\s*\(")
"""A function or an aggregation."""


@lru_cache(maxsize=4096)
def _own(promql: str) -> str:
    """Return the query for the value of a policy's own query and for the time of the raw sample behind it."""
    # Prometheus knows that time only where a query names a series. A query that computes has the time of its
    # evaluation, and is not evaluated twice to learn that.
    value = f"{'vector' if is_scalar(promql) else ''}({promql}\n)"
    if _CALL.search(_NO_CODE.sub(" ", promql)):
        return labelled({"v": value})
    return f"({labelled({'v': value, 't': f'timestamp({value})'})})"
