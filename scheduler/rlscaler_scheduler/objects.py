"""Nodes and pods of the Kubernetes API, reduced to the numbers that placement needs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from kubernetes.utils.quantity import parse_quantity

from rlscaler_core.placement.types import GPU_INDEX, MOST_GPUS, WHOLE_GPU, Pods
from rlscaler_core.placement.types import pod as one_pod

Json = Mapping[str, Any]

LATENCY = "rlscaler.io/latency-ms"
"""Annotation of a node: round trip to the users, in milliseconds."""
LATENCY_UNTIL = "rlscaler.io/latency-until"
"""Annotation of a node: the time, as RFC 3339 writes it, after which its latency is not believed any more."""
LIFETIME = "rlscaler.io/expected-lifetime-seconds"
"""Annotation of a pod: how long it is expected to run."""
GPU_MODEL = "nvidia.com/gpu.product"
"""Label of a node."""

MEBI = 2.0**20

LARGEST = 2.0**50
"""Largest quantity, a PiB. Sums of whole numbers up to it are exact, so a pod gives back exactly its requests."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INDEX = re.compile(r"\d{1,4}", re.ASCII)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


LONGEST_QUANTITY = 64
"""Characters of a quantity; a longer text takes long to read, and would be kept."""


def amount(text: str) -> float:
    """A quantity such as 250m or 4Gi, at most `LARGEST`; NaN for any other text."""
    return _amount(text) if len(text) <= LONGEST_QUANTITY else math.nan


@lru_cache(maxsize=4096)
def _amount(text: str) -> float:
    try:
        value = float(parse_quantity(text))
    except (ValueError, ArithmeticError):
        return math.nan
    return max(min(value, LARGEST), -LARGEST)


def number(text: str | None) -> float:
    """A number of an annotation, as the score plugin reads it, too; NaN where there is no finite one of 0 or more."""
    if text is None or not _NUMBER.fullmatch(text.strip()):
        return math.nan
    value = float(text)
    return value if math.isfinite(value) and value >= 0 else math.nan


class Resources(NamedTuple):
    """The names of extended resources for whole GPUs and for thousandths."""

    gpu: str
    gpu_milli: str


class NodeFacts(NamedTuple):
    """Capacity and labels of a node."""

    name: str
    uid: str
    cpu_milli: float
    memory_mib: float
    pods: float
    gpus: int
    gpu_model: str
    latency_ms: float
    latency_until: float
    """Seconds since 1970 when the latency ceases to be believed; infinite where it has no end."""
    addresses: tuple[str, ...]
    """IP addresses and host names that the API server has of it."""


class PodFacts(NamedTuple):
    """Requests and place of a pod."""

    uid: str
    namespace: str
    name: str
    node: str
    """Empty as long as it is bound to none."""
    scheduler: str
    cpu_milli: float
    memory_mib: float
    gpus: int
    gpu_milli: float
    gpu_index: int
    """-1 where the pod does not say."""
    daemon: bool
    """Whether a DaemonSet owns the pod: such a pod does not make a node used."""
    ends_at: float
    """Seconds since 1970 when it is expected to end; NaN where that is not known."""
    lifetime_s: float
    annotations: Json
    labels: Mapping[str, str]
    version: str
    """Its resourceVersion; empty where a caller does not say."""


class NamespaceFacts(NamedTuple):
    """Annotations and labels of a namespace."""

    annotations: Json
    labels: Mapping[str, str]


def node_facts(node: Json, resources: Resources) -> NodeFacts:
    """Read a Node of the API."""
    metadata, has = node["metadata"], node.get("status", {}).get("allocatable") or {}
    annotations = metadata.get("annotations") or {}
    gpus = amount(str(has.get(resources.gpu, "0")))
    milli = amount(str(has.get(resources.gpu_milli, "0")))
    return NodeFacts(
        metadata["name"],
        str(metadata.get("uid", "")),
        _milli(_or_zero(amount(str(has.get("cpu", "0"))))),
        _or_zero(amount(str(has.get("memory", "0")))) / MEBI,
        _or_zero(amount(str(has.get("pods", "0")))),
        min(int(max(_or_zero(gpus), _or_zero(milli) // WHOLE_GPU)), MOST_GPUS),
        (metadata.get("labels") or {}).get(GPU_MODEL, ""),
        number(annotations.get(LATENCY)),
        _until(annotations.get(LATENCY_UNTIL)),
        tuple(entry["address"] for entry in node.get("status", {}).get("addresses") or ()),
    )


def pod_facts(pod: Json, resources: Resources) -> PodFacts:
    """Read a Pod of the API; requests are counted as kube-scheduler does."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    requests = _requests(spec, {"cpu", "memory", *resources})
    milli = requests.get(resources.gpu_milli, 0.0)
    whole = int(min(requests.get(resources.gpu, 0.0), LARGEST))
    gpus = whole or (max(int(milli // WHOLE_GPU), 1) if milli else 0)
    lifetime = number(annotations.get(LIFETIME))
    started = _time((pod.get("status") or {}).get("startTime") or metadata.get("creationTimestamp"))
    return PodFacts(
        str(metadata.get("uid", "")),
        metadata.get("namespace", ""),
        metadata.get("name", ""),
        spec.get("nodeName") or "",
        spec.get("schedulerName", ""),
        _milli(requests.get("cpu", 0.0)),
        min(requests.get("memory", 0.0), LARGEST) / MEBI,
        gpus,
        0.0 if not gpus else (milli if 0 < milli < WHOLE_GPU and not whole else float(WHOLE_GPU)),
        int(index) if _INDEX.fullmatch(index := annotations.get(GPU_INDEX, "")) else -1,
        any(owner.get("kind") == "DaemonSet" for owner in metadata.get("ownerReferences") or ()),
        started + lifetime,
        lifetime,
        annotations,
        metadata.get("labels") or {},
        str(metadata.get("resourceVersion", "")),
    )


def namespace_facts(namespace: Json) -> NamespaceFacts:
    """Read a Namespace of the API."""
    metadata = namespace["metadata"]
    return NamespaceFacts(metadata.get("annotations") or {}, metadata.get("labels") or {})


def as_pods(facts: PodFacts, soft_ms: float = math.nan, hard_ms: float = math.nan) -> Pods:
    """One pod as arrays without leading dimensions."""
    return one_pod(
        facts.cpu_milli,
        facts.memory_mib,
        gpus=facts.gpus,
        gpu_milli=facts.gpu_milli,
        soft_ms=soft_ms,
        hard_ms=hard_ms,
        lifetime_s=facts.lifetime_s,
    )


def takes_the_same(pod: PodFacts, other: PodFacts) -> bool:
    """Whether two pods take the same of a node."""
    fields = ("cpu_milli", "memory_mib", "gpus", "gpu_milli", "gpu_index", "daemon")
    return all(getattr(pod, name) == getattr(other, name) for name in fields)


def ended(pod: Json) -> bool:
    """Whether its containers have ended for good, so that it takes nothing of its node."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _requests(spec: Json, names: set[str]) -> dict[str, float]:
    """Containers and sidecars together, or an init container with the sidecars before it where that is more.

    Only of the named resources: a pod may have thousands of others.
    """
    total = _added(spec.get("containers") or (), names)
    sidecars: dict[str, float] = {}
    peak: dict[str, float] = {}
    for container in spec.get("initContainers") or ():
        now = _added([container], names)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, now)
            now = sidecars
        else:
            now = _sum(sidecars, now)
        peak = {name: max(peak.get(name, 0.0), now.get(name, 0.0)) for name in {*peak, *now}}
    total = _sum(total, sidecars)
    total = {name: max(total.get(name, 0.0), peak.get(name, 0.0)) for name in {*total, *peak}}
    # What the pod asks for as a whole takes the place of what its containers ask for.
    of_pod = _added([spec], names)
    total |= {name: value for name, value in of_pod.items() if name in ("cpu", "memory")}
    overhead = {
        name: _or_zero(amount(str(value))) for name, value in (spec.get("overhead") or {}).items() if name in names
    }
    return _sum(total, overhead)


def _added(containers: Iterable[Json], names: set[str]) -> dict[str, float]:
    """Requests of all that have `resources`: containers, or a pod that has them as a whole."""
    total: dict[str, float] = {}
    for container in containers:
        for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
            if name in names:
                total[name] = total.get(name, 0.0) + _or_zero(amount(str(value)))
    return total


def _sum(first: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) + other.get(name, 0.0) for name in {*first, *other}}


def _milli(cores: float) -> float:
    """Whole millicores, rounded up as Kubernetes does."""
    return float(math.ceil(round(min(cores * 1000.0, LARGEST), 6)))


def _until(text: str | None) -> float:
    """The time of an expiry: never without one, and long ago for one that is no time of RFC 3339 with its zone."""
    if text is None:
        return math.inf
    try:
        return _time(text) if _RFC3339.fullmatch(text) else -math.inf
    except (ValueError, OverflowError):
        return -math.inf


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _time(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else math.nan
