"""Amounts of a budget that are counted on nodes: their units of its resources, less those that other pods hold."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from rlscaler_core.api.budget import NodeSelection, Resource
from rlscaler_operator.cluster.bodies import OVER, Key, is_ready, quantity, requests_of
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kube import Json, Kube, listed
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.state.budgets import Budget, BudgetRegistry, NodeCount
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.count")

COUNT_SECONDS = 15.0
"""Longest time until a node that comes or goes is noticed. It costs one request for the nodes and one for the pods of
each of them."""


class NodeCounter:
    """Counts again and again for the budgets that this process owns. The counts are in the budgets."""

    def __init__(
        self,
        kube: Kube,
        cache: WatchCache,
        registry: Registry,
        budgets: BudgetRegistry,
        shares: Callable[[Budget], bool],
        changed: Callable[[Budget], object],
    ) -> None:
        """`shares` returns whether this process owns a budget, and so counts for it.

        `changed` is called with a budget whose counts have changed.
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
        """Count for every budget once. A resource that cannot be counted now keeps its last count."""
        for budget in self._budgets:
            if budget.spec is None or not self._shares(budget):
                continue
            for nodes, resources in _by_nodes(budget.spec.shared):
                await self._count(budget, nodes, resources)

    async def _count(self, budget: Budget, nodes: NodeSelection, resources: Sequence[str]) -> None:
        """Count some resources of a budget on the nodes that they are counted on."""
        before = budget.amounts, dict(budget.count_errors)
        try:
            counts = await self.count(budget, nodes, resources)
        except (OperatorError, TimeoutError) as error:
            counts = dict.fromkeys(resources, f"{error or 'the API server did not answer in time'}")
        except Exception as error:
            log.exception("RLScalingBudget %s: its nodes cannot be counted", budget.name)
            counts = dict.fromkeys(resources, f"a node or pod cannot be read: {error!r}; correct the object")
        for name, counted in counts.items():
            budget.count_errors.pop(name, None)
            if isinstance(counted, str):
                budget.count_errors[name] = counted
            else:
                budget.counts[name] = counted
        if (budget.amounts, budget.count_errors) != before:
            for name in resources:
                units, why = budget.counts.get(name), budget.count_errors.get(name, "counted")
                log.info("RLScalingBudget %s: %s units of %s; %s", budget.name, units and units.units, name, why)
            self._changed(budget)

    async def count(
        self, budget: Budget, selection: NodeSelection, resources: Sequence[str]
    ) -> dict[str, NodeCount | str]:
        """Return the counts of `resources` for one budget; for a resource that no node has, why it cannot be counted.

        A label with a slip in it is not to take everything away. Raises OperatorError where nodes or pods cannot be
        read.
        """
        selector = ",".join(f"{name}={value}" for name, value in selection.match_labels.items())
        nodes = [body async for body in listed(self._kube, (), "v1", "nodes", selectors={"labelSelector": selector})]
        having = [node for node in nodes if any(has(node, name) for name in resources)]
        ours = set(self._targets(budget))
        units = [await self._of_node(node, resources, ours) for node in having]
        counts: dict[str, NodeCount | str] = {}
        for number, name in enumerate(resources):
            nodes_of = [node for node in having if has(node, name)]
            if nodes_of:
                there = len([node for node in nodes_of if is_there(node)])
                counts[name] = NodeCount(sum(each[number] for each in units), there, time.time())
                continue
            what = f"has {name}" if nodes else f"has the labels {selector}"
            counts[name] = f"no node {what}: change the resource's name or amountFrom.nodes.matchLabels, or add nodes"
        return counts

    async def _of_node(self, node: Json, resources: Sequence[str], ours: Collection[Key]) -> list[float]:
        """Return the units of each resource that members of the budget hold, or may get, on a node."""
        if not is_there(node):
            return [0.0] * len(resources)
        # Version 0 is answered from the API server's memory, by its index of nodes, and not by reading all pods.
        at_node = {"fieldSelector": f"spec.nodeName={node['metadata']['name']}", "resourceVersion": "0"}
        pods = [body async for body in listed(self._kube, (), "v1", "pods", selectors=at_node)]
        return [self._of_resource(node, name, pods, ours) for name in resources]

    def _of_resource(self, node: Json, resource: str, pods: Sequence[Json], ours: Collection[Key]) -> float:
        members = sum(requested(pod, resource) for pod in pods if self._cache.target_of_pod(pod) in ours)
        # A cordoned node takes no new pods: only the units that members hold there count.
        if (node.get("spec") or {}).get("unschedulable"):
            return members
        total = sum(requested(pod, resource) for pod in pods)
        allocatable = (node["status"].get("allocatable") or {}).get(resource)
        # Units that other pods hold are not the budget's to share.
        return max(0.0, quantity(allocatable) - (total - members))

    def _targets(self, budget: Budget) -> Iterator[Key]:
        """The targets of all policies that the budget selects, or that have not given back its units."""
        for key in self._budgets.policies_of(budget).keys() | budget.incumbents.keys():
            policy = self._registry.get(key)
            if policy is not None and policy.observed.facts is not None:
                yield from (target for _, target in policy.observed.facts.targets)


def has(node: Json, resource: str) -> bool:
    """Return whether a node has any of a resource for pods."""
    return quantity(((node.get("status") or {}).get("allocatable") or {}).get(resource)) > 0


def is_there(node: Json) -> bool:
    """Return whether a node is not being deleted and its kubelet reports."""
    return is_ready(node) and "deletionTimestamp" not in node["metadata"]


def requested(pod: Json, resource: str) -> float:
    """Return the units of a resource that a pod holds of its node."""
    if (pod.get("status") or {}).get("phase") in OVER:
        return 0.0
    return requests_of(pod.get("spec") or {}).get(resource, 0.0)


def _by_nodes(resources: Sequence[Resource]) -> Iterator[tuple[NodeSelection, list[str]]]:
    """Yield the resources that are counted, together those that are counted on the same nodes."""
    groups: list[tuple[NodeSelection, list[str]]] = []
    for resource in resources:
        if resource.amount_from is None:
            continue
        names = next((names for nodes, names in groups if nodes == resource.amount_from.nodes), None)
        if names is None:
            groups.append((resource.amount_from.nodes, [resource.name]))
        else:
            names.append(resource.name)
    yield from groups
