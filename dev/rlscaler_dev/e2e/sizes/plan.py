"""Deployments that are resized: each uses a known amount of CPU and memory, and has a policy with its range."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from kubernetes.utils.quantity import parse_quantity

from rlscaler_dev.cluster import objects
from rlscaler_dev.cluster.images.make import reference
from rlscaler_dev.cluster.kube import Json
from rlscaler_dev.cluster.network import NODE_NAME

NAMESPACE = "sizes"
CONTAINER = "work"
"""The container that is sized, beside one that answers for the service's metrics."""
INTERVAL_SECONDS = 10
"""The shortest, so that the twenty measurements before a size are over after little more than three minutes."""

WORK = """
import sys, time
cores, kept = float(sys.argv[1]), bytearray(int(sys.argv[2]) << 20)
for place in range(0, len(kept), 4096):
    kept[place] = 1
while True:
    begin = time.thread_time()
    while time.thread_time() - begin < cores * 0.1:
        pass
    time.sleep(0.1 * (1 - cores))
"""
"""Holds so many MiB of memory, and uses so many cores."""


@dataclass(frozen=True, slots=True)
class Case:
    """One Deployment and the policy of its pods' size."""

    name: str
    replicas: int
    requests: dict[str, str]
    limits: dict[str, str]
    cores: float
    """CPU and memory that each pod uses."""
    memory_mib: int
    resources: Json = field(default_factory=dict)
    """Ranges of the policy."""


GROWS = Case(
    "grows",
    3,
    {"cpu": "50m", "memory": "64Mi"},
    {"cpu": "200m", "memory": "128Mi"},
    0.1,
    60,
    {
        "cpu": {"min": "50m", "max": "500m", "step": "50m"},
        "memory": {"min": "64Mi", "max": "256Mi", "step": "32Mi"},
    },
)
"""Its template asks for less than the pods use."""

SHRINKS = Case(
    "shrinks",
    1,
    {"cpu": "20m", "memory": "256Mi"},
    {"memory": "256Mi"},
    0.01,
    140,
    {"memory": {"min": "64Mi", "max": "128Mi", "step": "32Mi"}},
)
"""The range ends below the memory that its pod uses."""

TOO_LARGE = Case("too-large", 1, {"cpu": "20m", "memory": "32Mi"}, {"cpu": "80m", "memory": "64Mi"}, 0.01, 8)
"""Its range begins above the node's capacity; `cases` computes where."""

WAITS = Case(
    "waits",
    1,
    {"cpu": "20m", "memory": "32Mi"},
    {"cpu": "80m", "memory": "64Mi"},
    0.01,
    8,
    {"cpu": {"min": "600m", "max": "600m"}},
)
"""The node has room for its size once `FILLER` has gone."""

FILLER = "filler"
FILLED_LEAVES_CORES = 0.5
"""Cores that are free beside the filler: enough for the growth of `GROWS`, not for that of `WAITS`."""


def cases(node: Json) -> list[Case]:
    """All of them, for a node of that size."""
    cores = math.ceil(float(parse_quantity(node["status"]["allocatable"]["cpu"])))
    too_large = {"cpu": {"min": str(cores + 1), "max": str(cores + 1)}}
    return [GROWS, SHRINKS, replace(TOO_LARGE, resources=too_large), WAITS]


def deployment(case: Case) -> Json:
    """A container that works, and one whose metrics are those of a service without traffic."""
    serve = [
        *("service", "pod", "--flavour=cpu", f"--name={case.name}", "--host=0.0.0.0", "--metrics-port=9100"),
        "--no-resource-metrics",
    ]
    work = {
        "name": CONTAINER,
        "command": ["python3", "-c", WORK, str(case.cores), str(case.memory_mib)],
        "resources": {"requests": case.requests, "limits": case.limits},
    }
    server = {
        "name": "serve",
        "args": serve,
        "env": objects.SERVICE_ENV,
        "readinessProbe": {"httpGet": {"path": "/metrics", "port": 9100}, "periodSeconds": 2, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
    }
    image = {"image": reference("rlscaler-service"), "imagePullPolicy": "Never"}
    return _deployment(case.name, case.replicas, [{**image, **work}, {**image, **server}])


def filler(cores: float) -> Json:
    """A pod that asks for so many cores and uses none."""
    container = {
        "name": "pause",
        "image": "localhost/pause:1",
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": f"{math.floor(1000 * cores)}m"}},
    }
    return _deployment(FILLER, 1, [container])


def _deployment(name: str, replicas: int, containers: list[Json]) -> Json:
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "9100"} if name != FILLER else {}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": NODE_NAME},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": containers,
    }
    return objects.deployment(name, NAMESPACE, spec, replicas=replicas, annotations=annotations)


def policy(case: Case) -> Json:
    """As many pods as there are, of the size that they turn out to need."""
    target = {
        "deployment": case.name,
        "minReplicas": case.replicas,
        "maxReplicas": case.replicas,
        "requestsPerSecond": 4,
        "coldStartSeconds": 8,
        "resources": {"mode": "InPlace", "container": CONTAINER, **case.resources},
    }
    return {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {"name": case.name, "namespace": NAMESPACE},
        "spec": {
            "mode": "Auto",
            "intervalSeconds": INTERVAL_SECONDS,
            "targets": {"cpu": target},
            "policy": {"bundled": "rule"},
            "slo": {"latencyMilliseconds": 1000},
        },
    }
