"""The simulated clusters: what is counted adds up, whatever is placed."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from rlscaler_core.placement.policies import Policy, choose
from rlscaler_core.placement.rules import RULES
from rlscaler_core.placement.types import WHOLE_GPU, Nodes, Pods
from rlscaler_rl.placement.drawn import MEAN_SLOTS, SLOT_S, Setting
from rlscaler_rl.placement.environment import Placement
from rlscaler_rl.placement.play import play, random_node, rule


def step_at_random(env: Placement, rng: np.random.Generator):
    among = env.mask()
    return env.step(choose(rng.random(among.shape), env.nodes, env.pods, among))


@pytest.mark.parametrize("policy", Policy)
def test_nothing_is_overbooked_and_nothing_is_lost(policy: Policy) -> None:
    env = Placement(Setting(policy, 8, 6, load=1.2, failures_per_day=20.0), 3)
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        outcome = step_at_random(env, rng)
        refused += (~outcome.placed).sum()
        nodes = env.nodes
        assert (nodes.requested <= nodes.allocatable + 1e-6).all()
        assert (nodes.requested >= -1e-6).all()
        assert (nodes.pods >= 0).all()
        assert (nodes.gpu_free >= -1e-6).all()
        assert (nodes.gpu_free <= WHOLE_GPU * (np.arange(8) < nodes.gpus[..., None])).all()
        assert ((nodes.pods == 0) == (nodes.requested[..., 0] < 1e-6)).all()
        # What is due to end is what is there.
        np.testing.assert_allclose(env._ends.sum(0)[..., 2], nodes.pods)
        np.testing.assert_allclose(env._ends.sum(0)[..., :2], nodes.requested, atol=1e-6)
    assert refused > 0, "more is asked for than there is"


@pytest.mark.parametrize("policy", Policy)
def test_copies_differ_by_what_is_placed_alone(policy: Policy) -> None:
    setting = Setting(policy, 5, 3, 0.7, lifetimes_known=True, lifetime_error=0.3, failures_per_day=20.0)
    names = ("pack", "spread")

    def mixed(nodes: Nodes, pods: Pods, among: np.ndarray) -> np.ndarray:
        first, second = (RULES[name](nodes, pods) for name in names)
        return np.concatenate([first[:3], second[3:]])

    both = play(mixed, dataclasses.replace(setting, copies=2), 9, steps=150)
    for part, name in zip((slice(3), slice(3, None)), names, strict=True):
        alone = play(rule(name), setting, 9, steps=150)
        for one, other in zip(dataclasses.astuple(both), dataclasses.astuple(alone), strict=True):
            np.testing.assert_array_equal(one[part], other)


def test_a_node_that_the_mask_forbids_refuses_the_pod() -> None:
    env = Placement(Setting(Policy.EE, 4, 3, load=1.3), 0)
    env.nodes.requested[:, 0] = env.nodes.allocatable[:, 0]
    before = env.nodes.pods.copy()
    outcome = env.step(np.zeros(3, np.int64))
    assert not outcome.placed.any()
    assert (env.nodes.pods <= before).all()
    assert (outcome.reward <= -1).all()


def test_rewards_of_ee_add_up_to_node_hours() -> None:
    """Charged when a pod is placed: by how long it keeps its node in use beyond the pods that are there."""
    setting = Setting(Policy.EE, 6, 4, failures_per_day=0.0)
    env = Placement(setting, 1)
    owed = np.maximum(env._last - env._slot, 0).sum(-1).astype(float)
    rng, in_use, charged, slot = np.random.default_rng(1), np.zeros(4), np.zeros(4), env._slot
    for _ in range(1500):
        outcome = step_at_random(env, rng)
        charged -= (outcome.reward + 1.0 * ~outcome.placed) * MEAN_SLOTS
        if env._slot > slot:
            slot = env._slot
            in_use += (env._last >= slot).sum(-1)
    left = np.maximum(env._last - env._slot, 0).sum(-1)
    # Every node is in use from now to its last end: what was owed and charged is what was used and is still owed.
    np.testing.assert_allclose(owed + charged, in_use + left, rtol=0.02)


def test_lifetimes_are_seen_only_where_they_are_known() -> None:
    for known in (False, True):
        env = Placement(Setting(Policy.EE, 5, 3, lifetimes_known=known), 0)
        for _ in range(30):
            step_at_random(env, np.random.default_rng(0))
        used = env.nodes.pods > 0
        assert np.isnan(env.pods.lifetime_s).all() == (not known)
        assert np.isnan(env.nodes.empty_in_s[used]).all() == (not known)
        assert (env.nodes.empty_in_s[~used] == 0).all()
        if known:
            assert (env.nodes.empty_in_s[used] % SLOT_S == 0).all()


def test_what_pods_say_of_their_lifetimes_may_be_wrong_and_what_counts_is_when_they_end() -> None:
    exact, wrong = (
        Placement(Setting(Policy.EE, 5, 3, lifetimes_known=True, lifetime_error=error), 0) for error in (0.0, 0.5)
    )
    apart = False
    for _ in range(60):
        for env in (exact, wrong):
            step_at_random(env, np.random.default_rng(0))
        used = exact.nodes.pods > 0
        ends = np.maximum(exact._last - exact._slot, 0) * SLOT_S
        np.testing.assert_array_equal(exact.nodes.empty_in_s[used], ends[used])
        used = wrong.nodes.pods > 0
        apart |= bool((wrong.nodes.empty_in_s != np.maximum(wrong._last - wrong._slot, 0) * SLOT_S)[used].any())
        assert (wrong.nodes.empty_in_s[~used] == 0).all()
        assert (wrong.pods.lifetime_s != wrong._slots * SLOT_S).all()
        assert (exact.pods.lifetime_s == exact._slots * SLOT_S).all()
    assert apart


def test_the_same_seed_is_the_same_cluster() -> None:
    setting = Setting(Policy.EL, 6, 3)
    once, again, other = (play(rule("pack"), setting, seed, 50) for seed in (4, 4, 5))
    assert str(once) == str(again) != str(other)


@pytest.mark.parametrize(
    ("policy", "better", "worse", "measure"),
    [
        (Policy.EE, "pack", "least-allocated", "in_use"),
        (Policy.LB, "spread", "pack", "uneven"),
    ],
)
def test_a_rule_is_good_at_what_it_is_for(policy, better: str, worse: str, measure: str) -> None:
    setting = Setting(policy, 10, 8)
    found = [getattr(play(rule(name), setting, 0), measure).mean() for name in (better, worse)]
    assert found[0] < 0.9 * found[1]


def test_each_cluster_has_figures_of_its_own() -> None:
    shared, plain = (
        play(rule("best-fit"), Setting(policy, 5, 3, load=0.9), 0, 40) for policy in (Policy.GPU, Policy.EE)
    )
    assert len(set(shared.gpus_used)) == len(set(shared.in_use)) == 3
    assert ((shared.gpus_used > 0.2) & (shared.gpus_used <= 1)).all()
    assert np.isnan(plain.gpus_used).all()
    assert (plain.latency_met == 1).all(), "pods without limits, and refused ones do not count"


def test_latency_counts_for_el() -> None:
    setting = Setting(Policy.EL, 10, 8, load=0.3)
    near = play(rule("latency-then-pack"), setting, 0)
    assert near.latency_met.mean() > play(random_node(), setting, 0).latency_met.mean() + 0.1


def test_fifty_thousand_steps_a_second() -> None:
    env = Placement(Setting(Policy.EE, 12, 512), 0)
    rng = np.random.default_rng(0)
    step_at_random(env, rng)
    began = time.process_time()
    for _ in range(20):
        step_at_random(env, rng)
    assert 20 * 512 / (time.process_time() - began) > 50_000


def test_settings_say_how_many_pods_arrive() -> None:
    setting = Setting(Policy.EE, 100, 1)
    assert dataclasses.replace(setting, nodes=200).arrivals_per_slot == pytest.approx(2 * setting.arrivals_per_slot)
