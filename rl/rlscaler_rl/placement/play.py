"""Play a rule or a network on drawn clusters, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.features import features
from rlscaler_core.placement.policies import choose
from rlscaler_core.placement.rules import RULES
from rlscaler_core.placement.types import Bool, Float, Nodes, Pods
from rlscaler_rl.placement.drawn import LONG_SLOTS, Setting
from rlscaler_rl.placement.environment import Placement

Contender = Callable[[Nodes, Pods, Bool], Float]
"""Scores (clusters, nodes) of nodes and pods, with the nodes that the pod may go to."""


@dataclass(frozen=True)
class Played:
    """Means over time and clusters, after a warm-up."""

    thesis: float
    """The thesis' reward; for GPU minus the GPUs that each placement makes unusable."""
    in_use: float
    """Share of the nodes that have pods."""
    uneven: float
    """Standard deviation of the nodes' shares of requested CPU."""
    latency_met: float
    """1 below soft, .5 below hard, 0 above."""
    refused: float
    """Share of the pods that no node took."""
    gpus_used: float
    """Share of the GPUs that is allocated; NaN without GPUs."""


def rule(name: str) -> Contender:
    """A rule of `RULES`."""
    return lambda nodes, pods, among: RULES[name](nodes, pods)


def network(actor: PlacementActor) -> Contender:
    """A network, as the server asks it: one cluster after the other."""

    def scores(nodes: Nodes, pods: Pods, among: Bool) -> Float:
        seen = features(actor.manifest.policy, nodes, pods, among)
        return np.stack([actor.values(one) for one in seen])

    return scores


def random_node(seed: int = 0) -> Contender:
    """Any node, each as likely."""
    rng = np.random.default_rng(seed)
    return lambda nodes, pods, among: rng.random(nodes.pods.shape)


def warm_up(setting: Setting) -> int:
    """Steps after which the pods of the beginning have mostly ended: twice the mean lifetime of long ones."""
    return int(2 * LONG_SLOTS * setting.arrivals_per_slot)


def play(contender: Contender, setting: Setting, seed: int, steps: int | None = None) -> Played:
    """Place `steps` pods on every cluster after the warm-up (as many as in it, if not said) and measure."""
    env = Placement(setting, seed)
    warm = warm_up(setting)
    rows = []
    for step in range(warm + (steps or warm)):
        among = env.mask()
        outcome = env.step(choose(contender(env.nodes, env.pods, among), env.nodes, env.pods, among))
        if step >= warm:
            nodes = env.nodes
            share = nodes.requested[..., 0] / np.maximum(nodes.allocatable[..., 0], 1.0)
            whole = nodes.gpus.sum()
            rows.append(
                (
                    outcome.thesis.mean(),
                    (nodes.pods > 0).mean(),
                    share.std(-1).mean(),
                    np.nanmean(outcome.latency_met) if outcome.placed.any() else np.nan,
                    1.0 - outcome.placed.mean(),
                    1.0 - nodes.gpu_free.sum() / (1000.0 * whole) if whole else np.nan,
                )
            )
    table = np.array(rows)
    means = table.mean(0)
    means[3] = np.nanmean(table[:, 3])
    return Played(*means.tolist())
