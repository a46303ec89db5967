"""Evolution strategies for the network that scores nodes: whole episodes decide, and no step has a reward.

Salimans et al. 2017, antithetic pairs and Adam. A single placement decides little, and its consequences come hundreds
of pods later, so the episode's score is the observation. Both of a pair are played on the same episodes, so that the
load itself is no noise. The network begins as a rule. Its two hidden layers stay as they were drawn (random features,
Rahimi and Recht 2007): the search covers the last layer and the rule's weight, few enough numbers that some episodes
tell a direction from noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rlscaler_core.placement.features import Float32
from rlscaler_core.placement.types import Float
from rlscaler_rl.placement.network import DeepSets
from rlscaler_rl.placement.trained import Run


@dataclass(frozen=True)
class Evolution:
    """Settings of the search. n is the number of searched parameters."""

    seed: int
    generations: int
    pairs: int = 16
    """Directions that are tried in each generation, each both ways."""
    hidden: int = 32
    scale: float = 2.0
    """Factor on the hidden layers' parameters that torch draws.

    A larger one makes units react to small differences of columns.
    """
    width: float = 0.03
    """Standard deviation of the directions."""
    learning_rate: float = 0.01
    last_rate: float = 1.0
    """Share of the learning rate that is left in the end; it falls evenly."""
    look_every: int = 30
    """Generations between two looks at the validation episodes."""


class Episodes(Protocol):
    """Episodes on which parameters of the last layer are tried."""

    def ahead(self, net: DeepSets, there: Float32, back: Float32, rng: np.random.Generator) -> tuple[Float, int]:
        """Play each row of `there` and the same row of `back`, (pairs, n) both, on the same episodes.

        Returns the scores of `there` less those of `back`, (pairs,), and how many pods were placed.
        """

    def validate(self, net: DeepSets, parameters: Float32) -> float:
        """The score of parameters (n,) on episodes that are not searched on."""


def starting_network(columns: int, options: Evolution) -> DeepSets:
    """A network that ranks nodes as its rule does, with hidden layers that are drawn by the seed."""
    torch.manual_seed(options.seed)
    net = DeepSets(columns, options.hidden, dueling=False)
    with torch.no_grad():
        for parameter in (*net.first.parameters(), *net.second.parameters()):
            # Larger weights make the random hidden units react to small differences between columns.
            parameter *= options.scale
    return net


def searched(net: DeepSets) -> list[torch.nn.Parameter]:
    """The parameters that are searched: the last layer's weights, then the rule's."""
    return [net.advantage.weight, net.by_rule]


def evolve(
    net: DeepSets, episodes: Episodes, options: Evolution, say: Callable[[str, float], None] = lambda *_: None
) -> Run:
    """Search the last layer of `net`, and leave the best parameters on the validation episodes in it.

    :param say: called at each look with a text of generation and placements, and with the score.
    """
    torch.set_num_threads(1)
    rng, run, began = np.random.default_rng(options.seed), Run(), time.perf_counter()
    best, highest = parameters_to_vector(searched(net)).detach().clone(), -np.inf
    centre = best.clone()
    adam = torch.optim.Adam([centre], options.learning_rate)
    rate = torch.optim.lr_scheduler.LinearLR(adam, 1.0, options.last_rate, options.generations)
    for generation in range(options.generations + 1):
        last = generation == options.generations
        if last or generation % options.look_every == 0:
            looked = time.perf_counter()
            score = episodes.validate(net, centre.numpy())
            run.looking += time.perf_counter() - looked
            run.curve.append((run.placements, score))
            if score > highest:
                best, highest = centre.clone(), score
            say(f"generation {generation:>4}, {run.placements:>11,} placements", score)
        if last:
            break
        # Antithetic pairs: both ways of a direction meet the same episodes, so that the luck of an episode cancels.
        directions = rng.standard_normal((options.pairs, len(centre))).astype(np.float32)
        moved = np.float32(options.width) * directions
        ahead, placements = episodes.ahead(net, centre.numpy() + moved, centre.numpy() - moved, rng)
        run.placements += placements
        # Adam descends, and the score is to rise.
        centre.grad = -torch.from_numpy(_slope(ahead, directions))
        adam.step()
        rate.step()
    vector_to_parameters(best, searched(net))
    run.seconds = time.perf_counter() - began
    return run


def _slope(ahead: Float, directions: Float32) -> Float32:
    """The direction of ascent, from by how much each direction is ahead of its opposite."""
    # The step depends on the order of the directions, not on the unit of the score.
    scaled = ahead / (ahead.std() + 1e-9)
    slope: Float32 = (scaled @ directions / len(ahead)).astype(np.float32)
    return slope
