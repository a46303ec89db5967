"""From a pod and the nodes that it may go to, to their order: by override, by network, or by the policy's rule."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.api.node_scoring import NODE_SCORING_KIND
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.mask import near_enough
from rlscaler_core.placement.policies import DEFAULT_RULE, Policy, by_rule, levels, ranked
from rlscaler_core.placement.rules import used_share
from rlscaler_core.placement.types import WHOLE_GPU, Float, Int, Nodes, Pods
from rlscaler_scheduler.annotations import Wishes, wishes
from rlscaler_scheduler.breaker import FAULTS, Breaker
from rlscaler_scheduler.cache import Cache
from rlscaler_scheduler.node_metrics import NodeMetrics
from rlscaler_scheduler.objects import Json, NamespaceFacts, PodFacts, as_pods, namespace_facts
from rlscaler_scheduler.overrides import Overrides
from rlscaler_scheduler.scoring_policies import ScoringPolicies
from rlscaler_scheduler.settings import Settings

log = logging.getLogger("rlscaler.scheduler")

SHOWN = 5
"""Nodes of a suggestion that are shown with their scores."""


UNKNOWN_NAMESPACE = NamespaceFacts({}, {})

Names = NDArray[np.object_]
"""Names of nodes."""


class Counted(NamedTuple):
    """Pods and requests on N nodes as kube-scheduler counts them."""

    cpu_milli: Float
    memory_mib: Float
    pods: Float
    """Those of DaemonSets included."""

    def over(self, nodes: Nodes, positions: Int, daemons: Float) -> Nodes:
        """The nodes (K,), which are those at `positions`, with this count in place of the cache's."""
        pods = np.maximum(self.pods[positions] - daemons, 0.0)
        # Only the cache knows when a node will be empty, and only for pods that it has seen.
        known = np.where(nodes.pods > 0, nodes.empty_in_s, np.nan)
        return nodes._replace(
            requested=np.stack([self.cpu_milli[positions], self.memory_mib[positions]], -1),
            pods=pods,
            empty_in_s=np.where(pods > 0, known, 0.0),
        )


@dataclass(frozen=True)
class Suggestion:
    """The order of some nodes for one pod. kube-scheduler named N nodes, K of them are known."""

    facts: PodFacts
    wished: Wishes
    asked: int
    """N."""
    positions: Int
    """(K,) which of the N the known nodes are; they are sorted by name."""
    names: Names
    """(K,)"""
    nodes: Nodes
    """(K,) the scored nodes."""
    scores: Float
    """(K,)"""
    order: Int
    """(K,) indices from the best to the worst."""
    by: str
    """rule, network or override."""
    rule: str
    """Name of the rule; of a network the rule that it was trained with."""
    by_network: bool
    """Whether the scores are a network's, before overrides."""
    wanted: str | None
    """The node that an override names."""
    avoided: tuple[str, ...]
    problems: tuple[str, ...]
    measured: Mapping[str, Mapping[str, float]]
    """Fresh metrics of the best nodes, by name."""

    @property
    def chosen(self) -> str:
        """The best node; empty where no node is known."""
        return str(self.names[self.order[0]]) if len(self.order) else ""

    def levels(self, most: int) -> Int:
        """(N,) 0 to `most`, higher is better: the chosen node alone has the highest, a node that is not known has 0."""
        scale = np.zeros(self.asked, np.int64)
        scale[self.positions] = levels(self.order, most)
        return scale

    @cached_property
    def _before(self) -> dict[str, float]:
        """Properties of the chosen node before the pod came."""
        return seen(self.nodes.one(int(self.order[0]))) if len(self.order) else {}

    def shown(self) -> dict[str, Any]:
        """As JSON: the choice, the properties of the chosen node, and the best nodes."""
        best = self.order[:SHOWN].tolist()
        return {
            "namespace": self.facts.namespace,
            "pod": self.facts.name,
            "policy": str(self.wished.policy),
            "asked_by": dict(self.wished.by),
            "by": self.by,
            "rule": self.rule,
            "node": self.chosen,
            "seen": self._before,
            "nodes": len(self.names),
            "best": [self._best(at) for at in best],
            "problems": list(self.problems),
        }

    def _best(self, at: int) -> dict[str, Any]:
        name = str(self.names[at])
        measured = {"metrics": dict(reading)} if (reading := self.measured.get(name)) else {}
        return {"node": name, "score": _finite(self.scores[at]), **measured}

    def sentence(self) -> str:
        """The choice and why, for the Event on the pod."""
        if not len(self.order):
            return ""
        best = self.order[:2].tolist()
        by = decided_by(self.by, self.rule)
        had = ", ".join(f"{name} {value:g}" for name, value in self._before.items())
        asked_by = sorted({who for who in self.wished.by.values() if who.startswith(NODE_SCORING_KIND)})
        policy = f"{self.wished.policy} ({asked_by[0]})" if asked_by else str(self.wished.policy)
        text = f"{self.chosen} suggested for {policy} by {by}: score {self.scores[best[0]]:g}"
        if len(best) > 1:
            text += f", next {self.names[best[1]]} with {self.scores[best[1]]:g}"
        text += f", of {len(self.names)} nodes; it had {had}"
        return "; ".join((text, *self.problems))


def seen(node: Nodes) -> dict[str, float]:
    """Properties of one node (N = 1) before the pod came, without unknown ones and those that it does not have."""
    cpu, memory = used_share(node)[0].tolist()
    properties = {"requested_cpu": cpu, "requested_memory": memory, "pods": float(node.pods[0])}
    if node.gpus[0]:
        properties["free_gpus"] = float(node.gpu_free[0].sum()) / WHOLE_GPU
    if not np.isnan(node.latency_ms[0]):
        properties["latency_ms"] = float(node.latency_ms[0])
    return {name: round(value, 4) for name, value in properties.items()}


def decided_by(by: str, rule: str) -> str:
    """Name of the decider in words: `by` is rule, network or override, and `rule` the rule's name."""
    return {"rule": f"the rule {rule}", "network": "the network", "override": "an override"}[by]


class Suggester:
    """Orders nodes. `actors` are the networks that were loaded; `unfit` says why that of a policy was not."""

    def __init__(
        self,
        cache: Cache,
        overrides: Overrides,
        settings: Settings,
        actors: Mapping[Policy, PlacementActor],
        clock: Callable[[], float] = time.monotonic,
        unfit: Mapping[Policy, str] | None = None,
    ) -> None:
        self.cache, self.overrides, self.settings, self.actors = cache, overrides, settings, actors
        self._clock, self._unfit = clock, dict(unfit or {})
        self.node_metrics = NodeMetrics(cache, settings)
        self.breakers = {policy: Breaker(settings.budget_seconds, settings.breaker_seconds, clock) for policy in actors}
        self.namespaces: dict[str, NamespaceFacts] = {}
        self.namespaces_listed = False
        """Whether the namespaces are known; also True where the server may not list them."""
        self.scoring_policies = ScoringPolicies()

    def set_namespaces(self, items: Sequence[Json]) -> None:
        """All namespaces that exist."""
        self.namespaces.clear()
        for item in items:
            self.change_namespace(item, False)
        self.namespaces_listed = True

    def change_namespace(self, item: Json, deleted: bool) -> None:
        """One namespace as it is now."""
        name = item["metadata"]["name"]
        if deleted:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = namespace_facts(item)

    def wished(self, facts: PodFacts) -> Wishes:
        """Wishes of the pod, its namespace and the NodeScoringPolicy that selects it."""
        namespace = self.namespaces.get(facts.namespace, UNKNOWN_NAMESPACE)
        scoring = self.scoring_policies.of(namespace.labels, facts.labels)
        return wishes(facts.annotations, namespace.annotations, self.settings.policy, scoring)

    def refused(self, facts: PodFacts, names: Sequence[str]) -> dict[str, str]:
        """Nodes above the pod's hard latency, each with a sentence; nodes that were not measured are none of them."""
        wished = self.wished(facts)
        if np.isnan(wished.hard_ms):
            return {}
        rows = self.cache.rows_of(names)
        known, nodes = self.cache.nodes_at(rows[rows >= 0])
        far = ~near_enough(nodes, as_pods(facts, hard_ms=wished.hard_ms))
        limit = f"hard limit {wished.hard_ms:g} ms ({wished.by['latency_hard_ms']})"
        return {known[at]: f"latency {nodes.latency_ms[at]:g} ms is above the {limit}" for at in np.flatnonzero(far)}

    def suggest(self, facts: PodFacts, rows: Int, counted: Counted | None = None) -> Suggestion:
        """Order the nodes of these rows (N,) of the cache, which the pod fits; rows of -1 are left out.

        :param counted: kube-scheduler's own count on the nodes (N,); the cache's count acts without it.
        """
        # Pods whose binding never came must not hold room on a node any longer.
        self.cache.expire()
        wished = self.wished(facts)
        positions = self.cache.in_order(rows)
        names, nodes = self.cache.nodes_at(rows[positions])
        if counted is not None:
            nodes = counted.over(nodes, positions, self.cache.daemons_at(rows[positions]))
        pods = as_pods(facts, wished.soft_ms, wished.hard_ms)
        wanted, avoided = self.overrides.of(facts.namespace, facts.name)
        values, why = self._network(wished.policy, nodes, pods)
        rule, unmeasured = self._rule(wished.policy, nodes, values is not None)
        scores, overridden, problems = score(rule, names, nodes, pods, values, wanted, avoided)
        order = ranked(scores, nodes, pods)
        by = "override" if overridden else "rule" if values is None else "network"
        return Suggestion(
            facts,
            wished,
            len(rows),
            positions,
            names,
            nodes,
            scores,
            order,
            by,
            rule,
            values is not None,
            wanted,
            tuple(sorted(avoided)),
            (*wished.problems, *why, *unmeasured, *problems),
            {name: self.node_metrics.of(name) for name in names[order[:SHOWN]].tolist()},
        )

    def _rule(self, policy: Policy, nodes: Nodes, network: bool) -> tuple[str, tuple[str, ...]]:
        """Return the rule of a scoring policy, or that of its network, and warnings of missing metrics."""
        if network:
            return self.actors[policy].manifest.rule, ()
        if policy is not Policy.LB or self.settings.balance != "use" or not len(nodes.pods):
            return self.settings.rules.get(policy, DEFAULT_RULE[policy]), ()
        missing = int(np.isnan(nodes.in_use).any(-1).sum())
        if missing == len(nodes.pods):
            return DEFAULT_RULE[policy], (f"no node has fresh metrics: {DEFAULT_RULE[policy]} acts, by requests",)
        warning = f"{missing} of {len(nodes.pods)} nodes have no fresh metrics: their requests count"
        return "least-used", (warning,) if missing else ()

    def _network(self, policy: Policy, nodes: Nodes, pods: Pods) -> tuple[Float | None, tuple[str, ...]]:
        """(K,) values of the policy's network, None where its rule acts, and why that acts in the network's place."""
        actor = self.actors.get(policy)
        if actor is None or not len(nodes.pods):
            unfit = self._unfit.get(policy)
            return None, (f"{unfit}; until then the rule of {policy} acts",) if unfit else ()
        breaker = self.breakers[policy]
        if breaker.open:
            return None, (f"the network for {policy} was slow or failed {FAULTS} times: its rule acts for now",)
        began, values, why = self._clock(), None, ""
        try:
            values = actor.values(actor.seen(nodes, pods, near_enough(nodes, pods)))
        except ModelError as error:
            why = str(error)
        # NaN would sort anywhere: one node without a number voids the whole answer.
        if values is not None and not np.isfinite(values).all():
            values, why = None, f"the network for {policy} gives values that are no numbers"
        breaker.ran(self._clock() - began, values is None)
        if values is None:
            log.warning("%s; the rule acts", why)
            return None, (why,)
        return values, ()


def score(
    rule: str,
    names: Names,
    nodes: Nodes,
    pods: Pods,
    values: Float | None,
    wanted: str | None,
    avoided: Collection[str],
) -> tuple[Float, bool, tuple[str, ...]]:
    """Return the scores (K,) of the nodes, whether an override chose the best, and warnings.

    Nodes above the hard latency are below all others, then the nodes to be avoided.

    :param values: scores of the network (K,); None = the rule of this name scores.
    :param wanted: the node that an override names.
    """
    if not len(names):
        return np.zeros(0), False, ()
    scores = by_rule(rule, nodes, pods) if values is None else values
    # Too far, then avoided: each time below the lowest score so far, whatever unit the rule or network scores in.
    scores = np.where(near_enough(nodes, pods), scores, scores.min() - 1.0)
    if avoided:
        apart = np.array([name in avoided for name in names])
        scores = np.where(apart, scores.min() - 1.0, scores)
    # An override is the last word, even above the hard latency: a person wants it.
    if wanted is None:
        return scores, False, ()
    (there,) = np.nonzero(names == wanted)
    if not len(there):
        return scores, False, (f"the override to {wanted} is not followed: the pod does not fit that node",)
    scores[there] = scores.max() + 1.0
    return scores, True, ()


def _finite(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None
