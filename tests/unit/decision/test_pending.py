"""A pool whose pods do not come up grows no further; the other takes the need (20 and 4 requests/s a replica)."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.guards import GUARDS, STAGES, Guard, without
from rlscaler_core.decision.observation import ObservationContract, observe
from rlscaler_core.decision.shield import Proposal, act, floor_tick
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Decision, Flag

CONTRACT = ObservationContract(stack_size=1)
LONG, SHORT = 100.0, 89.0


def decided(
    pending: tuple[float, float],
    action: tuple[int, int] = (0, 0),
    base: tuple[int, int] = (4, 2),
    ready: tuple[int, int] = (4, 2),
    rate: float = 1.0,
    *,
    tick: bool = False,
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
    )
    state = initial_state(1, 1)
    if tick:
        return floor_tick(table, state, samples, guards=guards)[0]
    observation, state = observe(table, state, samples, CONTRACT)
    asked = np.array([(*action, 1)], np.int32)
    return act(table, state, samples, observation, Proposal(asked, np.array([True])), guards=guards)[0]


def test_growth_of_a_stuck_pool_becomes_the_others_capacity() -> None:
    decision = decided((LONG, 0), (2, 0))
    assert decision.desired[0].tolist() == [4, 12], "two GPU replicas carry what ten CPU replicas do"
    assert decision.trail[0, STAGES.index("unknown")].tolist() == [6, 2]
    assert decision.trail[0, STAGES.index("pending")].tolist() == [4, 12]
    assert decision.flags[0] & Flag.PENDING


def test_a_pool_is_not_stuck_before_its_time() -> None:
    decision = decided((SHORT, 0), (2, 0))
    assert decision.desired[0].tolist() == [6, 2]
    assert not decision.flags[0] & Flag.PENDING


def test_the_cpu_pool_spills_to_whole_gpu_replicas() -> None:
    assert decided((0, LONG), (0, 2)).desired[0].tolist() == [5, 2], "8 requests/s are less than one GPU replica"


def test_where_both_are_stuck_neither_grows() -> None:
    assert decided((LONG, LONG), (2, 2)).desired[0].tolist() == [4, 2]


def test_a_stuck_pool_may_shrink() -> None:
    assert decided((LONG, 0), (-2, 0)).desired[0].tolist() == [2, 2]


def test_replica_for_replica_where_a_capacity_is_not_known() -> None:
    decision = decided((LONG, 0), (2, 0), requests_per_second=(np.nan, 4))
    assert decision.desired[0].tolist() == [4, 4]


def test_a_single_pool_has_nowhere_to_spill_to() -> None:
    assert decided((LONG, 0), (2, 0), (4, 0), (4, 0), present=[[True, False]]).desired[0].tolist() == [4, 0]


def test_the_floor_counts_only_what_is_ready_of_a_stuck_pool() -> None:
    """Six GPU replicas were asked for and two came up: 100 requests/s need 60 more from CPU."""
    stuck = {"base": (6, 2), "ready": (2, 2), "rate": 100.0, "tick": True}
    assert decided((LONG, 0), **stuck).desired[0].tolist() == [6, 15]
    slow_cpu = {"cold_start_seconds": (8.0, 45.0)}
    assert decided((0, 0), **stuck, **slow_cpu).desired[0].tolist() == [6, 2], "GPU is quicker: it is waited for"
    assert decided((LONG, 0), **stuck, **slow_cpu).desired[0].tolist() == [6, 15], "not any more"


def test_the_floor_adds_nothing_to_a_stuck_pool() -> None:
    assert decided((LONG, 0), rate=500.0, tick=True).desired[0].tolist() == [4, 30]
    assert decided((0, LONG), rate=500.0, tick=True).desired[0].tolist() == [25, 2]


def test_min_replicas_count_even_so() -> None:
    assert decided((LONG, 0), base=(1, 2), ready=(1, 2), min_replicas=(3, 1)).desired[0].tolist() == [3, 2]


def test_without_the_guard_the_pool_grows() -> None:
    assert decided((LONG, 0), (2, 0), guards=without("pending")).desired[0].tolist() == [6, 2]
