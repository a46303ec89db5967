"""Nodes, pods and a cache of them, as the suggestion server sees them."""

from __future__ import annotations

from rlscaler_core.placement.types import Nodes
from rlscaler_scheduler.cache import Cache
from rlscaler_scheduler.objects import PodFacts, Resources
from rlscaler_scheduler.suggest import Suggester, Suggestion

RESOURCES = Resources("nvidia.com/gpu", "rlscaler.io/gpu-milli")


def node(name: str, cpu: str = "16", gpus: int = 0, latency: str | None = None) -> dict:
    has = {"cpu": cpu, "memory": "64Gi", "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    annotations = {"rlscaler.io/latency-ms": latency} if latency else {}
    return {"metadata": {"name": name, "annotations": annotations}, "status": {"allocatable": has}}


def pod(name: str, on: str = "", annotations: dict | None = None, owner: str = "", **requests: str) -> dict:
    asked = {key.replace("__", "/").replace("_", "."): value for key, value in (requests or {"cpu": "1"}).items()}
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": name,
            "annotations": annotations or {},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"kind": owner}] if owner else [],
        },
        "spec": {"nodeName": on, "schedulerName": "rlscaler", "containers": [{"resources": {"requests": asked}}]},
    }


def cache_of(*nodes: dict, clock=None) -> Cache:
    made = Cache(RESOURCES, 30.0, clock) if clock else Cache(RESOURCES, 30.0)
    made.set_nodes(list(nodes))
    made.set_pods([])
    return made


def look(cache: Cache, *names: str) -> tuple[list[str], Nodes]:
    """Return the known nodes of these names, sorted by name."""
    rows = cache.rows_of(names)
    known, nodes = cache.nodes_at(rows[cache.in_order(rows)])
    return known.tolist(), nodes


def suggest(suggester: Suggester, facts: PodFacts, *names: str) -> Suggestion:
    return suggester.suggest(facts, suggester.cache.rows_of(names))
