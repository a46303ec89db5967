"""The belief about a replica's capacity: bounded, unmoved by unknown data, and right after a while."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.decision.belief import REACH, believed, below_declared, resume
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.evidence import DECLARED, VALUE, ignores_load
from rlscaler_core.decision.observation import ObservationContract, observe, sense
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Flag
from rlscaler_core.decision.units import LatencySignal
from rlscaler_core.models import load_bundled
from rlscaler_operator.records.rows import decode_params, decode_state, encode, encode_state

CONTRACT = ObservationContract(stack_size=1)
INTERVAL = 15.0


def service(declared=(20.0, np.nan), **columns):
    present = np.isfinite(np.asarray(declared)) | columns.pop("open", np.array([False, False]))
    seconds = {"window_seconds": 10.0, "usage_seconds": 20.0}
    return make_params(
        1, requests_per_second=declared, present=present, **seconds, **{"learns_capacity": True, **columns}
    )


def measured(params, time, load, ready, true, *, usage=None, p95=None):
    """Samples of replicas that carry `true` requests/s each, with the traffic by that."""
    carried = np.where(params.present[0], np.array(ready) * np.nan_to_num(np.array(true)), 0.0)
    used = min(load / carried.sum(), 1.0)
    late = 300.0 if used < 0.9 else 900.0 if used < 1 else 5000.0
    percent = 100 * used if usage is None else usage
    return make_samples(
        1,
        time=time,
        arrival_rate=load,
        gpu_utilization=percent,
        cpu_utilization=percent,
        p95_ms=late if p95 is None else p95,
        spec_replicas=np.array(ready, np.int32),
        ready_replicas=np.array(ready, np.int32),
    )


def after(params, hours, true, *, fill=0.85, state=None, most=40, **fake):
    """The state after some hours under a load that goes up and down, with replicas that follow the belief."""
    state = initial_state(1, 1, forecaster=False) if state is None else state
    begin = 1e6 if np.isnan(state.rate_time[0, -1]) else float(state.rate_time[0, -1]) + INTERVAL
    ready = [2 if there else 0 for there in params.present[0]]
    for tick in range(int(hours * 3600 / INTERVAL)):
        time, load = begin + INTERVAL * tick, 90 + 50 * np.sin(tick / 60)
        samples = measured(params, time, load, ready, true, **fake)
        state = sense(params, state, samples)
        _, state = observe(params, state, samples, CONTRACT)
        carried = believed(params, state).requests_per_second[0]
        pools = np.flatnonzero(params.present[0])
        for i in pools:
            share = load / len(pools)
            ready[i] = int(np.clip(np.ceil(share / (fill * carried[i])), 1, most)) if carried[i] > 0 else 4
    return state, ready


@pytest.mark.parametrize("error", [-0.6, -0.4, -0.1, 0.0, 0.2, 0.5])
@pytest.mark.parametrize("cpu", [np.nan, 5.0])
def test_the_belief_comes_to_the_capacity_that_replicas_have(error, cpu):
    params = service((20.0, cpu))
    true = (20 * (1 + error), cpu * (1 + error))
    state, _ = after(params, 1.5, true)
    np.testing.assert_allclose(state.belief[0, VALUE][params.present[0]], np.array(true)[params.present[0]], rtol=0.12)


@pytest.mark.parametrize("factor", [0.12, 8.0])
def test_a_number_that_is_many_times_wrong_is_left(factor):
    state, _ = after(service((20.0 / factor, np.nan)), 4, (20.0, np.nan))
    # Replicas that are taken for worse than they are cost money; taken for better they make requests late.
    assert 20 * 0.86 < state.belief[0, 0] < 20 * 1.1


def test_an_undeclared_capacity_is_measured_under_load():
    params = service((np.nan, np.nan), open=np.array([False, True]))
    assert np.isnan(believed(params, initial_state(1, 1)).requests_per_second[0, 1])
    state, _ = after(params, 1, (np.nan, 4.0), most=200)
    assert state.belief[0, 1] == pytest.approx(4, rel=0.06)


def test_a_capacity_that_halves_is_followed_within_minutes():
    params = service()
    state, _ = after(params, 2, (20.0, np.nan))
    state, _ = after(params, 0.2, (10.0, np.nan), state=state)
    assert state.belief[0, 0] < 12


def test_a_utilization_that_is_always_full_asks_for_no_replicas():
    """As a GPU's under continuous batching: while answers come in time it says nothing."""
    state, ready = after(service(), 3, (20.0, np.nan), usage=100.0, p95=300.0)
    assert state.belief[0, 0] >= 20
    assert ready[0] < 10


@pytest.mark.parametrize("usage", [np.nan, 0.0])
def test_without_a_utilization_lateness_alone_lowers_it(usage):
    state, _ = after(service(), 2, (12.0, np.nan), usage=usage)
    assert 8 < state.belief[0, 0] < 14.5


def test_a_slow_dependency_that_leaves_replicas_idle_lowers_nothing():
    state, _ = after(service(), 2, (20.0, np.nan), p95=3000.0)
    assert state.belief[0, 0] > 14


def under(used, latencies):
    """The belief in four GPU replicas of 20 requests/s after each interval of 60, ten minutes in time and then late."""
    params, state, values = service(), initial_state(1, 1, forecaster=False), []
    for tick, p95 in enumerate([300.0] * 40 + latencies):
        usage = 75.0 if tick < 40 else used
        samples = measured(params, 1e6 + INTERVAL * tick, 60.0, [4, 0], (20.0, np.nan), usage=usage, p95=p95)
        state = sense(params, state, samples)
        _, state = observe(params, state, samples, CONTRACT)
        values.append(state.belief[0, 0])
    return np.array(values[39:])


def test_busy_replicas_that_are_late_carry_less_than_is_believed():
    """At 90 % an HPA with a target of 80 % adds replicas; a GPU's utilization there counts only with the lateness."""
    assert under(90.0, [9000.0] * 8)[-1] < 60 / 4 * 1.05
    assert under(90.0, [700.0] * 8)[-1] > 18
    assert under(75.0, [9000.0] * 8)[-1] > 18, "a slow dependency"


def test_a_few_busy_replicas_that_are_late_by_chance_do_not_make_utilization_blind():
    """Their belief once fell to a tenth within minutes, and near misses held it there for hours."""
    params, state = service((20.0, 4.0), routed=True), initial_state(1, 1, forecaster=False)
    true, ready, split = np.array([12.0, 2.4]), np.array([1, 1]), np.array([950, 50], np.int32)
    for tick in range(2 * 240 + 12):
        late = tick >= 480 and tick % 3 < 2
        load = 11.7 if tick >= 480 else 8 + 3 * np.sin(tick / 40)
        used = 100 * load * split / 1000 / (ready * true)
        samples = replace(
            measured(params, 1e6 + INTERVAL * tick, load, ready, true, p95=1200.0 if late else 550.0),
            gpu_utilization=used[:1] * (0.96 if late else 1.0),
            cpu_utilization=used[1:],
        )
        state = sense(params, replace(state, weights=split[None]), samples)
        _, state = observe(params, state, samples, CONTRACT)
    assert not ignores_load(state)[0, 0]


def test_a_pool_with_room_is_not_lowered_with_the_late_one():
    """Lowered together, the idle pool stays low: it gets less traffic for it, and utilization lifts the busy one."""
    params, state = service((20.0, 4.0)), initial_state(1, 1, forecaster=False)
    for tick in range(240):
        late = tick % 40 > 35
        samples = replace(
            measured(params, 1e6 + INTERVAL * tick, 52.0, [1, 13], (20.0, 4.0), p95=9000.0 if late else 300.0),
            gpu_utilization=np.array([42.0]),
            cpu_utilization=np.array([96.0 if late else 84.0]),
        )
        state = sense(params, state, samples)
        _, state = observe(params, state, samples, CONTRACT)
    assert state.belief[0, 0] > 14


def in_two_pools(params, belief, true, intervals=240):
    """The belief after intervals in which the traffic follows the weights, of one GPU replica and ten CPU replicas."""
    state = initial_state(1, 1, forecaster=False)
    for tick in range(intervals):
        load = 40 + 15 * np.sin(tick / 15)
        split = np.array(state.weights[0]) / 1000
        used = np.minimum(load * split / (np.array([1, 10]) * true), 1.0)
        samples = replace(
            measured(params, 1e6 + INTERVAL * tick, load, [1, 10], true, p95=300.0),
            gpu_utilization=np.array([100 * used[0]]),
            cpu_utilization=np.array([100 * used[1]]),
        )
        state = sense(params, state, samples)
        _, state = observe(params, state, samples, CONTRACT)
        if tick == 0:
            state.belief[0, VALUE] = belief
        state = decide(params, state, samples, kind="floor").state
    return state.belief[0, VALUE]


def test_a_pool_believed_far_too_low_is_measured_where_the_traffic_follows_the_weights():
    """It gets little traffic, and without knowledge of that its utilization is a small part of the work."""
    true = np.array([20.0, 4.0])
    np.testing.assert_allclose(in_two_pools(service((20.0, 4.0), routed=True), (2.0, 4.0), true), true, rtol=0.12)
    assert in_two_pools(service((20.0, 4.0)), (2.0, 4.0), true)[0] < 10


@pytest.mark.parametrize("error", [(-0.3, 0.3), (0.4, -0.2)])
def test_errors_of_two_pools_that_are_apart_are_told_apart(error):
    true = np.array([20.0, 4.0]) * (1 + np.array(error))
    np.testing.assert_allclose(in_two_pools(service((20.0, 4.0), routed=True), (20.0, 4.0), true), true, rtol=0.12)


def test_a_queue_that_drains_lowers_nothing():
    drains = under(92.0, [9000.0 * 0.8**i for i in range(14)])
    assert drains[-1] > 0.88 * drains[0], "the first look alone counts"
    assert under(92.0, [9000.0] * 14)[-1] < 0.8 * drains[0]


def by_latency(signal, shares, load=60.0, declared=20.0, usage=np.nan):
    """The belief over the declared capacity of four GPU replicas after an interval with each p95, in shares of it."""
    params = service((declared, np.nan), slo_signal=signal, slo_ms=1000.0)
    state, values = initial_state(1, 1, forecaster=False), []
    for tick, share in enumerate([0.3, *shares]):
        samples = measured(params, 1e6 + INTERVAL * tick, load, [4, 0], (20.0, np.nan), usage=usage, p95=1000 * share)
        state = sense(params, state, samples)
        _, state = observe(params, state, samples, CONTRACT)
        values.append(state.belief[0, 0] / declared)
    return np.array(values[1:])


OF_TOKENS = [LatencySignal.FIRST_TOKEN, LatencySignal.OUTPUT_TOKEN]


@pytest.mark.parametrize("signal", OF_TOKENS)
def test_low_latency_of_a_model_server_raises_its_belief_up_to_a_quarter_above_the_declared_capacity(signal):
    values = by_latency(signal, [0.3] * 60, load=30.0)
    assert values[4] == pytest.approx(np.exp(5 * INTERVAL * 4 / 3600), rel=1e-3)
    assert values[-1] == pytest.approx(1.25, rel=0.02)
    assert by_latency(signal, [0.3] * 60, load=20.0)[-1] == 1.0, "a quarter of the load says nothing"
    assert by_latency(LatencySignal.END_TO_END, [0.3] * 60)[-1] == 1.0


@pytest.mark.parametrize("signal", OF_TOKENS)
def test_near_misses_hold_a_model_server_where_one_interval_in_three_has_them(signal):
    held = by_latency(signal, [1.0, 0.3, 0.3] * 20)
    assert np.ptp(held[2::3]) < 0.1
    assert by_latency(signal, [1.0, 0.8] * 20)[-1] < 0.8
    lowered = by_latency(signal, [1.0] * 8 + [0.3] * 20)
    requests = by_latency(LatencySignal.END_TO_END, [1.0] * 8 + [0.3] * 20)
    assert lowered[7] < 0.9
    assert lowered[-1] > 1.0
    assert requests[-1] < requests[7] + 0.03, "a belief about requests is given back over hours"


@pytest.mark.parametrize("usage", [1.0, 30.0, 100.0])
def test_the_utilization_of_a_model_server_moves_no_belief(usage):
    shares = [1.0] * 4 + [0.3] * 8
    for signal in OF_TOKENS:
        np.testing.assert_array_equal(by_latency(signal, shares, usage=usage), by_latency(signal, shares))
    requests = LatencySignal.END_TO_END
    assert (by_latency(requests, shares, usage=30.0) != by_latency(requests, shares)).any()


readings = st.one_of(st.just(np.nan), st.floats(0, 1e4), st.just(np.inf))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(readings, readings, readings, readings, st.integers(0, 30), st.floats(0, 200)), max_size=25),
    st.sampled_from([20.0, 0.01, 1e5]),
    st.booleans(),
)
def test_it_stays_within_its_bounds_whatever_is_measured(seen, declared, routed):
    params, state, time = service((declared, declared / 4), routed=routed), initial_state(1, 1, forecaster=False), 1e6
    for rate, gpu, cpu, p95, ready, step in seen:
        time += step
        samples = make_samples(
            1,
            time=time,
            arrival_rate=rate,
            gpu_utilization=gpu,
            cpu_utilization=cpu,
            p95_ms=p95,
            spec_replicas=np.full(2, ready, np.int32),
            ready_replicas=np.full(2, ready, np.int32),
        )
        state = sense(params, state, samples)
        _, state = observe(params, state, samples, CONTRACT)
        value = state.belief[0, VALUE]
        assert (value >= state.belief[0, DECLARED] / REACH * (1 - 1e-9)).all()
        assert (value <= state.belief[0, DECLARED] * REACH * (1 + 1e-9)).all()


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(["arrival", "all"]), st.floats(0, 100), st.floats(0, 1e4))
def test_unknown_data_moves_nothing(missing, usage, p95):
    params = service()
    state, ready = after(params, 0.2, (16.0, np.nan))
    before, time = state.belief[0, VALUE].copy(), float(state.rate_time[0, -1])
    for step in range(1, 8):
        samples = measured(params, time + 15 * step, 80.0, ready, (16.0, np.nan), usage=usage, p95=p95)
        samples.age_seconds[0, : 1 if missing == "arrival" else 5] = 1e4
        state = sense(params, state, samples)
        _, state = observe(params, state, samples, CONTRACT)
    np.testing.assert_array_equal(state.belief[0, VALUE][:1], before[:1])


def test_a_trusted_declaration_is_left_alone():
    params = service(learns_capacity=False)
    state, _ = after(params, 0.5, (12.0, np.nan))
    assert np.isnan(state.belief).all()
    assert believed(params, state) is params


def test_another_declaration_begins_anew():
    state, _ = after(service(), 1, (12.0, np.nan))
    edited = service((40.0, np.nan))
    assert believed(edited, state).requests_per_second[0, 0] == 40
    state, _ = after(edited, 0.01, (40.0, np.nan), state=state)
    assert state.belief[0, 0] == pytest.approx(40, rel=0.05)


def test_a_decision_goes_by_the_belief_and_says_that_it_is_below_the_declaration():
    params = service()
    state, ready = after(params, 1, (12.0, np.nan))
    samples = measured(params, float(state.rate_time[0, -1]) + 15, 100.0, ready, (12.0, np.nan))
    low = replace(samples, spec_replicas=np.array([[1, 0]], np.int32), ready_replicas=np.array([[1, 0]], np.int32))
    decision = decide(params, sense(params, state, low), low, kind="floor").decision
    assert decision.desired[0, 0] >= 9
    assert decision.flags[0] & Flag.CAPACITY_BELOW_DECLARED
    assert below_declared(params, state).tolist() == [[True, False]]


def decided(params, state, seconds, **samples):
    """The replicas and the state of an interval `seconds` after the belief began, 8 replicas for the load of one."""
    there = {"spec_replicas": (8, 0), "ready_replicas": (8, 0), "gpu_utilization": 10.0, "p95_ms": 100.0}
    seen = make_samples(1, time=1e6 + seconds, **{"arrival_rate": 10.0, **there, **samples})
    actor = load_bundled("rule")
    made, _, state = decide(params, sense(params, state, seen), seen, actor)
    return made, state


@pytest.mark.parametrize(
    ("columns", "held"),
    [
        ({}, True),
        ({"learns_capacity": False}, False),
        ({"slo_signal": int(LatencySignal.FIRST_TOKEN)}, True),
        ({"declared": (np.nan, np.nan), "open": np.array([True, False])}, True),
    ],
)
def test_no_replica_goes_in_the_first_five_minutes_of_a_capacity_that_is_only_declared(columns, held):
    params, state = service(**columns), initial_state(1, 1)
    for seconds in range(0, 300, 15):
        made, state = decided(params, state, seconds)
        assert (made.desired[0, 0] == 8) == held
    for seconds in range(300, 900, 15):
        made, state = decided(params, state, seconds)
    assert made.desired[0, 0] < 8


def test_the_first_five_minutes_may_add_replicas_and_a_resumed_belief_has_had_them():
    params = service()
    made, _ = decided(params, initial_state(1, 1), 0, arrival_rate=400.0, gpu_utilization=99.0)
    assert made.desired[0, 0] > 8
    state = initial_state(1, 1)
    resume(params, state, np.array([[20.0, np.nan]]), params.requests_per_second, np.array([[5.0, np.nan]]), 1e6 - 60)
    made, _ = decided(params, state, 0)
    assert made.desired[0, 0] < 8


def test_a_new_process_resumes_the_belief_of_the_former():
    params = service((20.0, 5.0))
    state, _ = after(params, 1, (12.0, 4.0))
    new = initial_state(1, 1)
    value, percent = state.belief[:, VALUE], 100 * np.sqrt(state.belief[:, 2:4])
    resume(params, new, value, params.requests_per_second, percent, 2e6)
    np.testing.assert_allclose(believed(params, new).requests_per_second, value)
    other = initial_state(1, 1)
    resume(service((30.0, 5.0)), other, value, params.requests_per_second, percent, 2e6)
    assert np.isnan(other.belief).all()


def test_a_record_keeps_every_bit_of_it_and_one_of_an_earlier_release_goes_without():
    params = service((20.0, 5.0))
    state, _ = after(params, 0.2, (12.0, 4.0))
    again = decode_state(encode_state(state))
    np.testing.assert_array_equal(again.belief, state.belief)
    row = encode(params)
    assert decode_params(row).learns_capacity[0]
    assert not decode_params({name: row[name] for name in row if name != "learns_capacity"}).learns_capacity[0]
