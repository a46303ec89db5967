"""The registered environment, as gymnasium and agents of others use it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FlattenObservation
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from rlscaler_core.placement.policies import Policy
from rlscaler_rl.placement.gym_env import ID, PlacementEnv


@pytest.mark.parametrize("policy", Policy)
def test_gymnasium_accepts_the_environment(policy: Policy) -> None:
    check_env(PlacementEnv(policy, nodes=5, pods=40), skip_render_check=True)


def test_stable_baselines_accepts_the_environment_when_it_is_flat() -> None:
    check_env_for_sb3(FlattenObservation(PlacementEnv("EE", nodes=5, lifetimes_known=True)))


def test_it_is_made_by_its_name_and_ends_after_so_many_pods() -> None:
    env = gym.make(f"rlscaler_rl.placement.gym_env:{ID}", policy="EL", nodes=6, pods=30)
    seen, info = env.reset(seed=3)
    rng, count, truncated = np.random.default_rng(0), 0, False
    while not truncated:
        among = np.flatnonzero(info["action_mask"])
        action = rng.choice(among) if len(among) else 0
        seen, reward, terminated, truncated, info = env.step(action)
        assert env.observation_space.contains(seen)
        assert info["placed"] == bool(len(among)), "the mask says exactly who takes the pod"
        assert np.isfinite(reward)
        assert not terminated
        count += 1
    assert count == 30


@pytest.mark.parametrize("policy", ["EE", "LB", "EL"])
def test_the_episodes_of_the_thesis_end_and_the_cluster_goes_on(policy: str) -> None:
    check_env(PlacementEnv(policy, nodes=4, thesis_reward=True), skip_render_check=True)
    env = PlacementEnv(policy, nodes=4, pods=400, thesis_reward=True)
    env.reset(seed=0)
    rng, terminated = np.random.default_rng(0), False
    while not terminated:
        _, reward, terminated, truncated, _ = env.step(rng.choice(np.flatnonzero(env.action_masks())))
        assert not truncated
    assert reward == (-1 if policy == "LB" else pytest.approx(max(reward, 0)))
    cluster = env._cluster
    env.reset()
    assert env._cluster is cluster
    env.reset()
    assert env._cluster is not cluster


def test_a_policy_that_the_thesis_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="the thesis has EE, LB, EL, and no GPU"):
        PlacementEnv("GPU", thesis_reward=True)


def test_a_node_that_fails_stays_within_the_space() -> None:
    env = PlacementEnv("EE", nodes=4, pods=200, failures_per_day=200.0)
    env.reset(seed=0)
    down = False
    for _ in range(200):
        seen, *_ = env.step(np.int64(0))
        assert env.observation_space.contains(seen)
        down |= bool((env._cluster.nodes.allocatable == 0).any())
    assert down


def test_a_forbidden_node_refuses_the_pod_and_costs() -> None:
    env = PlacementEnv("EE", nodes=4, load=1.3)
    _, info = env.reset(seed=1)
    env._cluster.nodes.requested[:, 2] = env._cluster.nodes.allocatable[:, 2]
    assert not env.action_masks()[2]
    _, reward, *_, info = env.step(np.int64(2))
    assert not info["placed"]
    assert reward <= -1.0
