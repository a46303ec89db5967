"""PromQL vectors of the pods of Deployments, and of objects of other kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rlscaler_operator.sensing.labels import Labels, narrowed
from rlscaler_operator.sensing.pod_names import begin_of_pods, deployment_of, literally, pods_of
from rlscaler_operator.sensing.presets.table import Utilization

Vector = Callable[[str], str]
"""Function that returns the PromQL for a selector."""

MATCHED_NAMES = 500
"""Number of names above which a query selects all series of its namespaces: a longer pattern costs more."""

WHOLE_NAMES = 20
"""Number of names up to which the pattern of a selector has their whole pods."""

GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
READY = 'kube_pod_status_ready{condition="true"}'

FULL_SHARE = 0.1
"""Share of waiting requests above which a replica is full; below it they may be a batch in the making."""

_GPUS = ("gpu", "UUID", "GPU_I_ID")
"""Labels of dcgm-exporter for the GPUs and the parts of GPUs of one pod."""


class Pods(NamedTuple):
    """Pods of some Deployments, and of some objects of other kinds."""

    deployments: frozenset[str]
    labels: Labels
    others: frozenset[str] = frozenset()
    container: str = ""
    """Name of the only container that counts; empty = all containers of a pod."""
    namespaces: frozenset[str] = frozenset()
    """Namespaces of the pods; none = all."""

    def usage(self, metric: str, vector: Vector) -> dict[str, str]:
        """Return value, time and number of pods of a metric of containers, as a mean over the ready pods."""
        return self._mean(self.of_containers(metric, vector), metric, container=True)

    def gpu_utilization(self) -> dict[str, str]:
        """Return value, time and number of pods of the utilization of GPUs, as a mean over the ready pods."""
        return self._mean(self.of_gpus(), GPU_UTIL)

    def request(self, resource: str, usage: str) -> dict[str, str]:
        """Return value and time of a pod's request of a resource, as a mean over the pods.

        It covers the containers that run, native sidecars included, as their `usage` does; NaN where one of them has a
        usage and no request.
        """
        metric, same = (
            f'kube_pod_container_resource_requests{{resource="{resource}"}}',
            "on (namespace, pod, container)",
        )
        requests, at_start = self._each(metric), self._each(metric.replace("_container_", "_init_container_"))
        # The usage of an init container that has ended stays in Prometheus for minutes, and a pod's usage may come
        # before its requests do.
        ended = self._each("kube_pod_init_container_status_terminated")
        running = f"({self._each(usage)} unless {same} ({ended} == 1))"
        known = f"({requests} or ({at_start} and {same} {running}) or NaN * {running})"
        per_pod = f"(sum by (namespace, pod) ({known}) and on (namespace, pod) {requests})"
        value = f"avg by (namespace, deployment) ({self._of_deployments(per_pod)})"
        return {"v": value, "t": self._newest(metric, container=True)}

    def most(self, metric: str, vector: Vector) -> dict[str, str]:
        """Return value, time and number of pods of a metric of containers, as the maximum over the pods."""
        # Pods that are not ready count: they need their usage to start.
        pods, by = self._of_deployments(self.of_containers(metric, vector)), "by (namespace, deployment)"
        return {"v": f"max {by} ({pods})", "t": self._newest(metric, container=True), "n": f"count {by} ({pods})"}

    def of_containers(self, metric: str, vector: Vector) -> str:
        """Return the sum over the containers of each pod. A container that is scraped several times counts once."""
        union = self._by(metric, vector, ("pod", "container"), ("cpu",))
        return f"sum by (namespace, pod) (max by (namespace, pod, container, cpu) ({union}))"

    def _each(self, metric: str) -> str:
        """Return a metric of each container."""
        return f"max by (namespace, pod, container) ({self._by(metric, str, ('pod', 'container'))})"

    def of_gpus(self) -> str:
        """Return the mean over the GPUs of each pod."""
        union = self._by(GPU_UTIL, str, ("pod",), _GPUS)
        return f"avg by (namespace, pod) (max by (namespace, pod, {', '.join(_GPUS)}) ({union}))"

    def plain(self, metric: str) -> str:
        """Return the sum of a metric of each pod."""
        unions = " or ".join(self._by(name, self.labels.once, ("pod",), fold="sum") for name in alternatives(metric))
        return f"sum by (namespace, pod) ({unions})"

    def total(self, metric: str, vector: Vector, fold: str, keep: tuple[str, ...] = ()) -> str:
        """Return a vector by namespace, Deployment and `keep`."""
        union = self._of_deployments(self._by(metric, vector, ("pod",), keep, fold))
        return f"{fold} by ({', '.join(('namespace', 'deployment', *keep))}) ({union})"

    def utilization(self, gauge: Utilization, in_flight: tuple[str, ...], waiting: tuple[str, ...]) -> dict[str, str]:
        """Return value, time and number of pods of a utilization exported by servers, as a mean over the ready pods."""
        names = alternatives(gauge.metric)
        union = " or ".join(f"avg by (namespace, pod) ({self._by(name, str, ('pod',), (), 'avg')})" for name in names)
        per_pod = f"({gauge.percent:g} * ({union}))"
        if gauge.full_when_waiting:
            # A pod with many waiting requests counts as 100 %, whatever its gauge shows.
            busy = added([self.plain(name) for name in (*in_flight, *waiting)], "namespace, pod")
            full = f"({added([self.plain(name) for name in waiting], 'namespace, pod')} > {FULL_SHARE} * {busy})"
            by_pod = "on (namespace, pod)"
            per_pod = f"(({per_pod} unless {by_pod} {full}) or (0 * {per_pod} + 100 and {by_pod} {full}))"
        return self._mean(per_pod, *names)

    def _mean(self, per_pod: str, *metrics: str, container: bool = False) -> dict[str, str]:
        """Return mean, time and number over the ready pods, and over all pods in namespaces without `READY`."""
        ready = f"max by (namespace, pod) ({self._by(READY, str, ('pod',))})"
        counted = f"({per_pod} and on (namespace, pod) ({ready} == 1)) or ({per_pod} unless on (namespace) {ready})"
        pods = self._of_deployments(counted)
        by_deployment = "by (namespace, deployment)"
        newest = " or ".join(self._newest(metric, container) for metric in metrics)
        vectors = {"v": f"avg {by_deployment} ({pods})", "t": newest, "n": f"count {by_deployment} ({pods})"}
        if clusters := self.labels.clusters:
            union = " or ".join(self._by(metric, str, ("pod",), clusters, "group", container) for metric in metrics)
            vectors["c"] = several(self._of_deployments(union), ("namespace", "deployment"), clusters)
        return vectors

    def _newest(self, metric: str, container: bool = False) -> str:
        """Return the time of the newest sample of each Deployment's pods."""
        union = self._by(metric, timestamp, ("pod",), container=container)
        return f"max by (namespace, deployment) ({self._of_deployments(union)})"

    def _by(
        self,
        metric: str,
        vector: Vector,
        own: tuple[str, ...],
        keep: tuple[str, ...] = (),
        fold: str = "max",
        container: bool = False,
    ) -> str:
        containers = container or "container" in own
        namespaces = self.namespaces if len(self.namespaces) <= MATCHED_NAMES else frozenset()
        return self.labels.by(
            own, lambda prefix: self._selector(metric, prefix, containers), vector, fold, keep, namespaces
        )

    def _selector(self, metric: str, prefix: str, container: bool = False) -> str:
        names = (*self.deployments, *self.others) if self._few else ()
        # Many names are matched by their begins first, in a few comparisons, and as a whole for what these select.
        pattern = begin_of_pods(names) if len(names) > WHOLE_NAMES else pods_of(self.deployments, self.others)
        pattern = f"({pattern})" if names else ""
        named = f'{prefix}container="{self.container}"' if self.container else ""
        of = named or f'{prefix}container!="",{prefix}container!="POD"' if container else ""
        return narrowed(metric, matcher(f"{prefix}pod", pattern, bool(prefix)), of)

    def _of_deployments(self, vector: str) -> str:
        return deployment_of(vector, self.deployments, self.others, exactly=self._few)

    @property
    def _few(self) -> bool:
        return 0 < len(self.deployments) + len(self.others) <= MATCHED_NAMES


def several(vector: str, by: Sequence[str], labels: Sequence[str]) -> str:
    """Return the groups of a vector in which several values of some labels exist."""
    return f"count by ({', '.join(by)}) (group by ({', '.join((*by, *labels))}) ({vector})) > 1"


def timestamp(selector: str) -> str:
    """Return the time of the newest raw sample of each series of a selector."""
    return f"timestamp({selector})"


def labelled(vectors: Mapping[str, str]) -> str:
    """Return several vectors as one, with the key of each in the label `_`."""
    return " or ".join(f'label_replace({vector}, "_", "{kind}", "", "")' for kind, vector in vectors.items())


def alternatives(metric: str) -> list[str]:
    """Return the names of a metric in different versions of a server; the first existing one counts."""
    return metric.split(" or ")


def added(vectors: Sequence[str], by: str) -> str:
    """Return the sum of vectors, by labels that all of them have; a missing element counts as 0."""
    if len(vectors) == 1:
        return vectors[0]
    apart = " or ".join(f'label_replace({vector}, "_c", "{i}", "", "")' for i, vector in enumerate(vectors))
    return f"sum by ({by}) ({apart})"


def pattern_of(names: set[str]) -> str:
    """Return the pattern of some names; empty where there are too many."""
    return f"({'|'.join(map(literally, sorted(names)))})" if 0 < len(names) <= MATCHED_NAMES else ""


def matcher(label: str, pattern: str, needed: bool) -> str:
    """Return a matcher of a label; without a pattern it matches all series that have the label, where `needed`."""
    if pattern:
        return f'{label}=~"{pattern}"'
    return f'{label}!=""' if needed else ""
