"""Search for a network that places the pods of openb: evolution strategies on what is allocated in the end.

Salimans et al. 2017, antithetic pairs and Adam. A placement decides little and the end comes hundreds of pods later, so
the whole episode is the observation and no step has a reward. The network begins as a rule. Its two
hidden layers stay as they were drawn (random features, Rahimi and Recht 2007): what is searched is the last layer and
the rule's weight, few enough numbers that some episodes tell a direction from noise.
Half of the trace's nodes and half of its pods are for training; the other halves are never seen here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rlscaler_core.placement.fragmentation import TypicalPods, typical
from rlscaler_core.placement.policies import Policy
from rlscaler_core.placement.types import WHOLE_GPU, Float, Int, Nodes, Pods
from rlscaler_rl.placement.dqn import Options as Described
from rlscaler_rl.placement.dqn import Trained
from rlscaler_rl.placement.inflation import WIDTH, Weights, begin, terminal
from rlscaler_rl.placement.network import DeepSets
from rlscaler_rl.placement.openb import Cluster

SPLIT_SEED = 0
"""Draws the halves, the same for every training: what one has not seen no other has."""

VALIDATION_SEED = 10**9
"""Draws the clusters that checkpoints are chosen by, of the nodes and pods of training."""


@dataclass(frozen=True)
class Options:
    """How it is searched."""

    seed: int = 0
    rule: str = "fragmentation-and-cores"
    """That the network begins as, one of `inflation.CORES_WEIGHT_OF`."""
    generations: int = 240
    pairs: int = 16
    """Directions that are tried in each generation, each both ways on one cluster."""
    nodes: tuple[int, int] = (60, 200)
    """Fewest and most nodes of a cluster."""
    ratio: float = 1.3
    """GPUs that the pods of an episode ask for, over those that there are."""
    hidden: int = 32
    scale: float = 2.0
    """Factor on the hidden layers' parameters that torch draws.

    A larger one makes units react to small differences of columns.
    """
    width: float = 0.03
    """Standard deviation of the directions."""
    learning_rate: float = 0.01
    look_every: int = 30
    """Generations between two looks at the validation clusters."""
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
    asked = cluster.pods.gpus * cluster.pods.gpu_milli
    room = ratio * nodes.gpus.sum() * WHOLE_GPU
    order = rng.integers(len(asked), size=int(2 * room / asked.mean()) + 16)
    return Episode(nodes, order[: int(np.searchsorted(asked[order].cumsum(), room))])


def weights(net: DeepSets) -> Weights:
    """The network's parameters for the compiled episode."""
    layers = [
        matrix.detach().numpy().copy()
        for layer in (net.first, net.second)
        for matrix in (layer.one.weight.T, layer.highest.weight.T, layer.mean.weight.T, layer.one.bias)
    ]
    advantage, by_rule = net.advantage.weight[0].detach().numpy().copy(), float(net.by_rule.detach())
    return Weights._make([*(np.ascontiguousarray(matrix) for matrix in layers), advantage, by_rule])


def search(cluster: Cluster, options: Options, say: Callable[[str], None] = lambda _: None) -> Trained:
    """Search on the half for training; what is kept is the best on validation clusters, whose seeds are not played."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    rng, ours = np.random.default_rng(options.seed), halves(cluster)[0]
    kinds = typical(ours.pods)
    net = DeepSets(WIDTH, options.hidden, dueling=False)
    with torch.no_grad():
        for parameter in (*net.first.parameters(), *net.second.parameters()):
            parameter *= options.scale
    best = parameters_to_vector(_searched(net)).detach().clone()
    centre = best.clone()
    adam = torch.optim.Adam([centre], options.learning_rate)
    drawing = np.random.default_rng(VALIDATION_SEED)
    largest = (options.nodes[1], options.nodes[1])
    validation = [draw(ours, largest, options.ratio, drawing) for _ in range(options.looked_at)]

    def play(parameters: np.ndarray, episode: Episode) -> float:
        return _play(net, parameters, ours.pods, episode, kinds, options.rule)

    placements, highest, curve, began = 0, -np.inf, [], time.perf_counter()
    for generation in range(options.generations + 1):
        if generation % options.look_every == 0:
            found = float(np.mean([play(centre.numpy(), one) for one in validation]))
            curve.append((placements, found))
            if found > highest:
                best, highest = centre.clone(), found
            say(f"generation {generation:>4}, {placements:>10,} placements: {100 * found:.2f} % of the GPUs allocated")
        directions = rng.standard_normal((options.pairs, len(centre))).astype(np.float32)
        ahead = np.zeros(options.pairs)
        for i, direction in enumerate(options.width * directions):
            episode = draw(ours, options.nodes, options.ratio, rng)
            there, back = (play(centre.numpy() + sign * direction, episode) for sign in (1, -1))
            ahead[i] = there - back
            placements += 2 * len(episode.order)
        centre.grad = -torch.from_numpy(_slope(ahead, directions))
        adam.step()
    vector_to_parameters(best, _searched(net))
    took = time.perf_counter() - began
    described = replace(
        Described(Policy.GPU), steps=placements, seed=options.seed, nodes=options.nodes, rule=options.rule
    )
    return Trained(net, described, took, placements / took, curve)


def _searched(net: DeepSets) -> list[torch.nn.Parameter]:
    return [net.advantage.weight, net.by_rule]


def _play(net: DeepSets, parameters: np.ndarray, pods: Pods, episode: Episode, kinds: TypicalPods, rule: str) -> float:
    vector_to_parameters(torch.from_numpy(parameters), _searched(net))
    state, arrivals = begin(episode.nodes, pods, episode.order, kinds, rule)
    return float(terminal(state, arrivals, weights(net)))


def _slope(ahead: Float, directions: np.ndarray) -> np.ndarray:
    """The direction of ascent, from by how much each direction is ahead of its opposite."""
    scaled = ahead / (ahead.std() + 1e-9)
    slope: np.ndarray = (scaled @ directions / len(ahead)).astype(np.float32)
    return slope
