"""Pods that do not come up: the other pool takes what they would have carried, and no pool is frozen by one of them.

A GPU replica answers 20 requests/s and a CPU replica 4.
"""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.guards import GUARDS, STAGES, Guard, without
from rlscaler_core.decision.observation import ObservationContract, observe
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Decision, Flag

CONTRACT = ObservationContract(stack_size=1)
LONG, SHORT = 100.0, 89.0
SLOW_CPU = {"cold_start_seconds": (8.0, 45.0)}


def decided(
    pending: tuple[float, float],
    action: tuple[int, int] = (0, 0),
    base: tuple[int, int] = (4, 2),
    ready: tuple[int, int] = (4, 2),
    rate: float = 1.0,
    *,
    stuck: tuple[int, int] | None = None,
    tick: bool = False,
    hold: tuple[int, int] = (0, 0),
    guards: tuple[Guard, ...] = GUARDS,
    **params: object,
) -> Decision:
    given = {"requests_per_second": (20, 4), "max_replicas": 30, "step_size": 1, "target_utilization": 1.0} | params
    table = make_params(1, **{"pending_seconds": (90.0, 16.0)} | given)
    samples = make_samples(
        1,
        arrival_rate=rate,
        gpu_utilization=50.0,
        cpu_utilization=50.0,
        p95_ms=100.0,
        spec_replicas=base,
        ready_replicas=ready,
        pending_seconds=pending,
        **({} if stuck is None else {"stuck_replicas": stuck}),
    )
    state = initial_state(1, 1)
    state.floor_hold[0] = hold
    if tick:
        return decide(table, state, samples, kind="floor", guards=guards).decision
    observation, state = observe(table, state, samples, CONTRACT)
    asked = np.array([(*action, 1)], np.int32)
    return decide(table, state, samples, Proposal(observation, asked), guards=guards).decision


def test_growth_of_a_stuck_pool_becomes_the_others_capacity() -> None:
    decision = decided((LONG, 0), (2, 0), ready=(2, 2))
    assert decision.desired[0].tolist() == [4, 12], "two GPU replicas carry what ten CPU replicas do"
    assert decision.trail[0, STAGES.index("unknown")].tolist() == [6, 2]
    assert decision.trail[0, STAGES.index("pending")].tolist() == [4, 12]
    assert decision.flags[0] & Flag.PENDING


def test_what_is_asked_for_beyond_the_stuck_pods_is_tried() -> None:
    assert decided((LONG, 0), (2, 0), ready=(3, 2)).desired[0].tolist() == [5, 7]


def test_a_pod_is_not_stuck_before_its_time() -> None:
    decision = decided((SHORT, 0), (2, 0), ready=(2, 2))
    assert decision.desired[0].tolist() == [6, 2]
    assert not decision.flags[0] & Flag.PENDING


def test_the_cpu_pool_spills_to_whole_gpu_replicas() -> None:
    spilt = decided((0, LONG), (0, 2), base=(4, 4), ready=(4, 2))
    assert spilt.desired[0].tolist() == [5, 4], "8 requests/s are less than one GPU replica"


def test_where_pods_of_both_are_stuck_neither_takes_over() -> None:
    assert decided((LONG, LONG), (2, 2), ready=(2, 0)).desired[0].tolist() == [4, 2]


def test_a_stuck_pool_may_shrink() -> None:
    assert decided((LONG, 0), (-2, 0), ready=(2, 2)).desired[0].tolist() == [2, 2]


def test_replica_for_replica_where_a_capacity_is_not_known() -> None:
    decision = decided((LONG, 0), (2, 0), ready=(2, 2), requests_per_second=(np.nan, 4))
    assert decision.desired[0].tolist() == [4, 4]


@pytest.mark.parametrize("only", [0, 1])
def test_a_single_pool_with_one_slow_pod_asks_for_what_the_load_needs_and_for_no_more(only: int) -> None:
    """600 requests/s need 33 GPU replicas, which bear 94 % where 3 bear 80; nine of ten are ready, one pends."""
    pool = [only == 0, only == 1]
    base, ready = (np.array(pool) * 10).tolist(), (np.array(pool) * 9).tolist()
    rate = 600.0 if only == 0 else 120.0
    decision = decided(
        (LONG, LONG),
        base=base,
        ready=ready,
        rate=rate,
        tick=True,
        present=[pool],
        max_replicas=50,
        target_utilization=0.8,
        start_seconds=0.0,
    )
    assert decision.desired[0, only] == 33
    assert decision.desired[0, 1 - only] == 0


def test_one_slow_pod_of_many_costs_the_other_pool_what_that_pod_would_have_carried() -> None:
    whole = decided((0, 0), base=(10, 2), ready=(10, 2), rate=208.0, tick=True)
    one = decided((LONG, 0), base=(10, 2), ready=(9, 2), rate=208.0, tick=True, **SLOW_CPU)
    assert whole.desired[0].tolist() == [10, 2]
    assert one.desired[0].tolist() == [10, 7], "20 requests/s are five CPU replicas"
    beyond = decided((LONG, 0), base=(10, 2), ready=(9, 2), rate=408.0, tick=True, **SLOW_CPU)
    assert beyond.desired[0].tolist() == [20, 7], "growth goes where it would have gone"


def test_the_count_of_stuck_pods_is_believed_as_far_as_pods_are_not_ready() -> None:
    starting = {"base": (10, 2), "ready": (6, 2), "rate": 208.0, "tick": True, **SLOW_CPU}
    assert decided((LONG, 0), stuck=(1, 0), **starting).desired[0].tolist() == [10, 7], "three are only starting"
    assert decided((LONG, 0), stuck=(9, 0), **starting).desired[0].tolist() == [10, 22], "four cannot be nine"


def test_the_floor_counts_what_is_not_stuck() -> None:
    """Six GPU replicas were asked for and two came up: 100 requests/s need 60 more from CPU."""
    stuck = {"base": (6, 2), "ready": (2, 2), "rate": 100.0, "tick": True}
    assert decided((LONG, 0), **stuck).desired[0].tolist() == [6, 15]
    assert decided((0, 0), **stuck, **SLOW_CPU).desired[0].tolist() == [6, 2], "GPU is quicker: it is waited for"
    assert decided((LONG, 0), **stuck, **SLOW_CPU).desired[0].tolist() == [6, 15], "not any more"


def test_what_the_floor_holds_for_a_pod_that_never_comes_up_ends() -> None:
    held = {"base": (10, 2), "hold": (10, 0), "action": (-2, 0)}
    assert decided((LONG, 0), ready=(8, 2), stuck=(1, 0), **held).desired[0].tolist() == [10, 2], "one is starting"
    assert decided((LONG, 0), ready=(9, 2), stuck=(1, 0), **held).desired[0].tolist() == [8, 2]


def test_min_replicas_count_even_so() -> None:
    assert decided((LONG, 0), base=(1, 2), ready=(0, 2), min_replicas=(3, 1)).desired[0].tolist() == [3, 2]


def test_without_the_guard_the_pool_grows() -> None:
    assert decided((LONG, 0), (2, 0), ready=(2, 2), guards=without("pending")).desired[0].tolist() == [6, 2]
