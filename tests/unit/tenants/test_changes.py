"""Tenants that come and go, and GPUs that are lost and come back, in the middle of an episode."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.arbiter.rules import RULES
from rlscaler_core.decision.types import GPU
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.simulation import ledger as ledgers
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.tenants.changes import LOST, course
from rlscaler_rl.tenants.compare import compare
from rlscaler_rl.tenants.draw import Request, draw
from rlscaler_rl.tenants.environment import AS_THE_RULE, Setting, TenantsEnv
from rlscaler_rl.tenants.play import play
from rlscaler_rl.tenants.room import SharedRoom

pytestmark = pytest.mark.slow

LOADS = ("jobs_1", "random_1")
HOUR = 3600


def drawn(change, **columns):
    return draw(Request(3, 3, 1, 0.8, LOADS, seed=5, change=change, **columns))


def stepped(change, seen):
    """Play the forecast rule under weighted max-min, and call `seen` with the pools before each of its steps."""
    env = TenantsEnv(Setting(Request(3, 3, 1, 0.8, LOADS, cpu=True, seed=5, change=change), arbiter="MaxMinFair"))
    env.reset()
    done = False
    while not done:
        seen(env.pools)
        _, _, done = env.step(np.full((*env.shape, 3), AS_THE_RULE, np.int64))
    return env


@pytest.mark.parametrize("change", ["join", "leave"])
def test_a_tenant_that_is_away_has_no_load_no_pods_and_no_guarantee(change):
    moments = {True: 0, False: 0}

    def seen(pools):
        away = pools.changes.away(pools.second)
        assert away.sum() in (0, 3), "the first tenant of each of three pools"
        target = pools.batch.cluster.pool["target"]
        assert (target[away] == 0).all()
        assert (target[~away, GPU] >= 1).all()
        members = pools.members
        assert (members.guaranteed[away] == 0).all()
        assert (members.minimum[away] == 0).all()
        assert (members.guaranteed[~away] >= 1).all()
        moments[bool(away.any())] += 1

    env = stepped(change, seen)
    assert min(moments.values()) >= 30
    rate = env.scenarios.rate.reshape(3, 3, -1)
    there = course(change, np.repeat(np.arange(3), 3), np.full(3, 8), HOUR).there(HOUR).reshape(3, 3, -1)
    assert (rate[~there] == 0).all()
    assert rate[:, 1:].sum() > 0
    assert there[:, 1:].all()


@pytest.mark.parametrize("shared_by", [None, *RULES])
def test_what_is_away_is_shared_by_the_others_and_taken_back(shared_by):
    got = drawn("leave")
    quiet = drawn("none")
    rule = load_bundled("rule")
    with_it = play(quiet.scenarios, quiet.tenants, quiet.gpus, rule, shared_by, None, quiet.changes)
    without = play(got.scenarios, got.tenants, got.gpus, rule, shared_by, None, got.changes)
    first = np.arange(0, 9, 3)
    assert (without.gpus[first] < with_it.gpus[first]).all()
    assert (without.requests[first] < with_it.requests[first]).all()
    np.testing.assert_array_equal(np.delete(without.requests, first), np.delete(with_it.requests, first))


def test_pods_go_with_their_gpus_and_wait_for_others_until_those_are_back():
    counts: dict[int, np.ndarray] = {}

    def seen(pools):
        held = np.bincount(pools.tenants.pool, pools.room.held, 3)
        assert (held <= pools.room.gpus).all()
        assert (pools.batch.cluster.pool["ready"][:, GPU] <= pools.room.held).all()
        counts[pools.second] = pools.room.gpus.copy()

    env = stepped("gpus", seen)
    before, during, after = counts[0], counts[HOUR // 2], counts[HOUR - env.pools.batch.interval]
    np.testing.assert_array_equal(before - during, np.round(LOST * before))
    np.testing.assert_array_equal(after, before)


def test_the_budget_is_what_the_nodes_have_while_gpus_are_lost():
    amounts = {}
    stepped("gpus", lambda pools: amounts.update({pools.second: (pools.budgets.amount, pools.room.gpus)}))
    for second, (amount, gpus) in amounts.items():
        if second % (HOUR // 3):
            np.testing.assert_array_equal(amount[:, 0], gpus)


def test_requests_are_accounted_for_and_a_contender_without_a_budget_goes_on():
    for change in ("join", "leave", "gpus"):
        got = drawn(change)
        played = play(got.scenarios, got.tenants, got.gpus, Hpa(), None, None, got.changes)
        assert np.isfinite(played.j).all()
        np.testing.assert_allclose(played.requests, got.scenarios.arrivals.sum(axis=1))


def test_any_gpu_may_be_lost_and_ready_pods_are_among_those_that_are_gone():
    pool, held, ready = np.zeros(2, np.int64), np.array([6, 2]), np.array([5, 2])
    gone = []
    for seed in range(400):
        room = SharedRoom(pool, np.array([10]), held, seed)
        lost, running = room.lose(np.array([5]), ready)
        assert (running <= lost).all()
        assert (running >= lost - (held - ready)).all()
        assert (room.held == held - lost).all()
        assert room.gpus.tolist() == [5]
        assert room.held.sum() <= 5
        gone.append(lost)
    np.testing.assert_allclose(np.mean(gone, axis=0), held / 2, atol=0.2)


def test_nothing_changes_where_nothing_is_asked_for():
    calm = course("none", np.zeros(2, np.int32), np.array([4]), HOUR)
    assert calm.there(HOUR).all()
    assert not calm.away(10).any()
    assert calm.lost.tolist() == [0]


def test_ways_to_share_are_compared_under_a_change():
    table = compare(Request(3, 3, 1, 0.8, LOADS, seed=5, change="gpus"), lambda text: None)
    rows = {row.name: row for row in table.rows}
    assert rows["max_min"].figures["j"].mean > rows["alone"].figures["j"].mean
    assert table.request["change"] == "gpus"


def test_the_ledger_holds_with_every_change():
    for change in ("join", "leave", "gpus"):
        env = stepped(change, lambda pools: None)
        assert env.pools.second == HOUR
        ledger = ledgers.read(env.pools.batch.cluster)
        ledgers.check(ledger, env.scenarios)
        assert env.pools.second % SENSE_SECONDS == 0
