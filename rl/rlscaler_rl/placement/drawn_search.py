"""Search for a network on the drawn clusters: all candidates of a generation are played at once, on copies of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np
import torch

from rlscaler_core.placement.features import Float32, columns, features
from rlscaler_core.placement.policies import DEFAULT_RULE, Policy
from rlscaler_core.placement.types import Bool, Float, Nodes, Pods
from rlscaler_rl.placement.drawn import TEST_SEED, VALIDATION_SEED, Setting
from rlscaler_rl.placement.evolution import Evolution, evolve, starting_network
from rlscaler_rl.placement.network import DeepSets
from rlscaler_rl.placement.play import Contender, play, score, warm_up
from rlscaler_rl.placement.trained import Record, Trained, unrecorded

EVOLUTION = Evolution(seed=0, generations=64, width=0.02, learning_rate=0.008, last_rate=0.1, look_every=16)
"""Length and step sizes of the search on drawn clusters."""


@dataclass(frozen=True)
class Options:
    """Settings of a search."""

    policy: Policy
    evolution: Evolution
    rule: str | None = None
    """That the network begins as; None = the policy's default."""
    load: float = 0.6
    lifetimes_known: bool = False
    lifetime_error: float = 0.0
    """Error of the lifetimes that pods state, as in `Setting`."""
    nodes: tuple[int, ...] = (6, 12, 24)
    """Sizes of the clusters; generations take them in turn."""
    nodes_at_once: int = 192
    """Nodes of all the clusters that a candidate is played on."""
    looked_at: int = 768
    """Nodes of all the validation clusters, for each size."""


def side_by_side(net: DeepSets, policy: Policy, rule: str | None, candidates: Float32, clusters: int) -> Contender:
    """Candidates for the last layer (K, n), each on copies of the same clusters: (K * clusters, N) scores."""
    each = torch.from_numpy(np.repeat(candidates, clusters, 0))
    last, by_rule = each[:, :-1, None], each[:, -1, None]

    @torch.no_grad()
    def scores(nodes: Nodes, pods: Pods, among: Bool) -> Float:
        seen = torch.from_numpy(features(policy, nodes, pods, among, rule=rule))
        values: Float = (torch.bmm(net.body(seen), last)[..., 0] + by_rule * seen[..., 0]).double().numpy()
        return values

    return scores


class DrawnEpisodes:
    """Drawn clusters of one size in each generation. All candidates get the same clusters and pods."""

    def __init__(self, options: Options) -> None:
        self._options, self._sizes = options, cycle(options.nodes)

    def ahead(self, net: DeepSets, there: Float32, back: Float32, rng: np.random.Generator) -> tuple[Float, int]:
        """Play all pairs on the same clusters; the score is the mean over those that are scored."""
        options = self._options
        candidates = np.concatenate([there, back])
        setting = self._setting(next(self._sizes), options.nodes_at_once)
        # Training never plays the seeds of validation and comparison.
        seed = int(rng.integers(VALIDATION_SEED + 1, 2**40))
        scores = self._play(net, candidates, setting, seed + (seed == TEST_SEED))
        return scores[: len(there)] - scores[len(there) :], 2 * warm_up(setting) * len(candidates) * setting.clusters

    def validate(self, net: DeepSets, parameters: Float32) -> float:
        """The mean score over the validation clusters of all sizes."""
        options = self._options
        settings = [self._setting(size, options.looked_at) for size in options.nodes]
        return float(np.mean([self._play(net, parameters[None], setting, VALIDATION_SEED) for setting in settings]))

    def _setting(self, size: int, nodes: int) -> Setting:
        options = self._options
        clusters = max(nodes // size, 1)
        return Setting(options.policy, size, clusters, options.load, options.lifetimes_known, options.lifetime_error)

    def _play(self, net: DeepSets, candidates: Float32, setting: Setting, seed: int) -> Float:
        """(K,) the mean score of each candidate over the clusters that are scored."""
        options = self._options
        contender = side_by_side(net, options.policy, options.rule, candidates, setting.clusters)
        played = play(contender, replace(setting, copies=len(candidates)), seed)
        scores = score(options.policy, played).reshape(len(candidates), setting.clusters)
        scored = np.isfinite(scores[0])
        mean: Float = scores[:, scored].mean(1) if scored.any() else np.zeros(len(candidates))
        return mean


def search(options: Options, say: Callable[[str], None] = lambda _: None, record: Record = unrecorded) -> Trained:
    """Search a network for a scoring policy. The best one on validation clusters, whose seed is not played, is
    returned."""
    net = starting_network(len(columns(options.policy)), options.evolution)
    run = evolve(
        net,
        DrawnEpisodes(options),
        options.evolution,
        lambda when, score: say(f"{options.policy} {when}: {score:.4f}"),
    )
    for placements, number in run.curve:
        record("validation/score", number, placements)
    return Trained(
        net,
        options.policy,
        options.rule or DEFAULT_RULE[options.policy],
        (min(options.nodes), max(options.nodes)),
        options.evolution.seed,
        run,
    )
