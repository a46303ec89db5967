"""How far a pool may shrink while its traffic moves, and who else sets the weights."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.decision.batch import decide_all
from rlscaler_operator.actuation.drain import Need, fewest, resumed
from rlscaler_operator.state.schedule import LONGEST_SECONDS, GrowingBackoff
from rlscaler_operator.state.traffic import CONFIRM_SECONDS, UNKNOWN, ForeignWeights, TrafficShift

NEED = Need(arrivals=80.0, carried=(16.0, 3.2), most=(10, 40))


def test_until_the_traffic_has_moved_a_pool_keeps_what_its_old_share_needs():
    assert fewest(NEED, (0.8, 1.0), (0.0, 1.0), True, (10, 30)) == (4, 1)
    assert fewest(NEED, (0.0, 1.0), (0.0, 1.0), True, (10, 30)) == (0, 1)


def test_where_the_weights_cannot_be_moved_it_keeps_what_its_share_needs():
    assert fewest(NEED, (0.8, 1.0), (0.8, 1.0), False, (10, 30)) == (4, 25)
    assert fewest(NEED, UNKNOWN, UNKNOWN, False, (1, 1)) == (1, 1)


@pytest.mark.parametrize(
    "need", [Need(math.nan, (16.0, 3.2), (10, 40)), Need(80.0, (math.nan, math.nan), (10, 40)), Need.unknown()]
)
def test_what_is_not_known_keeps_all_replicas_up_to_the_users_maximum(need):
    assert fewest(need, (0.8, 0.2), (0.0, 1.0), False, (9, 7)) == (9, 7)
    lowered = need._replace(most=(3, 40))
    assert fewest(lowered, (0.8, 0.2), (0.0, 1.0), False, (9, 7)) == (3, 7)


def test_no_load_at_all_still_keeps_one_replica_for_a_share():
    assert fewest(NEED._replace(arrivals=0.0), (0.8, 1.0), (0.0, 1.0), True, (10, 30)) == (1, 1)


def test_a_share_is_in_force_until_it_has_drained_and_every_gateway_has_accepted_the_new_one():
    shift = TrafficShift()
    shift.look((0.8, 0.2), 1, 0.0)
    assert shift.in_force() == UNKNOWN
    shift.settle(math.inf, 5.0, 5.0)
    assert shift.in_force() == (0.8, 0.2)
    shift.look((0.0, 1.0), 2, 10.0)
    shift.settle(2, 5.0, 14.9)
    assert shift.in_force() == (0.8, 1.0)
    shift.settle(1, 5.0, 20.0)
    assert shift.in_force() == (0.8, 1.0)
    assert not shift.overdue(1, 20.0)
    assert shift.overdue(1, 10.0 + CONFIRM_SECONDS)
    shift.settle(2, 5.0, 20.0)
    assert shift.in_force() == (0.0, 1.0)
    assert not shift.overdue(1, 1000.0)


def test_no_order_of_changes_forgets_a_share_before_its_time():
    """Against the plain definition: every share that was there within the last 5 s, or is not acknowledged."""
    for seed in range(200):
        draw, shift, told, now = random.Random(seed), TrafficShift(), [], 0.0
        current, acknowledged = UNKNOWN, math.inf
        for generation in range(1, 80):
            now += draw.choice([0.1, 1.0, 3.0, 8.0])
            shares = (draw.choice([0.0, 0.3, 0.5, 1.0]), draw.choice([0.0, 0.4, 1.0]))
            acknowledged = draw.choice([generation - 2, generation, math.inf])
            if shares != current or generation == 1:
                told.append((now, generation, current))
                current = shares
            shift.look(shares, generation, now)
            shift.settle(acknowledged, 5.0, now)
            told = [one for one in told if now - one[0] < 5.0 or one[1] > acknowledged]
            for pool in (0, 1):
                expected = max(current[pool], *(one[2][pool] for one in told), 0.0)
                assert shift.in_force()[pool] >= expected
                if len(told) < 30:
                    assert shift.in_force()[pool] == expected
        assert len(shift.replaced) <= 33


def deciding(entry, base, rate=20.0, **samples):
    one = entry("floor", replicas=base, rate=rate)
    return decide_all([replace(one, samples=replace(one.samples, **samples))])[0]


def test_what_is_pending_goes_on_with_the_weights_of_what_stays(entry):
    outcome = deciding(entry, (3, 5))
    decision = resumed(outcome, {"gpu": 1})
    assert decision.base.tolist() == [[3, 5]]
    assert decision.desired.tolist() == [[1, 5]]
    assert decision.weights[0, 0] < outcome.decision.weights[0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 90.0},
        {"paused": np.array([True])},
        {"paused_scale_down": np.array([True])},
    ],
)
def test_nothing_is_left_of_it_once_the_load_has_grown_or_a_pause_holds_the_replicas(entry, change):
    outcome = deciding(entry, (3, 5), **change)
    assert resumed(outcome, {"gpu": 1}) is None


def test_a_pool_that_is_there_already_has_nothing_pending(entry):
    assert resumed(deciding(entry, (1, 5)), {"gpu": 1}) is None


OURS, ARGO = ((800, 200),), ((500, 500),)


def test_a_tool_that_sets_the_weights_back_is_answered_once_and_then_after_growing_pauses():
    foreign, now, pauses = ForeignWeights(), 0.0, []
    assert not foreign.look(ARGO, "argocd-controller", 30.0, now)
    for _ in range(12):
        while foreign.backoff.waits(now):
            now += 1.0
        foreign.look(OURS, "rlscaler", 30.0, now)
        now += 1.0
        assert foreign.look(ARGO, "argocd-controller", 30.0, now)
        assert not foreign.look(ARGO, "argocd-controller", 30.0, now)
        pauses.append(foreign.backoff.seconds)
    assert pauses[:4] == [0.0, 150.0, 300.0, 600.0]
    assert pauses[-1] == LONGEST_SECONDS
    now += 3 * LONGEST_SECONDS
    foreign.look(OURS, "rlscaler", 30.0, now)
    assert foreign.look(ARGO, "argocd-controller", 30.0, now + 1)
    assert not foreign.backoff.waits(now + 1)


def test_an_edit_that_leaves_the_weights_is_none():
    foreign = ForeignWeights()
    foreign.look(OURS, "rlscaler", 30.0, 0.0)
    assert not foreign.look(OURS, "kubectl-edit", 30.0, 1.0)


def test_the_first_pause_is_never_longer_than_the_longest():
    backoff = GrowingBackoff()
    backoff.again(0.0, 10_000.0)
    backoff.again(1.0, 10_000.0)
    assert backoff.until == 1.0 + LONGEST_SECONDS
