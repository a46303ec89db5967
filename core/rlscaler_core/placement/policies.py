"""The four scoring policies, the choice of a node from scores, and the levels for an extender."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from rlscaler_core.placement.mask import near_enough
from rlscaler_core.placement.rules import RULES, best_fit
from rlscaler_core.placement.types import Bool, Float, Int, Nodes, Pods

EXTENDER_LEVELS = 10
"""kube-scheduler takes whole numbers from 0 to this from an extender."""

PLUGIN_LEVELS = 100
"""The same from a score plugin."""


class Policy(StrEnum):
    """Scoring policy: the aim of placement. The first three are those of the thesis."""

    EE = "EE"
    """Energy: few nodes in use."""
    LB = "LB"
    """Load balance: equal shares of requested CPU."""
    EL = "EL"
    """Energy and latency: near the users, then few nodes."""
    GPU = "GPU"
    """Little fragmentation of GPUs."""


RULES_OF = {
    Policy.EE: ("pack", "least-extension", "pack-and-extension"),
    Policy.LB: ("spread",),
    Policy.EL: ("latency-then-pack", "latency-fit"),
    Policy.GPU: ("fragmentation", "fragmentation-and-cores", "best-fit"),
}
"""The rules that may act for each scoring policy."""

DEFAULT_RULE = {policy: rules[0] for policy, rules in RULES_OF.items()}
"""The rule that acts for each scoring policy, unless a network or another rule is named."""


def by_rule(rule: str, nodes: Nodes, pods: Pods) -> Float:
    """(..., N) scores of a rule. Raises KeyError for one that is not in RULES."""
    return RULES[rule](nodes, pods)


def allowed(nodes: Nodes, pods: Pods, fitting: Bool) -> Bool:
    """(..., N): of the fitting nodes those within the hard latency; kube-scheduler says on a cluster which fit."""
    return fitting & near_enough(nodes, pods)


def choose(scores: Float, nodes: Nodes, pods: Pods, among: Bool) -> Int:
    """(...) the best of `among`; equals are told apart by best fit, then by the lowest index. -1 where none is.

    Without the second term kube-scheduler draws one of the equals at random, which costs a packing rule much.
    """
    first = np.where(among, scores, -np.inf)
    equal = among & (first >= first.max(-1, keepdims=True))
    second = np.where(equal, best_fit(nodes, pods), -np.inf)
    return np.where(among.any(-1), second.argmax(-1), -1)


def ranked(scores: Float, nodes: Nodes, pods: Pods) -> Int:
    """(N,) indices from the best node to the worst; equals as `choose` tells them apart."""
    return np.lexsort((-best_fit(nodes, pods), -scores))


def levels(order: Int, most: int) -> Int:
    """(N,) whole numbers from 0 to `most` for nodes that are `ranked`: the chosen node alone has the highest.

    The others keep their order as far as so many levels can tell it, by rank.
    """
    count = len(order)
    result = np.empty(count, np.int64)
    result[order] = np.minimum((count - np.arange(count) - 1) * most // max(count, 1), most - 1)
    result[order[:1]] = most
    return result
