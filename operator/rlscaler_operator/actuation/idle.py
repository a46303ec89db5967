"""Marks the pods that go when a pool shrinks, by the annotation that ReplicaSets sort by.

Without it a ReplicaSet takes the youngest pods, however busy. The pods are marked right before the replicas are
written, as the Kubernetes documentation advises, and marks of an earlier shrinking that spared a pod are taken back.
Marking is a courtesy: where it fails, the pool shrinks all the same.

Idle pods go first, then pods that empty a node, then pods that empty a GPU. A pod that works twice as much as another
stays longer wherever it runs, so that nothing in flight is lost for a node. Among pods that work about as much, whole
nodes are emptied, those with the fewest pods first: that empties the most nodes. Any further choice empties shared GPUs
in the same way, and then takes from the node that lacks the fewest pods, so that a later choice, of this Deployment or
of another one, empties it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import DELETION_COST, IDLE, WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.holders import UNKNOWN, Holders, Places
from rlscaler_operator.cluster.kinds import is_other
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.exceptions import KubeError, MetricsError
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.pod_names import told_apart
from rlscaler_operator.sensing.queries import busy_pods
from rlscaler_operator.state.policy import Policy

IDLE_BELOW = {"in_flight": 1.0, "gpu": 5.0, "cpu": 0.1}
"""Signals of a busy pod, the best first: requests, percent of a GPU, cores. Below these values a pod is idle."""

UNSEEN = True, math.inf
"""The last place in the order: a pod whose node has unknown other holders."""

Work = tuple[float, ...]
"""The work of a pod, a number for each signal of `IDLE_BELOW`; infinite where unknown."""


def work_of(pods: Iterable[Key], series: Iterable[Mapping[str, Any]]) -> dict[Key, Work]:
    """Return the work of each pod by Prometheus's answer to `busy_pods`; pods without an answer are left out."""
    values: dict[Key, dict[str, float]] = defaultdict(dict)
    for sample in series:
        labels, value = sample.get("metric", {}), float(sample.get("value", (0, "nan"))[1])
        if not math.isnan(value):
            values[labels.get("namespace", ""), labels.get("pod", "")][labels.get("_", "")] = value
    return {pod: tuple(values[pod].get(name, math.inf) for name in IDLE_BELOW) for pod in pods if pod in values}


def first_to_go(work: Mapping[Key, Work], number: int, places: Places = UNKNOWN) -> set[Key]:
    """Return the `number` pods of a Deployment that should go, or all of `work` where it has fewer.

    `places` are the nodes and GPUs that they hold, each with all of its holders, other pods included.
    """
    gone: set[Key] = set()
    for equals in _by_work(work):
        room = number - len(gone)
        if room >= len(equals):
            gone |= equals
        elif room > 0:
            gone |= _among_equals({pod: work[pod] for pod in equals}, room, gone, places)
    return gone


def _by_work(work: Mapping[Key, Work]) -> Iterator[set[Key]]:
    """Yield the pods that work about as much as each other, the idlest first."""
    grades: dict[float, set[Key]] = defaultdict(set)
    for pod, grade in _grades(work).items():
        grades[grade].add(pod)
    yield from (grades[grade] for grade in sorted(grades))


def _grades(work: Mapping[Key, Work]) -> dict[Key, float]:
    """Grade each pod by the best signal that is known of any: 0 for idle, and one more for each doubling above it."""
    # Doublings, because an exact order leaves nothing for nodes to decide, and a tolerance between pairs is no order
    # (a equals b, b equals c, and a is less than c).
    for index, idle in enumerate(IDLE_BELOW.values()):
        amounts = {pod: done[index] for pod, done in work.items()}
        if not all(map(math.isinf, amounts.values())):
            return {pod: _doublings(amount, idle) for pod, amount in amounts.items()}
    return dict.fromkeys(work, 0.0)


def _doublings(amount: float, idle: float) -> float:
    if math.isinf(amount):
        return math.inf
    return 0.0 if amount < idle else 1.0 + math.floor(math.log2(amount / idle))


def _among_equals(work: Mapping[Key, Work], room: int, gone: set[Key], places: Places) -> set[Key]:
    """Choose `room` of the pods in `work`, after `gone` have been chosen from others."""
    chosen: set[Key] = set()
    for kind in places:
        for holders in _closing(work, kind, gone | chosen):
            if len(holders) <= room - len(chosen):
                chosen |= holders
    lacking = _lacking(work, places.nodes, gone | chosen)
    order = sorted(work.keys() - chosen, key=lambda pod: (lacking.get(pod, UNSEEN), work[pod], pod))
    return chosen | set(order[: room - len(chosen)])


def _lacking(work: Mapping[Key, Work], nodes: Sequence[Holders], gone: set[Key]) -> dict[Key, tuple[bool, float]]:
    """Return for each pod whether others hold its node too, and how many pods the node lacks to be empty."""
    left = (holders - gone for holders in nodes)
    return {pod: (not holders <= work.keys(), len(holders)) for holders in left for pod in holders}


def _closing(work: Mapping[Key, Work], kind: Sequence[Holders], gone: set[Key]) -> list[Holders]:
    """Return who still holds each place that pods in `work` alone can empty, the fewest and the idlest first."""
    left = (holders - gone for holders in kind)
    closing = [holders for holders in left if holders and holders <= work.keys()]
    return sorted(closing, key=lambda holders: (len(holders), max(work[pod] for pod in holders), sorted(holders)))


log = logging.getLogger("rlscaler.idle")

ASK_SECONDS = 2.0
"""Longest wait for Prometheus: shrinking is in no hurry, but the tick has others to serve."""

Ask = Callable[[Policy, Callable[[Labels], str]], Awaitable[list[dict[str, Any]]]]


class IdlePods:
    """Marks pods for deletion."""

    def __init__(
        self,
        kube: Kube,
        limiter: ConcurrencyLimiter,
        cache: WatchCache,
        ask: Ask,
        timeout_seconds: float,
    ) -> None:
        """`ask` sends PromQL for the labels there to a policy's Prometheus; raises MetricsError."""
        self._kube, self._limiter, self._cache, self._ask = kube, limiter, cache, ask
        self._timeout = timeout_seconds

    async def mark(self, policy: Policy, deployment: str, fewer: int) -> None:
        """Mark the `fewer` pods of a Deployment that should go first; other kinds go by other rules.

        None is marked where their work is unknown. Never raises for an answer of a server.
        """
        key = (policy.key[0], deployment)
        pods = self._cache.pods.get(key, {})
        if not 0 < fewer < len(pods) or is_other(deployment) or not told_apart(deployment):
            return
        try:
            async with asyncio.timeout(ASK_SECONDS):
                series = await self._ask(
                    policy, lambda labels: busy_pods(deployment, labels, policy.subject.preset, policy.key[0])
                )
        except (MetricsError, TimeoutError) as error:
            log.warning("%s/%s: idle pods are not known: %s", *key, str(error) or "Prometheus takes too long")
            return
        work = work_of([(key[0], name) for name in pods], series)
        holders = self._cache.holders
        going = first_to_go(work, fewer, holders.of(work) if holders is not None else UNKNOWN)
        chosen = {name for _, name in going}
        # Only changed marks are written; a spared pod loses its mark.
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
