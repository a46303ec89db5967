"""HRAC: the networks' shapes and masks, what shaping leaves as it is, that it learns, and what it saves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from rlscaler_core.arbiter.features import FEATURES
from rlscaler_core.arbiter.learned import Learned
from rlscaler_rl.tenants.environment import AS_THE_RULE, SLOTS, WIDTH, Rewards
from rlscaler_rl.tenants.hrac import Learner, Memory, Options, Trained, homogeneous, shaped
from rlscaler_rl.tenants.network import Critic, Policies, Value
from tests.harness.arbiters import arbitrary_policies

SMALL = Options(tenants=3, hidden=16, batch=32, learning_rate=3e-3)


def drawn(p, m, seed=0):
    generator = torch.Generator().manual_seed(seed)
    seen = torch.rand(p, m, len(SLOTS), WIDTH, generator=generator)
    return seen, torch.randint(5, (p, m, len(SLOTS)), generator=generator)


@pytest.mark.parametrize("attention", ["off", "dense", "grouped"])
def test_tenants_that_are_absent_change_nothing(attention):
    seen, action = drawn(2, 6)
    there = torch.tensor([[True] * 4 + [False] * 2] * 2)
    critic = Critic(SLOTS, 16, attention)
    few = critic(seen[:, :4], action[:, :4], there[:, :4])
    torch.testing.assert_close(critic(seen, action, there)[:, :4], few)
    value, policies = Value(SLOTS, 16), arbitrary_policies(0, 0.3)
    torch.testing.assert_close(value(seen, there), value(seen[:, :4], there[:, :4]))
    torch.testing.assert_close(policies(seen, there)[:, :4], policies(seen[:, :4], there[:, :4]))


@pytest.mark.parametrize("attention", ["off", "dense", "grouped"])
def test_tenants_in_another_order_have_the_same_values_in_that_order(attention):
    seen, action = drawn(2, 5)
    there, order = torch.ones(2, 5, dtype=torch.bool), torch.tensor([3, 0, 4, 1, 2])
    critic = Critic(SLOTS, 16, attention)
    moved = critic(seen[:, order], action[:, order], there)
    torch.testing.assert_close(moved, critic(seen, action, there)[:, order])


@pytest.mark.parametrize("attention", ["dense", "grouped"])
def test_values_depend_on_what_others_do_and_not_on_the_own_action(attention):
    seen, action = drawn(1, 3)
    there, critic = torch.ones(1, 3, dtype=torch.bool), Critic(SLOTS, 16, attention)
    before = critic(seen, action, there)
    changed = action.clone()
    changed[0, 1, 0] = (action[0, 1, 0] + 1) % 5
    after = critic(seen, changed, there)
    torch.testing.assert_close(after[0, 1, 0], before[0, 1, 0])
    assert not torch.allclose(after[0, 0, 0], before[0, 0, 0])
    assert not torch.allclose(after[0, 1, 1], before[0, 1, 1])


@pytest.mark.parametrize("attention", ["dense", "grouped"])
def test_a_tenant_that_is_alone_has_finite_values(attention):
    seen, action = drawn(2, 1)
    assert torch.isfinite(Critic(SLOTS, 16, attention)(seen, action, torch.ones(2, 1, dtype=torch.bool))).all()


def test_an_untrained_policy_does_as_the_rule_does():
    seen, _ = drawn(2, 3)
    assert (Learner(SMALL).act(seen.numpy(), greedy=True) == AS_THE_RULE).all()


def test_roles_that_are_off_share_one_network():
    assert len(Policies(SLOTS, 8).nets) == 3
    assert len(Policies(homogeneous(SMALL).roles, 8).nets) == 1


def chain(options, values):
    """The best of all plans in a chain of three states with two actions, by the discounted shaped reward."""
    rewards = {(s, a): ((s * 2 + a) % 3 - 1.0, (s + a) % 2 * 1.5) for s in range(3) for a in range(2)}
    returns = {}
    for plan in itertools.product(range(2), repeat=8):
        state, total = 0, 0.0
        for step, action in enumerate(plan):
            then = (state + 1 + action) % 3
            local, shared = (torch.tensor([float(one)]) for one in rewards[state, action])
            value = torch.tensor([values[state]])
            # At the end of a plan the potential counts as 0, as in Ng et al.
            ahead = torch.tensor([values[then] if step < 7 else 0.0])
            reward = shaped(options, local[:, None, None], shared, value, ahead)
            total += options.gamma**step * float(reward)
            state = then
        returns[plan] = total
    return returns


def test_whatever_the_value_is_the_potential_shifts_all_plans_alike():
    options = Options(gamma=0.9, local=0.4)
    plain, shaped_ = chain(options, [0.0, 0.0, 0.0]), chain(options, [5.0, -3.0, 11.0])
    differences = np.array([shaped_[plan] - plain[plan] for plan in plain])
    np.testing.assert_allclose(differences, -(1 - options.local) * 5.0, atol=1e-4)


def test_the_difference_of_the_paper_prefers_some_plans_by_the_value_alone():
    options = Options(gamma=0.9, local=0.4, shaping="difference")
    one, other = chain(options, [0.0, 0.0, 0.0]), chain(options, [5.0, -3.0, 11.0])
    assert np.ptp([other[plan] - one[plan] for plan in one]) > 1.0


def learned_from(options, steps=200):
    """Train where each slot's best action is another: 0 for the accelerator agent, 4 for CPU and 3 for the arbiter."""
    best = np.array([0, 4, 3])
    learner, memory = Learner(options), Memory(512, 3)
    rng = np.random.default_rng(0)
    seen = rng.random((512, 3, 3, WIDTH), np.float32)
    action = rng.integers(0, 5, (512, 3, 3))
    local = -np.abs(action - best).astype(np.float32) / 4
    memory.add(seen, action, Rewards(local, local.mean(axis=(1, 2))), seen)
    for _ in range(steps):
        learner.update(learner.draw(memory))
    return learner.act(seen[:50], greedy=True), best


@pytest.mark.slow
def test_actions_that_are_worth_the_same_stay_so_while_the_critic_learns_how_much_is_lost():
    """Most of what is remembered is what the rule does. That does not make other actions look better."""
    options = Options(tenants=3, hidden=16, batch=32, local=1.0)
    learner, memory = Learner(options), Memory(512, 3)
    rng = np.random.default_rng(0)
    seen = rng.random((512, 3, 3, WIDTH), np.float32)
    action = rng.choice(5, (512, 3, 3), p=[0.09, 0.09, 0.64, 0.09, 0.09])
    local = np.full(action.shape, -0.5, np.float32)
    memory.add(seen, action, Rewards(local, local.mean(axis=(1, 2))), seen[rng.permutation(512)])
    for _ in range(120):
        learner.update(learner.draw(memory))
    with torch.no_grad():
        worth = learner.critic(torch.from_numpy(seen), torch.from_numpy(action), torch.ones(512, 3, dtype=torch.bool))
    assert worth.mean() < -0.4, "it has learned that something is lost"
    assert (worth - worth[..., AS_THE_RULE, None]).abs().amax() < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["grouped", "off"])
def test_it_learns_what_each_role_should_do(attention):
    options = Options(tenants=3, hidden=16, gamma=0.0, learning_rate=1e-2, attention=attention, local=1.0)
    found, best = learned_from(options)
    assert (found == best).mean() > 0.95


@pytest.mark.slow
def test_slots_that_do_not_act_do_as_the_rule_does():
    options = Options(tenants=3, hidden=16, gamma=0.0, learning_rate=1e-2, acts=(False, False, True), local=1.0)
    found, best = learned_from(options)
    assert (found[..., :2] == AS_THE_RULE).all()
    assert (found[..., 2] == best[2]).mean() > 0.95


def test_what_is_saved_acts_as_what_was_trained(tmp_path):
    policies = arbitrary_policies(3, 0.5)
    Trained(policies, SMALL, 1.0, [0.0, 1.0, 1.0, 1.0], [(0, 1.0)]).save(tmp_path)
    learned = Learned.load(tmp_path)
    seen, _ = drawn(4, 5)
    seen[:, :, 2, len(FEATURES) :] = 0
    with torch.no_grad():
        expected = policies(seen, torch.ones(4, 5, dtype=torch.bool))[:, :, 2].numpy()
    found = learned._logits(seen[:, :, 2, : len(FEATURES)].numpy(), np.ones((4, 5, 1), np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert (tmp_path / "accelerator.onnx").is_file()
    assert (tmp_path / "training_progress.json").is_file()


@pytest.mark.parametrize(
    ("curve", "epochs"),
    [
        ([(0, 4.0), (5, 3.5), (10, 3.01), (15, 3.0), (20, 3.4)], 10),
        ([(0, 4.0), (5, 4.2), (10, 4.0)], 0),
        ([(0, 4.0), (5, 3.0)], 5),
    ],
)
def test_epochs_to_most_of_what_was_gained_on_the_tune_loads(curve, epochs):
    assert Trained(Policies(SLOTS, 8), SMALL, 1.0, [0.0] * 20, curve).epochs_to() == epochs
