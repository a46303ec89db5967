"""Tenants in the simulator: decided as everywhere else, shared as live, and what a guarantee is worth there."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.arbiter.rules import RULES
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.scenario import from_rate
from rlscaler_rl.tenants.play import play
from rlscaler_rl.tenants.pools import Tenants

SECONDS = 900
T = np.arange(SECONDS)


@pytest.fixture(scope="module")
def rule():
    return load_bundled("rule")


def services(*rates, initial=2):
    """Services on GPUs alone: 20 requests/s for each replica."""
    table = np.stack([np.broadcast_to(np.asarray(rate, float), SECONDS) for rate in rates])
    columns = {"present": (True, False), "min_replicas": (1, 0), "max_replicas": (12, 0), "schedulable": (64, 64)}
    return from_rate(table, np.arange(len(rates)), initial=(initial, 0), **columns)


def terms(n, guaranteed=0.0, pool=0, **columns):
    ones = {"weight": np.ones(n), "priority": np.zeros(n, np.int32)}
    pools = np.broadcast_to(np.asarray(pool, np.int32), (n,)).copy()
    return Tenants(pool=pools, guaranteed=np.broadcast_to(np.asarray(guaranteed, float), (n,)), **ones | columns)


def waves():
    return [60 + 50 * np.sin(2 * np.pi * (T / 600 + phase)) for phase in (0, 0.3, 0.6)]


@pytest.mark.parametrize("shared_by", [None, *RULES])
def test_with_enough_gpus_every_way_to_share_is_the_episode_that_is_played_elsewhere(rule, shared_by):
    scenarios = services(*waves())
    got = play(scenarios, terms(3, 2.0), np.array([1000]), rule, shared_by)
    alone = run(scenarios, rule)
    np.testing.assert_allclose(got.late_percent, alone.late_percent)
    np.testing.assert_allclose(got.gpus, alone.gpu_replica_seconds / SECONDS)
    np.testing.assert_allclose(got.j, alone.j)
    assert (got.waiting == 0).all()


def test_a_contender_with_enough_gpus_is_the_episode_that_is_played_elsewhere():
    scenarios = services(*waves())
    got, alone = play(scenarios, terms(3), np.array([1000]), Hpa(), None), run(scenarios, Hpa())
    np.testing.assert_allclose(got.j, alone.j)


@pytest.mark.parametrize("shared_by", [None, *RULES])
def test_no_more_gpus_are_held_than_there_are(rule, shared_by):
    got = play(services(*waves(), *waves()), terms(6, 1.0, [0, 0, 0, 1, 1, 1]), np.array([7, 12]), rule, shared_by)
    held = got.gpus.reshape(2, 3).sum(axis=1)
    assert (held <= [7, 12]).all()
    assert held[0] > 5
    assert (got.busy <= got.gpus + 1e-9).all()


@pytest.mark.parametrize("shared_by", RULES)
def test_a_grant_leaves_no_pod_waiting_and_a_guarantee_is_there_when_it_is_needed(rule, shared_by):
    """The first tenant holds what it can get, until the second needs its share after five minutes."""
    late = np.where(T < 300, 5.0, 60.0)
    scenarios, tenants, gpus = services(200, late, initial=3), terms(2, [0.0, 4.0]), np.array([8])
    race = play(scenarios, tenants, gpus, rule, None)
    shared = play(scenarios, tenants, gpus, rule, shared_by)
    assert race.below[1] > 0.3, "without a budget it waits for most of the time"
    assert shared.below[1] < 0.1
    assert shared.late_percent[1] < race.late_percent[1] - 20
    assert shared.waiting.sum() < 0.1 * race.waiting.sum()


def test_the_same_tenants_come_to_the_same_figures(rule):
    scenarios = services(*waves())
    one, two = (play(scenarios, terms(3), np.array([7]), rule, None) for _ in range(2))
    np.testing.assert_array_equal(one.j, two.j)


def test_pools_side_by_side_are_what_each_is_alone(rule):
    """Whoever waits for a GPU in the same tick is drawn, so pools are compared under an arbiter, where nobody does."""
    scenarios, tenants = services(*waves(), *waves()[::-1]), terms(6, 1.0, [0, 0, 0, 1, 1, 1])
    both = play(scenarios, tenants, np.array([8, 6]), rule, "MaxMinFair")
    for number, rows in enumerate((slice(0, 3), slice(3, 6))):
        own = tenants.take(rows)
        own.pool[:] = 0
        alone = play(scenarios.take(rows), own, np.array([[8, 6][number]]), rule, "MaxMinFair")
        np.testing.assert_allclose(both.late_percent[rows], alone.late_percent, atol=0.5)
        np.testing.assert_allclose(both.gpus[rows], alone.gpus, atol=0.05)
