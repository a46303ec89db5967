"""The search on drawn clusters: candidates side by side, what is kept, and that it finds what a rule does not see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.utils import vector_to_parameters

from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.features import columns
from rlscaler_core.placement.policies import Policy
from rlscaler_rl.placement.dqn import acting
from rlscaler_rl.placement.drawn import TEST_SEED, VALIDATION_SEED, Setting
from rlscaler_rl.placement.drawn_search import DrawnEpisodes, Options, search, side_by_side
from rlscaler_rl.placement.environment import Placement
from rlscaler_rl.placement.evolution import Evolution, searched, starting_network
from rlscaler_rl.placement.play import network, play, random_node, rule, score

SHORT = Evolution(seed=0, generations=4, pairs=4, hidden=8, width=0.3, learning_rate=0.3, look_every=2)


def small(policy: Policy, evolution: Evolution = SHORT, **changes) -> Options:
    sizes = {"nodes": (4, 6), "nodes_at_once": 24, "looked_at": 24}
    return Options(policy, evolution, lifetimes_known=True, **(sizes | changes))


@pytest.mark.parametrize("policy", [Policy.EE, Policy.GPU])
def test_candidates_side_by_side_are_scored_as_each_alone(policy: Policy) -> None:
    net = starting_network(len(columns(policy)), SHORT)
    candidates = np.random.default_rng(0).standard_normal((3, 9)).astype(np.float32)
    env = Placement(Setting(policy, 5, 2, copies=3), 4)
    among = env.mask()
    together = side_by_side(net, policy, None, candidates, 2)(env.nodes, env.pods, among)
    for i, candidate in enumerate(candidates):
        vector_to_parameters(torch.from_numpy(candidate), searched(net))
        alone = acting(net, policy)(env.nodes, env.pods, among)
        np.testing.assert_allclose(together[2 * i : 2 * i + 2], alone[2 * i : 2 * i + 2], atol=1e-5)


@pytest.mark.slow
def test_a_direction_that_is_nowhere_is_not_ahead() -> None:
    net = starting_network(len(columns(Policy.EE)), SHORT)
    episodes = DrawnEpisodes(small(Policy.EE))
    same = np.random.default_rng(1).standard_normal((3, 9)).astype(np.float32)
    ahead, placements = episodes.ahead(net, same, same, np.random.default_rng(2))
    assert ahead.tolist() == [0.0, 0.0, 0.0]
    steps = placements / (6 * 6)  # six candidates on six clusters of four nodes
    assert steps == 2 * int(2 * 40 * Setting(Policy.EE, 4, 1).arrivals_per_slot)


@pytest.mark.slow
def test_what_is_kept_is_the_best_look_and_plays_as_it_did(tmp_path) -> None:
    options = small(Policy.EE, replace(SHORT, width=0.05, learning_rate=0.05), nodes=(4,))
    found = search(options)
    found.save(tmp_path)
    scores = [one for _, one in found.run.curve]
    assert len(scores) == 3
    assert scores[0] < max(scores), "or it kept the rule, and the test shows nothing"
    assert search(options).run.curve == found.run.curve, "the same seed, the same search"
    contender = network(PlacementActor.load(tmp_path, Policy.EE))
    setting = Setting(Policy.EE, 4, 6, 0.6, True)
    kept = score(Policy.EE, play(contender, setting, VALIDATION_SEED)).mean()
    ruled = play(rule("pack"), setting, VALIDATION_SEED).aim.mean()
    assert kept == pytest.approx(max(scores), abs=2e-4)
    assert ruled == pytest.approx(scores[0], abs=1e-9)


@pytest.mark.slow
def test_no_candidate_is_played_on_the_clusters_of_a_comparison(monkeypatch) -> None:
    class Drawn:
        def integers(self, low: int, high: int) -> int:
            assert low > VALIDATION_SEED
            return TEST_SEED

    played: list[int] = []
    plays = DrawnEpisodes._play
    monkeypatch.setattr(DrawnEpisodes, "_play", lambda *given: played.append(given[-1]) or plays(*given))
    none = np.zeros((1, 9), np.float32)
    DrawnEpisodes(small(Policy.EE)).ahead(starting_network(len(columns(Policy.EE)), SHORT), none, none, Drawn())
    assert played == [TEST_SEED + 1]


@pytest.mark.slow
def test_clusters_without_gpus_are_no_evidence() -> None:
    net = starting_network(len(columns(Policy.GPU)), SHORT)
    options = small(Policy.GPU, nodes=(2,), nodes_at_once=2, looked_at=2)
    candidates = np.random.default_rng(0).standard_normal((2, 9)).astype(np.float32)
    rng = np.random.default_rng(3)
    found = np.array([DrawnEpisodes(options).ahead(net, candidates, -candidates, rng)[0] for _ in range(16)])
    assert np.isfinite(found).all()
    assert (found == 0).all(1).any(), "or each cluster had a GPU, and the test shows nothing"
    assert (found != 0).any()


@pytest.mark.slow
def test_it_learns_without_a_rule_that_is_worth_anything() -> None:
    """It begins as `spread`, which keeps every node in use."""
    evolution = replace(SHORT, generations=8, pairs=8)
    found = search(small(Policy.EE, evolution, rule="spread", nodes=(4,)))
    setting = Setting(Policy.EE, 6, 12, lifetimes_known=True)
    learned = play(acting(found.net, Policy.EE, "spread"), setting, 50, 200).in_use.mean()
    assert learned < 0.9 * play(random_node(), setting, 50, 200).in_use.mean()
