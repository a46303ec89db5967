"""Search for a network that places the pods of openb by the share of the GPUs that is allocated in the end.

Half of the trace's nodes and half of its pods are for training; the other halves are never seen here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.utils import vector_to_parameters

from rlscaler_core.placement.features import Float32
from rlscaler_core.placement.fragmentation import TypicalPods, typical
from rlscaler_core.placement.policies import Policy
from rlscaler_core.placement.types import WHOLE_GPU, Float, Int, Nodes, Pods
from rlscaler_rl.placement.evolution import Evolution, evolve, searched, starting_network
from rlscaler_rl.placement.inflation import WIDTH, Weights, begin, terminal
from rlscaler_rl.placement.network import DeepSets
from rlscaler_rl.placement.openb import Cluster
from rlscaler_rl.placement.trained import Trained

SPLIT_SEED = 0
"""Seed of the halves, the same for every training: no training sees the other's test half."""

VALIDATION_SEED = 10**9
"""Draws the clusters that checkpoints are chosen by, of the nodes and pods of training."""


@dataclass(frozen=True)
class Options:
    """Settings of a search."""

    evolution: Evolution
    rule: str = "fragmentation-and-cores"
    """That the network begins as, one of `inflation.CORES_WEIGHT_OF`."""
    nodes: tuple[int, int] = (60, 200)
    """Fewest and most nodes of a cluster."""
    ratio: float = 1.3
    """GPUs that the pods of an episode ask for, over those that there are."""
    looked_at: int = 16
    """Validation clusters, of the largest size."""


class Episode(NamedTuple):
    """Empty nodes, and the pods that arrive on them."""

    nodes: Nodes
    order: Int


def halves(cluster: Cluster) -> tuple[Cluster, Cluster]:
    """The nodes and pods for training, and the others."""
    rng = np.random.default_rng(SPLIT_SEED)
    pods, nodes = (rng.permutation(count) for count in (len(cluster.pods.gpus), len(cluster.nodes.gpus)))

    def part(of_nodes: Int, of_pods: Int) -> Cluster:
        return Cluster(
            Nodes._make(column[of_nodes] for column in cluster.nodes),
            Pods._make(column[of_pods] for column in cluster.pods),
        )

    here, there = len(nodes) // 2, len(pods) // 2
    return part(nodes[:here], pods[:there]), part(nodes[here:], pods[there:])


def draw(cluster: Cluster, most: tuple[int, int], ratio: float, rng: np.random.Generator) -> Episode:
    """Some of the nodes, and pods drawn with repetition until they ask for `ratio` of the GPUs."""
    count = int(rng.integers(most[0], most[1] + 1))
    chosen = rng.permutation(len(cluster.nodes.gpus))[:count]
    nodes = Nodes._make(column[chosen] for column in cluster.nodes)
    requested = cluster.pods.gpus * cluster.pods.gpu_milli
    room = ratio * nodes.gpus.sum() * WHOLE_GPU
    # Twice the expected number of pods, since their requests vary; the rest is cut off.
    order = rng.integers(len(requested), size=int(2 * room / requested.mean()) + 16)
    return Episode(nodes, order[: int(np.searchsorted(requested[order].cumsum(), room))])


def weights(net: DeepSets) -> Weights:
    """The network's parameters for the compiled episode."""
    layers = [
        matrix.detach().numpy().copy()
        for layer in (net.first, net.second)
        for matrix in (layer.one.weight.T, layer.highest.weight.T, layer.mean.weight.T, layer.one.bias)
    ]
    advantage, by_rule = net.advantage.weight[0].detach().numpy().copy(), float(net.by_rule.detach())
    return Weights._make([*(np.ascontiguousarray(matrix) for matrix in layers), advantage, by_rule])


class Inflations:
    """Clusters of the trace's nodes that are filled by its pods: each pair has one of its own."""

    def __init__(self, ours: Cluster, options: Options) -> None:
        self._ours, self._options = ours, options
        self._kinds: TypicalPods = typical(ours.pods)
        drawing, largest = np.random.default_rng(VALIDATION_SEED), (options.nodes[1], options.nodes[1])
        self._validation = [draw(ours, largest, options.ratio, drawing) for _ in range(options.looked_at)]

    def ahead(self, net: DeepSets, there: Float32, back: Float32, rng: np.random.Generator) -> tuple[Float, int]:
        """Fill one cluster for each pair; the score is the share of its GPUs that is allocated in the end."""
        differences, placements = np.zeros(len(there)), 0
        for i, both in enumerate(zip(there, back, strict=True)):
            episode = draw(self._ours, self._options.nodes, self._options.ratio, rng)
            first, second = (self._play(net, parameters, episode) for parameters in both)
            differences[i] = first - second
            placements += 2 * len(episode.order)
        return differences, placements

    def validate(self, net: DeepSets, parameters: Float32) -> float:
        """Share of the GPUs of the validation clusters that are allocated in the end."""
        return float(np.mean([self._play(net, parameters, episode) for episode in self._validation]))

    def _play(self, net: DeepSets, parameters: Float32, episode: Episode) -> float:
        vector_to_parameters(torch.from_numpy(parameters), searched(net))
        state, arrivals = begin(episode.nodes, self._ours.pods, episode.order, self._kinds, self._options.rule)
        return float(terminal(state, arrivals, weights(net)))


def search(cluster: Cluster, options: Options, say: Callable[[str], None] = lambda _: None) -> Trained:
    """Search on the half for training. The best network on validation clusters, whose seeds are not played, is
    returned."""
    net = starting_network(WIDTH, options.evolution)
    run = evolve(
        net,
        Inflations(halves(cluster)[0], options),
        options.evolution,
        lambda when, score: say(f"{when}: {100 * score:.2f} % of the GPUs allocated"),
    )
    return Trained(
        net,
        Policy.GPU,
        options.rule,
        options.nodes,
        options.evolution.seed,
        run,
    )
