"""Marks the pods that go when a pool shrinks, by the annotation that ReplicaSets sort by.

Without it a ReplicaSet takes the youngest pods, however busy. The pods are marked right before the replicas are
written, as the Kubernetes documentation advises, and marks of an earlier shrinking that spared a pod are taken back.
Marking is a courtesy: where it fails, the pool shrinks all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from rlscaler_operator.actuation.leaving import first_to_go, work_of
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import DELETION_COST, IDLE, WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.holders import UNKNOWN
from rlscaler_operator.cluster.kinds import is_other
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.exceptions import KubeError, MetricsError
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.pod_names import told_apart
from rlscaler_operator.sensing.queries import DEFAULT_LABELS, busy_pods
from rlscaler_operator.state.policy import Policy

log = logging.getLogger("rlscaler.idle")

ASK_SECONDS = 2.0
"""Longest wait for Prometheus: shrinking is in no hurry, but the tick has others to serve."""

Ask = Callable[[Policy, str], Awaitable[list[dict[str, Any]]]]


class IdlePods:
    """Marks pods for deletion."""

    def __init__(
        self,
        kube: Kube,
        limiter: ConcurrencyLimiter,
        cache: WatchCache,
        ask: Ask,
        timeout_seconds: float,
        labels: Labels = DEFAULT_LABELS,
    ) -> None:
        """`ask` sends PromQL to a policy's Prometheus; raises MetricsError."""
        self._labels = labels
        self._kube, self._limiter, self._cache, self._ask = kube, limiter, cache, ask
        self._timeout = timeout_seconds

    async def mark(self, policy: Policy, deployment: str, fewer: int) -> None:
        """Mark the `fewer` pods of a Deployment that should go first; other kinds go by other rules.

        None is marked where nothing is known of what they do. Never raises for what a server answers.
        """
        key = (policy.key[0], deployment)
        pods = self._cache.pods.get(key, {})
        if not 0 < fewer < len(pods) or is_other(deployment) or not told_apart(deployment):
            return
        try:
            async with asyncio.timeout(ASK_SECONDS):
                series = await self._ask(policy, busy_pods(deployment, self._labels, policy.subject.preset))
        except (MetricsError, TimeoutError) as error:
            log.warning("%s/%s: idle pods are not known: %s", *key, str(error) or "Prometheus takes too long")
            return
        work = work_of([(key[0], name) for name in pods], series)
        holders = self._cache.holders
        going = first_to_go(work, fewer, holders.of(work) if holders is not None else UNKNOWN)
        chosen = {name for _, name in going}
        changes = {name: name in chosen for name, marked in pods.items() if marked != (name in chosen)}
        await asyncio.gather(*(self._write(key, name, marked) for name, marked in changes.items()))

    async def _write(self, key: Key, pod: str, marked: bool) -> None:
        body = {"metadata": {"annotations": {DELETION_COST: IDLE if marked else None}}}
        path = object_path("v1", "pods", key[0], pod)
        try:
            async with self._limiter.slot(Priority.SCALE):
                await self._kube.patch(path, body, timeout_seconds=self._timeout)
        except KubeError as error:
            if error.status != 404:
                hint = "; bind rbac-optional.yaml, or leave --pod-deletion-cost out" if error.status == 403 else ""
                log.warning("Pod %s/%s was not marked: %s%s", key[0], pod, error, hint)
            return
        if pod in self._cache.pods.get(key, {}):
            self._cache.pods[key][pod] = marked
