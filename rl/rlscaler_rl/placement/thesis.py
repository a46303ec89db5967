"""Rewards and ends of episodes of the thesis that node scoring follows, as its published code has them.

S. Matranga, Scheduling Kubernetes Tasks with Reinforcement Learning, Politecnico di Torino 2024;
github.com/SoniaMatranga/SoniaMatrangaTesi, `scheduling.py`. Each reward is of the nodes before the placement.
"""

from __future__ import annotations

import numpy as np

from rlscaler_core.placement.policies import Policy
from rlscaler_core.placement.types import Bool, Float, Int, Nodes, Pods

POLICIES = (Policy.EE, Policy.LB, Policy.EL)

PODS_PER_NODE = 50.0
"""Pods of a used node at which the second part of EL's reward is 1."""


def judged(policy: Policy, nodes: Nodes, pods: Pods, node: Int) -> tuple[Float, Bool]:
    """Return the reward (clusters,) of placing each pod on the node of this index, and whether the episode ends.

    LB: 10 for a node with the fewest pods, -1 and the end for a node with the most, 0 for any other. EE: ten times the
    share of nodes without pods, rounded down, for a node with the most pods; 0 and the end for any other. EL: the
    share of nodes without pods, the pods of a used node over PODS_PER_NODE, and 1 below the soft latency, .5 below the
    hard one, added; the end above the hard one, or without limits. A pod that is refused has 0 and ends nothing.
    """
    index, placed = np.maximum(node, 0)[:, None], node >= 0
    there = np.take_along_axis(nodes.pods, index, -1)[:, 0]
    fewest, most = nodes.pods.min(-1), nodes.pods.max(-1)
    in_use = (nodes.pods > 0).sum(-1)
    unused = 1.0 - in_use / nodes.pods.shape[-1]
    if policy is Policy.LB:
        reward = np.where(there == fewest, 10.0, np.where(there == most, -1.0, 0.0))
        ended = (there == most) & (most > fewest)
    elif policy is Policy.EE:
        ended = there < most
        # A share such as .3 is .3 less a rounding error in binary, which would cost a whole point.
        reward = np.where(ended, 0.0, np.floor(10.0 * unused + 1e-9))
    else:
        latency = np.take_along_axis(nodes.latency_ms, index, -1)[:, 0]
        ended = ~(latency <= pods.hard_ms) | np.isnan(pods.soft_ms)
        near = np.where(ended, 0.0, np.where(latency <= pods.soft_ms, 1.0, 0.5))
        reward = unused + nodes.pods.sum(-1) / np.maximum(in_use, 1) / PODS_PER_NODE + near
    return np.where(placed, reward, 0.0), ended & placed
