"""Play a rule or a network on drawn clusters, and measure the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.policies import Policy, choose
from rlscaler_core.placement.rules import RULES
from rlscaler_core.placement.types import WHOLE_GPU, Bool, Float, Nodes, Pods
from rlscaler_rl.placement.drawn import LONG_SLOTS, Setting
from rlscaler_rl.placement.environment import Outcome, Placement

Contender = Callable[[Nodes, Pods, Bool], Float]
"""Scores (clusters, nodes) of nodes and pods, with the nodes that the pod may go to."""


@dataclass(frozen=True)
class Played:
    """Means over time after a warm-up, (clusters,) each; NaN where there was nothing to measure."""

    aim: Float
    """Reach of the scoring policy's aim, as in `Outcome`."""
    in_use: Float
    """Share of the nodes that have pods."""
    uneven: Float
    """Standard deviation of the nodes' shares of requested CPU."""
    latency_met: Float
    """1 below soft, .5 below hard, 0 above."""
    refused: Float
    """Share of the pods that no node took."""
    gpus_used: Float
    """Share of the GPUs that is allocated; NaN without GPUs."""


def score(policy: Policy, played: Played) -> Float:
    """Score of checkpoints and contenders, (clusters,): higher is better."""
    if policy is Policy.GPU:
        return played.gpus_used
    return played.aim


def rule(name: str) -> Contender:
    """A rule of `RULES`."""
    return lambda nodes, pods, among: RULES[name](nodes, pods)


def network(actor: PlacementActor) -> Contender:
    """A network, as the server asks it: one cluster after the other."""

    def scores(nodes: Nodes, pods: Pods, among: Bool) -> Float:
        return np.stack([actor.values(cluster) for cluster in actor.seen(nodes, pods, among)])

    return scores


def random_node(seed: int = 0) -> Contender:
    """Any node, each as likely."""
    rng = np.random.default_rng(seed)
    return lambda nodes, pods, among: rng.random(nodes.pods.shape)


def warm_up(setting: Setting) -> int:
    """Steps after which the pods of the beginning have mostly ended: twice the mean lifetime of long ones."""
    return int(2 * LONG_SLOTS * setting.arrivals_per_slot)


def play(contender: Contender, setting: Setting, seed: int, steps: int | None = None) -> Played:
    """Place `steps` pods on every cluster after the warm-up (by default as many as in the warm-up) and measure."""
    env = Placement(setting, seed)
    warm = warm_up(setting)
    rows = []
    for step in range(warm + (steps or warm)):
        among = env.mask()
        outcome = env.step(choose(contender(env.nodes, env.pods, among), env.nodes, env.pods, among))
        if step >= warm:
            rows.append(_measured(env.nodes, outcome))
    table = np.array(rows)
    known = ~np.isnan(table)
    return Played(*(np.where(known, table, 0.0).sum(0) / np.where(known.any(0), known.sum(0), np.nan)))


def _measured(nodes: Nodes, outcome: Outcome) -> Float:
    """The figures of `Played` at one step, (figures, clusters)."""
    share = nodes.requested[..., 0] / np.maximum(nodes.allocatable[..., 0], 1.0)
    whole = nodes.gpus.sum(-1)
    free = nodes.gpu_free.sum((-2, -1)) / (WHOLE_GPU * np.where(whole > 0, whole, np.nan))
    in_use, refused = (nodes.pods > 0).mean(-1), 1.0 - outcome.placed
    return np.stack([outcome.aim, in_use, share.std(-1), outcome.latency_met, refused, 1.0 - free])
