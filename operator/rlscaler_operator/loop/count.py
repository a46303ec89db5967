"""The amount of a budget that is counted on nodes: their units of its resource, less those that other pods hold."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator

from rlscaler_operator.cluster.bodies import OVER, Key, is_ready, quantity, request_of
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kube import Json, Kube, listed
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.state.budgets import Budget, Budgets, Counted
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.count")

COUNT_SECONDS = 15.0
"""Longest time until a node that comes or goes is noticed. It costs one request for the nodes and one for the pods of
each of them."""


class NodeCounter:
    """Counts again and again for the budgets that this process shares. What it found out is in them."""

    def __init__(
        self,
        kube: Kube,
        cache: WatchCache,
        registry: Registry,
        budgets: Budgets,
        shares: Callable[[Budget], bool],
        changed: Callable[[Budget], object],
    ) -> None:
        """`shares` says whether this process shares a budget, and so counts for it.

        `changed` is called with a budget of which something else was counted than before.
        """
        self._kube, self._cache, self._registry, self._budgets = kube, cache, registry, budgets
        self._shares, self._changed = shares, changed
        self._due = asyncio.Event()

    def hurry(self) -> None:
        """Count soon."""
        self._due.set()

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            self._due.clear()
            await self.count_all()
            try:
                async with asyncio.timeout(COUNT_SECONDS):
                    await self._due.wait()
            except TimeoutError:
                continue

    async def count_all(self) -> None:
        """Count for every budget once. What cannot be counted now keeps its last count."""
        for budget in self._budgets:
            if budget.spec is None or budget.spec.amount_from is None or not self._shares(budget):
                continue
            before = budget.amount, budget.uncounted
            try:
                budget.counted, budget.uncounted = await self.count(budget), ""
            except (OperatorError, TimeoutError) as error:
                budget.uncounted = f"{error or 'the API server did not answer in time'}"
            if (budget.amount, budget.uncounted) != before:
                log.info("RLScalingBudget %s: %s units; %s", budget.name, budget.amount, budget.uncounted or "counted")
                self._changed(budget)

    async def count(self, budget: Budget) -> Counted:
        """Count for one budget.

        Raises OperatorError where nodes or pods cannot be read, or where no node has the resource: a label with a slip
        in it is not to take everything away.
        """
        assert budget.spec is not None
        assert budget.spec.amount_from is not None
        labels, resource = budget.spec.amount_from.nodes.match_labels, budget.spec.resource
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        nodes = [body async for body in listed(self._kube, (), "v1", "nodes", selectors={"labelSelector": selector})]
        having = [node for node in nodes if has(node, resource)]
        if not having:
            what = f"has {resource}" if nodes else f"has the labels {selector}"
            raise OperatorError(
                f"no node {what}: change spec.resource or spec.amountFrom.nodes.matchLabels, or add nodes"
            )
        ours = set(self._targets(budget))
        units = [await self._of_node(node, resource, ours) for node in having]
        return Counted(sum(units), len([node for node in having if is_there(node)]), time.time())

    async def _of_node(self, node: Json, resource: str, ours: Collection[Key]) -> float:
        """What members of the budget hold and may get on a node."""
        if not is_there(node):
            return 0.0
        # Version 0 is answered from the API server's memory, by its index of nodes, and not by reading all pods.
        at_node = {"fieldSelector": f"spec.nodeName={node['metadata']['name']}", "resourceVersion": "0"}
        pods = [body async for body in listed(self._kube, (), "v1", "pods", selectors=at_node)]
        members = sum(requested(pod, resource) for pod in pods if self._cache.target_of_pod(pod) in ours)
        if (node.get("spec") or {}).get("unschedulable"):
            return members
        total = sum(requested(pod, resource) for pod in pods)
        return max(0.0, quantity(node["status"]["allocatable"][resource]) - (total - members))

    def _targets(self, budget: Budget) -> Iterator[Key]:
        """The targets of all policies that the budget selects."""
        for key in self._budgets.selected(budget):
            policy = self._registry.get(key)
            if policy is not None and policy.observed.facts is not None:
                yield from (target for _, target in policy.observed.facts.targets)


def has(node: Json, resource: str) -> bool:
    """Say whether a node has any of a resource for pods."""
    return quantity(((node.get("status") or {}).get("allocatable") or {}).get(resource)) > 0


def is_there(node: Json) -> bool:
    """Say whether a node is not being deleted and its kubelet reports."""
    return is_ready(node) and "deletionTimestamp" not in node["metadata"]


def requested(pod: Json, resource: str) -> float:
    """Give how much of a resource a pod holds of its node: what its containers ask for, or more while it starts."""
    if (pod.get("status") or {}).get("phase") in OVER:
        return 0.0
    spec = pod.get("spec") or {}
    running = sum(request_of(container, resource) for container in spec.get("containers") or ())
    return max([running, *(request_of(container, resource) for container in spec.get("initContainers") or ())])
