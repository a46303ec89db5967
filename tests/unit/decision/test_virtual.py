"""The virtual service: what replicas cost and how late requests are, against the simulator and by its invariants."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_core.decision.action import most_likely
from rlscaler_core.decision.rule import DEFAULT_SETTINGS, Rule
from rlscaler_core.decision.tables import make_params
from rlscaler_core.decision.types import Placement
from rlscaler_core.queueing import fluid as virtual
from rlscaler_core.queueing.fluid import Running, advance, initial_fleet, initial_meter, percentile_ms, scale, settle
from rlscaler_rl.simulation.batch import SENSE_SECONDS, Batch
from rlscaler_rl.simulation.ledger import read
from rlscaler_rl.simulation.scenario import nominal

SECONDS = 1800
SMOOTHED_SECONDS = 20
"""The rate that is metered is one that somebody measured over a window."""


def play(level, pattern):
    """The forecast rule at the simulator; its late share (%) and cost, and the meter's over the same replicas."""
    scenarios = nominal([pattern] * 8, range(8), SECONDS)
    batch, rule, n = Batch(scenarios, level=level, rule=DEFAULT_SETTINGS), Rule(), 8
    meter, params = initial_meter(n), batch.params
    pool = batch.cluster.pool
    for second in range(0, SECONDS, SENSE_SECONDS):
        if second % batch.interval == 0:
            samples, observation, stacked = batch.observe()
            batch.act(samples, observation, most_likely(rule.probabilities(stacked)))
        else:
            batch.floor_tick()
        batch.advance()
        now = Running(pool["target"].astype(np.int32), pool["ready"].astype(np.int32), pool["weight"].copy())
        window = slice(max(0, second + 2 - SMOOTHED_SECONDS // 2), second + 3 + SMOOTHED_SECONDS // 2)
        rate = scenarios.arrivals[:, window].mean(axis=1).astype(float)
        meter = advance(params, meter, now, rate, np.full(n, float(SENSE_SECONDS)), np.full(n, 10.0))
    ledger = read(batch.cluster)
    cost = (ledger.billed * params.cost_per_hour).sum(axis=1) / 3600
    return ledger.late_percent(), cost, 100 * meter.late / meter.requests, meter.cost


@pytest.mark.slow
@pytest.mark.parametrize("level", ["fluid", "request"])
@pytest.mark.parametrize("pattern", ["ramp", "spike", "periodic", "random"])
def test_late_share_and_cost_are_the_simulators(level, pattern):
    late, cost, metered_late, metered_cost = play(level, pattern)
    np.testing.assert_allclose(metered_cost, cost, rtol=0.01)
    assert abs(metered_late.mean() - late.mean()) <= 0.5 + 0.15 * late.mean()
    assert (abs(metered_late - late) <= 1.0 + 0.5 * late).all()


def service(n=1, **columns):
    return make_params(n, requests_per_second=(20.0, 4.0), **columns)


def metered(params, ready, rate, seconds=600.0, share=(0.8, 0.2)):
    n = len(params)
    now = Running(np.full((n, 2), ready, np.int32), np.full((n, 2), ready, np.int32), np.full((n, 2), share))
    return advance(params, initial_meter(n), now, np.full(n, float(rate)), np.full(n, seconds), np.full(n, 60.0))


def test_more_replicas_cost_more_and_are_less_late():
    late, cost = zip(
        *[(m.late[0], m.cost[0]) for m in (metered(service(), (k, k), 60.0) for k in (1, 2, 3, 4, 6))], strict=True
    )
    assert list(late) == sorted(late, reverse=True)
    assert list(cost) == sorted(cost)
    assert late[0] > 0.9 * 36000 > 100 > late[-1]


def test_cost_is_replica_hours_times_price():
    assert metered(service(), (2, 4), 10.0, seconds=7200.0).cost[0] == pytest.approx(2 * (2 * 2.5 + 4 * 0.625))


def test_without_a_ready_replica_everything_is_late():
    meter = metered(service(), (0, 0), 5.0)
    assert meter.late[0] == pytest.approx(meter.requests[0]) == pytest.approx(3000)
    assert np.isnan(meter.utilization).all()


def test_a_pool_without_a_ready_replica_gets_no_traffic():
    meter = metered(service(), (0, 4), 10.0)
    assert meter.late[0] < 0.1 * meter.requests[0]
    assert meter.utilization[0, 1] == pytest.approx(10 / 16)


def test_an_absent_pool_neither_costs_nor_serves():
    alone = service(present=(True, False))
    meter = metered(alone, (2, 5), 10.0, seconds=3600.0)
    assert meter.cost[0] == pytest.approx(5.0)
    assert meter.utilization[0, 0] == pytest.approx(10 / 40)


def test_rows_do_not_touch_one_another_and_a_row_without_time_stands_still():
    params, n = service(3), 3
    replicas = np.array([[1, 1], [2, 2], [4, 0]], np.int32)
    now = Running(replicas, replicas, np.ones((n, 2)))
    rate, seconds = np.array([30.0, np.nan, 50.0]), np.array([60.0, 0.0, 17.0])
    together = advance(params, initial_meter(n), now, rate, seconds, np.full(n, 60.0))
    assert together.requests[1] == 0
    assert together.cost[1] == 0
    assert np.isfinite(together.late).all()
    for row in (0, 2):
        one = slice(row, row + 1)
        alone = advance(params.take(one), initial_meter(1), now.take(one), rate[one], seconds[one], np.full(1, 60.0))
        np.testing.assert_array_equal(alone.late, together.late[one])
        np.testing.assert_array_equal(alone.answered, together.answered[one])


@given(
    ready=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    rates=st.lists(st.floats(0, 500), min_size=1, max_size=6),
    seconds=st.floats(0.5, 60),
)
def test_every_request_is_answered_late_or_waiting(ready, rates, seconds):
    params, meter = service(), initial_meter(1)
    now = Running(np.array([ready], np.int32), np.array([ready], np.int32), np.array([[0.5, 0.5]]))
    for rate in rates:
        meter = advance(params, meter, now, np.array([rate]), np.array([seconds]), np.array([60.0]))
    in_time = meter.answered[0, virtual.AT_SLO]
    assert meter.requests[0] == pytest.approx(in_time + meter.late[0] + meter.queue[0].sum(), rel=1e-6, abs=1e-6)
    assert (np.diff(meter.answered[0]) >= -1e-6).all()
    assert 0 <= meter.late[0] <= meter.requests[0] + 1e-6


def test_replicas_are_ready_one_cold_start_after_they_were_asked_for():
    cold, now = np.array([[45.0, 8.0]]), np.zeros(1)
    fleet = initial_fleet(np.array([[1, 1]]), np.array([[1, 1]]), now, cold)
    fleet = scale(fleet, np.array([[3, 2]]), now, cold)
    early = [settle(fleet, np.array([t])).ready[0].tolist() for t in (7.9, 8.0)]
    fleet = scale(fleet, np.array([[4, 2]]), now + 20, cold)
    late = [settle(fleet, np.array([t])).ready[0].tolist() for t in (44.0, 45.0, 64.0, 65.0)]
    assert early + late == [[1, 1], [1, 2], [1, 2], [3, 2], [3, 2], [4, 2]]


def test_the_youngest_replica_goes_first():
    cold, now = np.array([[45.0, 8.0]]), np.zeros(1)
    fleet = initial_fleet(np.array([[2, 1]]), np.array([[2, 1]]), now, cold)
    fleet = scale(fleet, np.array([[3, 1]]), now, cold)
    fleet = scale(fleet, np.array([[5, 1]]), now + 10, cold)
    fleet = scale(fleet, np.array([[3, 1]]), now + 20, cold)
    assert settle(fleet, np.array([45.0])).ready[0, 0] == 3
    assert scale(fleet, np.array([[1, 1]]), now + 20, cold).ready[0].tolist() == [1, 1]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.floats(0, 30)), max_size=30))
def test_ready_and_starting_replicas_are_what_was_asked_for(asked):
    cold, now = np.array([[45.0, 8.0]]), np.zeros(1)
    fleet = initial_fleet(np.array([[2, 2]]), np.array([[1, 2]]), now, cold)
    for gpu, cpu, wait in asked:
        fleet = scale(fleet, np.array([[gpu, cpu]]), now, cold)
        assert (fleet.ready + fleet.starting.sum(axis=2) == [[gpu, cpu]]).all()
        assert (fleet.starting >= 0).all()
        assert (np.isinf(fleet.ready_at) == (fleet.starting == 0)).all()
        now = now + wait
    assert (settle(fleet, now + 46).ready == fleet.spec).all()


def test_traffic_follows_the_placement():
    params = service()
    fleet = initial_fleet(np.array([[2, 10]]), np.array([[2, 10]]), np.zeros(1), params.cold_start_seconds)
    share = [virtual.running(params, fleet, np.array([p])).share[0, 0] for p in Placement]
    assert share == [800.0, 500.0, 200.0]


def test_percentile_is_linear_within_a_bucket():
    counted = np.zeros((3, len(virtual.RELATIVE_BOUNDS) + 1))
    counted[0, virtual.AT_SLO :] = 100.0
    counted[1, -1] = 100.0
    np.testing.assert_allclose(percentile_ms(counted, np.full(3, 500.0), 95.0), [497.5, 5000, np.nan])
