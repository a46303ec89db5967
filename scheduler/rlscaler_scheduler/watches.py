"""The watches of the server: nodes, pods, namespaces and NodeScoringPolicies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kubernetes.aio import client

from rlscaler_core.api.base import GROUP, VERSION
from rlscaler_core.api.node_scoring import NODE_SCORING_PLURAL
from rlscaler_loadgen.service.watch import Follower, Object
from rlscaler_scheduler.cache import Cache
from rlscaler_scheduler.suggest import Suggester

log = logging.getLogger("rlscaler.scheduler")

ABSENT_SECONDS = 30.0
"""Pause between two looks for a kind that the cluster does not have, or that the server may not list."""


def followers(api: client.ApiClient, cache: Cache, suggester: Suggester) -> list[Follower]:
    """All of them; each runs until it is cancelled."""

    async def everything() -> dict[str, Any]:
        return {}

    core = client.CoreV1Api(api)
    pods = core.list_pod_for_all_namespaces_without_preload_content
    namespaces = core.list_namespace_without_preload_content
    scoring = partial(
        client.CustomObjectsApi(api).list_cluster_custom_object_without_preload_content,
        group=GROUP,
        version=VERSION,
        plural=NODE_SCORING_PLURAL,
    )
    held = suggester.scoring_policies
    return [
        Follower("nodes", core.list_node_without_preload_content, everything, cache.set_nodes, cache.change_node),
        Follower("pods", pods, everything, cache.set_pods, cache.change_pod),
        Follower(
            "namespaces",
            namespaces,
            partial(_until_listed, "annotations and labels of namespaces", namespaces, suggester.set_namespaces),
            suggester.set_namespaces,
            suggester.change_namespace,
        ),
        Follower(
            NODE_SCORING_PLURAL,
            scoring,
            partial(_until_listed, "NodeScoringPolicies", scoring, held.set),
            held.set,
            held.change,
        ),
    ]


async def _until_listed(
    what: str, call: Callable[..., Awaitable[Any]], take: Callable[[list[Object]], None]
) -> dict[str, Any]:
    """Wait until an optional kind can be listed; until then it has no objects. The reason is logged once."""
    logged = False
    while (status := await _status(call)) in (403, 404):
        if not logged:
            why = "the cluster does not have them" if status == 404 else "this account may not list them"
            log.log(logging.INFO if status == 404 else logging.WARNING, "no %s act: %s", what, why)
        logged = True
        take([])
        await asyncio.sleep(ABSENT_SECONDS)
    return {}


async def _status(call: Callable[..., Awaitable[Any]]) -> int:
    async with await call(limit=1) as response:
        return int(response.status)
