"""PromQL: one query per signal, for all policies that share a Prometheus.

Every query returns series told apart by the label `_`: `v` the value, `t` the time (unix seconds) of the newest raw
sample behind it, and for usage `n` the number of pods behind it. Without the time, an instant query answers for minutes
with what a dead exporter said last; without the number, pods whose series vanished would count as idle. For the same
reason usage is a mean over pods, and arrivals are told apart by pool.

Utilization is of ready pods, by `kube_pod_status_ready`; in namespaces where nobody exports it, of all pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

By = Literal["service", "pool", "deployment"]

MATCHED_NAMES = 200
"""Above this number of names a query selects everything and the answer is filtered: a longer URL costs more."""

POD_OF_DEPLOYMENT = "(.+)-[a-z0-9]+-[a-z0-9]{5}"
"""`<deployment>-<hash of the ReplicaSet>-<suffix>`: how the pods of a Deployment are called."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What one policy wants measured."""

    namespace: str
    service: str
    deployments: tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Query:
    """One request to Prometheus."""

    name: str
    by: By
    promql: str


def batch(subjects: Iterable[Subject], window_seconds: int, resource_window_seconds: int) -> list[Query]:
    """The queries that answer for all `subjects`; their number does not grow with the number of subjects."""
    subjects = list(subjects)
    namespaces = _matcher("namespace", {s.namespace for s in subjects})
    services = _join(namespaces, _matcher("service", {s.service for s in subjects}))
    deployments = {name for s in subjects for name in s.deployments if name is not None}
    pods = _join(namespaces, _matcher("pod", deployments, suffix="-[a-z0-9]+-[a-z0-9]{5}"))
    containers = _join(pods, 'container!="",container!="POD"')
    window, resource_window = f"[{window_seconds}s]", f"[{resource_window_seconds}s]"

    received = f"inference_requests_received_total{{{services}}}"
    buckets = f"inference_request_duration_seconds_bucket{{{services}}}"
    finished = f"inference_request_duration_seconds_count{{{services}}}"
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

    return [
        Query(
            "arrival_rate",
            "pool",
            _pair(
                f"sum by (namespace, service, pool) (rate({received}{window}))",
                f"max by (namespace, service, pool) (timestamp({received}))",
            ),
        ),
        Query(
            "p95_ms",
            "service",
            _pair(
                f"1000 * histogram_quantile(0.95, sum by (namespace, service, le) (rate({buckets}{window})))",
                f"max {by_service} (timestamp({finished}))",
            ),
        ),
        Query("cpu_usage", "deployment", usage(f"sum {by_pod} (rate({cpu}{resource_window}))", cpu)),
        Query("memory_usage", "deployment", usage(f"sum {by_pod} ({memory})", memory)),
        Query("cpu_request", "deployment", _request_per_pod(containers, "cpu")),
        Query("memory_request", "deployment", _request_per_pod(containers, "memory")),
        Query("gpu_utilization", "deployment", usage(f"avg {by_pod} ({gpu})", gpu)),
    ]


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
    kinds = {"v": value, "t": time} | ({"n": count} if count else {})
    return " or ".join(f'label_replace({vector}, "_", "{kind}", "", "")' for kind, vector in kinds.items())


def _matcher(label: str, names: set[str], suffix: str = "") -> str:
    if len(names) > MATCHED_NAMES:
        return ""
    quoted = "|".join(name.replace(".", r"\\.") for name in sorted(names))
    if len(names) == 1 and not suffix:
        return f'{label}="{next(iter(names))}"'
    return f'{label}=~"({quoted}){suffix}"'


def _join(*matchers: str) -> str:
    return ",".join(matcher for matcher in matchers if matcher)
