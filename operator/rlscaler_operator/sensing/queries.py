"""PromQL: one query per signal, for all policies that share a Prometheus.

Every query returns series with the label `_`: `v` for the value, `t` for the time (unix seconds) of the newest raw
sample behind it, and for usage `n` for the number of pods behind it. Without the time, an instant query answers for
minutes with what a dead exporter said last; without the number, pods whose series vanished would count as idle. For the
same reason usage is a mean over pods, and arrivals carry the label `pool`.

Utilization covers the ready pods, by `kube_pod_status_ready`, and all pods in namespaces that have no such series.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rlscaler_operator.settings import Settings

By = Literal["service", "pool", "deployment", "nothing"]
"""The label that a query's results are grouped by; `nothing` stands for one value, no matter which labels it has."""

SHOWN_PERCENTILE = 95.0
"""The latency percentile that is always measured, because it is an input of the actor."""

REPLACES = {
    "arrivalRate": ("arrival_rate", ("arrival_rate",)),
    "cpuUtilization": ("cpu_utilization", ("cpu_usage", "cpu_request")),
    "memoryUtilization": ("memory_utilization", ("memory_usage", "memory_request")),
    "gpuUtilization": ("gpu_utilization", ("gpu_utilization",)),
    "p95Latency": ("p95_latency", ("p95_ms",)),
}
"""Names in `spec.metrics.queries`, each with the signal that it gives and the built-in queries that it replaces."""

MATCHED_NAMES = 200
"""Number of names above which a query selects everything and its answer is filtered: a longer URL costs more."""

BUSY_SECONDS = 60
"""Rate window of the CPU usage by which pods are ordered: the order counts, not the value."""

POD_SUFFIX = "-[a-z0-9]+-[a-z0-9]{5}"
"""Pattern of what follows the Deployment's name in the names of its pods: the hash of the ReplicaSet and a suffix."""

POD_OF_DEPLOYMENT = f"(.+){POD_SUFFIX}"
"""Pattern of the name of a Deployment's pod; its group is the name of the Deployment."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured for one policy."""

    namespace: str
    service: str
    deployments: tuple[str | None, str | None]
    percentile: float = SHOWN_PERCENTILE
    """Percentile of the latency that is displayed."""
    queries: tuple[tuple[str, str], ...] = ()
    """Pairs of a name in `spec.metrics.queries` and the PromQL that replaces the built-in query."""
    learns: bool = False
    """True where the capacity of a replica is learned."""


class Window(NamedTuple):
    """The window that rates are taken over."""

    seconds: int
    scrape_seconds: float
    """Time between two scrapes of the counters."""


@dataclass(frozen=True, slots=True)
class Query:
    """One request to Prometheus."""

    name: str
    by: By
    promql: str
    window: Window | None = None
    """Window of the rate that the query takes; None = it takes none."""


def windows(settings: Settings) -> tuple[Window, Window]:
    """Return the rate windows of the service's metrics and of the containers' metrics."""
    scrape = settings.scrape_interval_seconds
    resource_scrape = settings.resource_scrape_interval_seconds or scrape
    return Window(settings.window_seconds, scrape), Window(settings.resource_window_seconds, resource_scrape)


def batch(subjects: Iterable[Subject], window: Window, resource_window: Window) -> list[Query]:
    """Return the queries that answer for all `subjects`; built-in queries that no subject needs are left out.

    Their number grows only with the queries that the subjects bring themselves.
    """
    subjects = list(subjects)
    if not subjects:
        return []
    namespaces = _matcher("namespace", {s.namespace for s in subjects})
    services = _services_of(subjects)
    deployments = {name for s in subjects for name in s.deployments if name is not None}
    pods = _join(namespaces, _matcher("pod", deployments, suffix=POD_SUFFIX))
    containers = _join(pods, 'container!="",container!="POD"')
    span, resource_span = f"[{window.seconds}s]", f"[{resource_window.seconds}s]"

    received = f"inference_requests_received_total{{{services}}}"
    cpu = f"container_cpu_usage_seconds_total{{{containers}}}"
    memory = f"container_memory_working_set_bytes{{{containers}}}"
    gpu = f"DCGM_FI_DEV_GPU_UTIL{{{pods}}}"
    by_service, by_deployment = "by (namespace, service)", "by (namespace, deployment)"
    by_pod = "by (namespace, pod)"

    is_true = 'condition="true"'
    ready = f"kube_pod_status_ready{{{_join(pods, is_true)}}}"

    def of_ready_pods(per_pod: str) -> str:
        return _deployment_of(
            f"(({per_pod}) and on (namespace, pod) ({ready} == 1)) or (({per_pod}) unless on (namespace) ({ready}))"
        )

    def usage(per_pod: str, series: str) -> str:
        pods_with_data = of_ready_pods(per_pod)
        return _pair(
            f"avg {by_deployment} ({pods_with_data})",
            f"max {by_deployment} ({_deployment_of(f'timestamp({series})')})",
            f"count {by_deployment} ({pods_with_data})",
        )

    def latency(name: str, percentile: float, of: str) -> Query:
        rates = f"sum by (namespace, service, le) (rate({buckets_of(of)}{span}))"
        return Query(
            name,
            "service",
            _pair(
                f"1000 * histogram_quantile({percentile / 100:.6g}, {rates})",
                f"max {by_service} (timestamp({finished_of(of)}))",
            ),
            window,
        )

    queries = [
        Query(
            "arrival_rate",
            "pool",
            _pair(
                f"sum by (namespace, service, pool) (rate({received}{span}))",
                f"max by (namespace, service, pool) (timestamp({received}))",
            ),
            window,
        ),
        latency("p95_ms", SHOWN_PERCENTILE, services),
        Query(
            "cpu_usage",
            "deployment",
            usage(f"sum {by_pod} (rate({cpu}{resource_span}))", cpu),
            resource_window,
        ),
        Query("memory_usage", "deployment", usage(f"sum {by_pod} ({memory})", memory)),
        Query("cpu_request", "deployment", _request_per_pod(containers, "cpu")),
        Query("memory_request", "deployment", _request_per_pod(containers, "memory")),
        Query("gpu_utilization", "deployment", usage(f"avg {by_pod} ({gpu})", gpu)),
    ]
    replaced = set.intersection(*({name for q, _ in s.queries for name in REPLACES[q][1]} for s in subjects))
    queries = [query for query in queries if query.name not in replaced]
    for percentile in sorted({s.percentile for s in subjects} - {SHOWN_PERCENTILE}):
        shown = [s for s in subjects if s.percentile == percentile]
        queries.append(latency(latency_name(percentile), percentile, _services_of(shown)))
    if learning := [s for s in subjects if s.learns]:
        finished = finished_of(_services_of(learning))
        value = f"sum by (namespace, service, pool) (rate({finished}{span}))"
        time = f"max by (namespace, service, pool) (timestamp({finished}))"
        queries.append(Query("answer_rate", "pool", _pair(value, time), window))
    own = sorted({query for subject in subjects for query in subject.queries})
    return [*queries, *(Query(own_name(*query), "nothing", _pair(*_own(query[1]))) for query in own)]


def busy_pods(namespace: str, deployment: str) -> str:
    """Return the query for what each pod of a Deployment does now; the label `_` is `in_flight`, `gpu` or `cpu`."""
    pods = _join(_matcher("namespace", {namespace}), _matcher("pod", {deployment}, suffix=POD_SUFFIX))
    containers = _join(pods, 'container!="",container!="POD"')
    kinds = {
        "in_flight": f"sum by (pod) (inference_requests_in_flight{{{pods}}})",
        "gpu": f"avg by (pod) (DCGM_FI_DEV_GPU_UTIL{{{pods}}})",
        "cpu": f"sum by (pod) (rate(container_cpu_usage_seconds_total{{{containers}}}[{BUSY_SECONDS}s]))",
    }
    return _labelled(kinds)


def latency_name(percentile: float) -> str:
    """Return the name of the query for a latency percentile."""
    return "p95_ms" if percentile == SHOWN_PERCENTILE else f"p{percentile:g}_ms"


def own_name(signal: str, promql: str) -> str:
    """Return the name of a query of the policy that replaces a built-in one."""
    return f"{signal}: {promql}"


def _own(promql: str) -> tuple[str, str]:
    """Return the value and the time of a policy's own query.

    The time is that of the raw sample where the query names a series, and that of the evaluation where it computes.
    """
    return f"({promql}\n)", f"timestamp(({promql}\n))"


def _services_of(subjects: list[Subject]) -> str:
    return _join(
        _matcher("namespace", {s.namespace for s in subjects}), _matcher("service", {s.service for s in subjects})
    )


def finished_of(services: str) -> str:
    """Select the counters of answered requests."""
    return f"inference_request_duration_seconds_count{{{services}}}"


def buckets_of(services: str) -> str:
    """Select the buckets of the latency histogram."""
    return f"inference_request_duration_seconds_bucket{{{services}}}"


def _request_per_pod(containers: str, resource: str) -> str:
    requests = f'kube_pod_container_resource_requests{{{containers},resource="{resource}"}}'
    per_pod = f"sum by (namespace, pod) ({requests})"
    return _pair(
        f"avg by (namespace, deployment) ({_deployment_of(per_pod)})",
        f"max by (namespace, deployment) ({_deployment_of(f'timestamp({requests})')})",
    )


def _deployment_of(vector: str) -> str:
    return f'label_replace({vector}, "deployment", "$1", "pod", "{POD_OF_DEPLOYMENT}")'


def _pair(value: str, time: str, count: str = "") -> str:
    return _labelled({"v": value, "t": time} | ({"n": count} if count else {}))


def _labelled(vectors: Mapping[str, str]) -> str:
    """Join vectors into one; the label `_` tells them apart."""
    return " or ".join(f'label_replace({vector}, "_", "{kind}", "", "")' for kind, vector in vectors.items())


def _matcher(label: str, names: set[str], suffix: str = "") -> str:
    if len(names) > MATCHED_NAMES:
        return ""
    quoted = "|".join(name.replace(".", r"\\.") for name in sorted(names))
    if len(names) == 1 and not suffix:
        return f'{label}="{next(iter(names))}"'
    return f'{label}=~"({quoted}){suffix}"'


def _join(*matchers: str) -> str:
    return ",".join(matcher for matcher in matchers if matcher)
