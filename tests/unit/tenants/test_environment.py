"""The environment of agents: agents that do as the rule does change nothing, and what is lost is masked."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from rlscaler_core.arbiter.features import FEATURES
from rlscaler_core.models import load_bundled
from rlscaler_rl.tenants.draw import Request, draw
from rlscaler_rl.tenants.environment import AS_THE_RULE, REWARD_SCALE, SLOTS, TENANT_WIDTH, Setting, TenantsEnv
from rlscaler_rl.tenants.play import by_network, play
from rlscaler_rl.tenants.signals import Loss
from tests.harness.arbiters import arbitrary_arbiter

REQUEST = Request(tenants=3, pools=2, hours=1, tightness=0.6, loads=("jobs_1", "random_1"), cpu=True, seed=4)
AS_RULE = np.full((2, 3, len(SLOTS)), AS_THE_RULE)


def finished(env, sharing=lambda env: None):
    """Play an episode in which all agents do as the rule does; gives the rewards of each step."""
    env.reset()
    rewards, done = [], False
    while not done:
        _, reward, done = env.step(AS_RULE, sharing(env))
        rewards.append(reward)
    return rewards


@pytest.mark.slow
@pytest.mark.parametrize("arbiter", ["agent", "FirstCome", None])
def test_agents_that_do_as_the_rule_does_play_what_is_played_without_agents(arbiter):
    """Bids of 1 are weighted max-min."""
    env = TenantsEnv(Setting(REQUEST, arbiter=arbiter))
    rewards = finished(env)
    drawn = draw(REQUEST)
    rule = "MaxMinFair" if arbiter == "agent" else arbiter
    expected = play(drawn.scenarios, drawn.tenants, drawn.gpus, load_bundled("rule"), rule)
    found = env.figures()
    for field in fields(found):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name), err_msg=field.name)
    total = -np.mean([reward.total for reward in rewards], axis=0) / REWARD_SCALE
    np.testing.assert_allclose(total, found.j.reshape(2, 3).mean(axis=1), atol=0.02, err_msg="rewards are J")


@pytest.mark.slow
def test_a_network_shares_in_the_environment_as_in_play():
    learned = by_network(arbitrary_arbiter(5))  # one whose bids are not all alike here
    env = TenantsEnv(Setting(REQUEST))
    finished(env, lambda env: learned(env.pools, env.samples))
    drawn = draw(REQUEST)
    expected = play(drawn.scenarios, drawn.tenants, drawn.gpus, load_bundled("rule"), learned)
    np.testing.assert_array_equal(env.figures().j, expected.j)
    fair = play(drawn.scenarios, drawn.tenants, drawn.gpus, load_bundled("rule"), "MaxMinFair")
    assert not np.array_equal(fair.j, expected.j), "its bids change something"


def test_local_rewards_are_of_the_own_pool_and_the_arbiter_has_one():
    env = TenantsEnv(Setting(REQUEST))
    env.reset()
    more_cpu = AS_RULE.copy()
    more_cpu[0, 0, SLOTS.index("cpu")] = 4
    for _ in range(4):
        _, reward, _ = env.step(more_cpu)
    arbiter = reward.local[..., SLOTS.index("arbiter")]
    np.testing.assert_array_equal(arbiter, np.broadcast_to(arbiter[:, :1], arbiter.shape))
    assert (reward.local <= 0).all()
    other = TenantsEnv(Setting(REQUEST))
    other.reset()
    for _ in range(4):
        _, without, _ = other.step(AS_RULE)
    cpu = SLOTS.index("cpu")
    assert reward.local[0, 0, cpu] < without.local[0, 0, cpu], "CPU replicas cost their agent"


@pytest.mark.parametrize("unit", ["signal", "agent"])
def test_what_is_lost_is_zero_with_a_mask_and_as_often_as_asked_for(unit):
    env = TenantsEnv(Setting(REQUEST, Loss(0.4, unit)), seed=1)
    seen, known = env.reset(), []
    for _ in range(60):
        tenant = seen[:, :, 0, :TENANT_WIDTH]
        fed, mask = tenant[..., :10], tenant[..., 10:20]
        assert (fed[mask == 0] == 0).all()
        known.append(mask[..., [2, 4]])  # utilization of the GPU pool, and arrivals
        member = seen[:, :, 2, : len(FEATURES)]
        np.testing.assert_array_equal(member[..., FEATURES.index("utilization_known")] == 0, mask[..., 2] == 0)
        seen, _, _ = env.step(AS_RULE)
    table = np.array(known)
    assert 0.45 < table.mean() < 0.75
    together = (table[..., 0] == table[..., 1]).all()
    assert together == (unit == "agent")


def test_nothing_is_lost_unless_it_is_asked_for():
    env = TenantsEnv(Setting(REQUEST, Loss(0.0)))
    seen = env.reset()
    assert (seen[:, :, 0, 14] == 1).all()
    assert np.isfinite(seen).all()


def test_a_seed_begins_the_same_episode():
    env = TenantsEnv(Setting(REQUEST))
    first, again, other = (env.reset(seed).copy() for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
