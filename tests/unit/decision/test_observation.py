"""The ten numbers: what is known, what is fed, and what the stack holds."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.exceptions import ColumnError, ContractMismatchError
from rlscaler_core.decision.manifest import LearnedPrices, Manifest
from rlscaler_core.decision.observation import NEUTRAL, ObservationContract, observe, sense, stacked_input
from rlscaler_core.decision.rule import DEFAULT_SETTINGS, rule_plan
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import OBSERVATIONS, SIGNALS, Observation, SignalState

KNOWN, NOT_APPLICABLE, UNKNOWN = SignalState.KNOWN, SignalState.NOT_APPLICABLE, SignalState.UNKNOWN
HEALTHY = {
    "time": 100.0,
    "arrival_rate": 30.0,
    "cpu_utilization": 50.0,
    "memory_utilization": 40.0,
    "gpu_utilization": 60.0,
    "p95_ms": 250.0,
    "spec_replicas": (2, 3),
    "ready_replicas": (2, 3),
}


def observed(contract: ObservationContract | None = None, **columns: object) -> Observation:
    """One row, healthy but for `columns`; those of Params start with `params_`."""
    own = {name[7:]: value for name, value in columns.items() if name.startswith("params_")}
    params = make_params(1, **{"requests_per_second": (20, 4), "step_size": (1, 2), "slo_ms": 500.0} | own)
    sampled = {name: value for name, value in columns.items() if not name.startswith("params_")}
    samples = make_samples(1, **HEALTHY | sampled)
    contract = contract or ObservationContract()
    state = sense(params, initial_state(1, contract.stack_size), samples)
    observation, _ = observe(params, state, samples, contract)
    return observation


def ages(**of: float) -> np.ndarray:
    return np.array([[of.get(signal, 1.0) for signal in SIGNALS]])


def named(row: np.ndarray) -> dict[str, float]:
    return dict(zip(OBSERVATIONS, row[0].tolist(), strict=True))


@pytest.mark.slow
def test_a_network_is_shown_the_forecast_of_the_rule_that_it_stands_on() -> None:
    contract = Manifest(name="x", learned=LearnedPrices(late_price=0.5, caution=0.2, jump_caution=0.15)).contract
    params = make_params(1, requests_per_second=(20, 4))
    state = initial_state(1, contract.stack_size)
    for tick in range(2031):  # a burst every five minutes, of which three minutes know nothing
        now, rate = 1.7e9 + 5.0 * tick, 90.0 if tick % 60 == 0 else 30.0
        samples = make_samples(1, **HEALTHY | {"time": now, "arrival_rate": rate})
        state = sense(params, state, samples)
    shown, plain = (named(observe(params, state, samples, one)[0].values) for one in (contract, ObservationContract()))
    held = rule_plan(params, state, samples, DEFAULT_SETTINGS).load[0]
    assert held > 40
    assert shown["forecast_utilization"] == pytest.approx(100 * held / (2 * 20 + 3 * 4))
    assert shown["load_trend"] == pytest.approx((held - 30) / (held + 30 + 0.1))
    assert plain["forecast_utilization"] == pytest.approx(100 * 1.05 * 30 / (2 * 20 + 3 * 4))
    others = set(OBSERVATIONS) - {"forecast_utilization", "load_trend"}
    assert {name: shown[name] for name in others} == {name: plain[name] for name in others}


def test_values_are_what_people_read_and_fed_is_dimensionless() -> None:
    observation = observed()
    values, fed = named(observation.values), named(observation.fed)
    assert (values["cpu_utilization"], values["headroom"], values["gpu_utilization"]) == (50, 0, 60)
    assert (values["p95_latency"], values["gpu_replicas"], values["cpu_replicas"]) == (250, 2, 3)
    assert values["throughput"] == pytest.approx(30 / (10 * 20 + 10 * 4) * 100)
    assert fed["cpu_utilization"] == pytest.approx(0.5)
    assert fed["p95_latency"] == pytest.approx(np.log1p(0.5) / np.log1p(20))
    assert fed["throughput"] == pytest.approx(30 / (2 * 20 + 3 * 4)), "of what is ready, not of what may ever be"
    assert (fed["gpu_replicas"], fed["cpu_replicas"]) == (pytest.approx(0.2), pytest.approx(0.15))
    assert values["forecast_utilization"] == pytest.approx(100 * 1.05 * 30 / (2 * 20 + 3 * 4))
    assert fed["forecast_utilization"] == pytest.approx(values["forecast_utilization"] / 100)
    assert (observation.status == KNOWN).all()
    assert not observation.required_unknown[0]


@pytest.mark.parametrize("factor", [2, 20])
def test_a_service_that_is_so_many_times_as_large_is_fed_alike(factor: int) -> None:
    """Its load, its replicas and its step are that many times as large, whatever its largest size is."""
    small = observed(params_max_replicas=(5, 5), params_step_size=(1, 1), params_min_replicas=(1, 1))
    large = observed(
        params_max_replicas=(200, 40),
        params_step_size=(factor, factor),
        arrival_rate=30.0 * factor,
        spec_replicas=(2 * factor, 3 * factor),
        ready_replicas=(2 * factor, 3 * factor),
    )
    np.testing.assert_allclose(large.fed, small.fed, atol=2e-3)


def test_nothing_that_is_fed_depends_on_the_clock() -> None:
    one, other = observed(time=100.0), observed(time=1_767_571_200.0)
    np.testing.assert_array_equal(one.fed, other.fed)


def test_load_without_a_ready_replica_is_as_much_as_is_ever_fed() -> None:
    contract = ObservationContract()
    starting = observed(contract, ready_replicas=(0, 0), cpu_utilization=np.nan, gpu_utilization=np.nan)
    assert named(starting.fed)["throughput"] == contract.clip
    idle = observed(contract, ready_replicas=(0, 0), arrival_rate=0.0, cpu_utilization=np.nan, gpu_utilization=np.nan)
    assert named(idle.fed)["throughput"] == 0


def test_absurd_values_are_clipped_for_the_network_and_shown_as_they_are() -> None:
    observation = observed(cpu_utilization=90_000.0)
    assert named(observation.values)["cpu_utilization"] == 90_000
    assert named(observation.fed)["cpu_utilization"] == 3.0


@pytest.mark.parametrize(
    ("columns", "expected", "blocks"),
    [
        pytest.param({}, {}, False, id="healthy"),
        pytest.param(
            {"p95_ms": np.nan},
            dict.fromkeys(("p95_latency", "near_misses"), UNKNOWN),
            False,
            id="p95 missing, utilization there",
        ),
        pytest.param(
            {"p95_ms": np.nan, "arrival_rate": 0.0},
            {"p95_latency": NOT_APPLICABLE, "near_misses": NOT_APPLICABLE},
            False,
            id="nothing arrives",
        ),
        pytest.param({"gpu_utilization": np.nan}, {"gpu_utilization": UNKNOWN}, False, id="utilization missing"),
        pytest.param(
            {"gpu_utilization": np.inf, "p95_ms": np.nan},
            dict.fromkeys(("gpu_utilization", "p95_latency", "near_misses"), UNKNOWN),
            True,
            id="neither p95 nor a pool's utilization",
        ),
        pytest.param({"gpu_utilization": -1.0}, {"gpu_utilization": UNKNOWN}, False, id="negative"),
        pytest.param(
            {"arrival_rate": np.nan},
            dict.fromkeys(("throughput", "load_trend", "near_misses", "forecast_utilization"), UNKNOWN),
            True,
            id="arrival rate missing",
        ),
        pytest.param(
            {"age_seconds": ages(arrival_rate=60.5)},
            dict.fromkeys(("throughput", "load_trend", "forecast_utilization"), UNKNOWN),
            True,
            id="arrival rate stale",
        ),
        pytest.param({"age_seconds": ages(arrival_rate=60.0)}, {}, False, id="just fresh enough"),
        pytest.param(
            {"age_seconds": ages(replicas=np.inf)},
            dict.fromkeys(("gpu_replicas", "cpu_replicas", "forecast_utilization"), UNKNOWN),
            True,
            id="replicas unknown",
        ),
        pytest.param(
            {"params_present": (False, True), "gpu_utilization": np.nan, "spec_replicas": (0, 3)},
            dict.fromkeys(("gpu_utilization", "gpu_replicas"), NOT_APPLICABLE),
            False,
            id="no GPU pool",
        ),
        pytest.param(
            {"spec_replicas": (2, 0), "ready_replicas": (2, 0), "cpu_utilization": np.nan, "p95_ms": np.nan},
            {"cpu_utilization": NOT_APPLICABLE, "p95_latency": UNKNOWN, "near_misses": UNKNOWN},
            False,
            id="pool scaled to zero",
        ),
        pytest.param(
            {"ready_replicas": (2, 0), "cpu_utilization": np.nan, "p95_ms": np.nan},
            {"cpu_utilization": NOT_APPLICABLE, "p95_latency": UNKNOWN, "near_misses": UNKNOWN},
            True,
            id="pool wanted and none ready, no p95",
        ),
        pytest.param(
            {"params_requests_per_second": (20, np.nan)},
            {"throughput": UNKNOWN, "forecast_utilization": UNKNOWN},
            False,
            id="capacity unknown",
        ),
    ],
)
def test_three_states(columns: dict, expected: dict, blocks: bool) -> None:
    observation = observed(**columns)
    status = {name: state for name, state in named(observation.status).items() if state != KNOWN}
    assert status == expected
    assert observation.required_unknown[0] == blocks
    for index, name in enumerate(OBSERVATIONS):
        if name in expected:
            assert np.isnan(observation.values[0, index])
            assert observation.fed[0, index] == np.float32(NEUTRAL[index])


def test_age_is_that_of_the_signal_behind() -> None:
    observation = observed(age_seconds=ages(arrival_rate=4.0, p95_latency=9.0, replicas=2.0))
    assert named(observation.age_seconds) == {
        **dict.fromkeys(OBSERVATIONS, 1.0),
        "forecast_utilization": 4.0,
        "p95_latency": 9.0,
        "throughput": 4.0,
        "load_trend": 4.0,
        "near_misses": 9.0,
        "headroom": 2.0,
        "gpu_replicas": 2.0,
        "cpu_replicas": 2.0,
    }


def test_nothing_is_known_unless_it_was_given() -> None:
    samples = make_samples(2, spec_replicas=(1, 1), ready_replicas=(1, 1), p95_ms=100.0)
    assert np.isnan(samples.arrival_rate).all()
    assert samples.age_seconds[0].tolist() == [np.inf, np.inf, np.inf, np.inf, 0, 0]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: make_samples(1, spec_replicas=1), "ready_replicas: has no default"),
        (lambda: make_samples(1, spec_replicas=1, ready_replicas=1, rate=1), "no column rate"),
        (lambda: make_params(3, max_replicas=np.ones(4)), "max_replicas: does not fit"),
    ],
)
def test_bad_columns_are_named(make: object, complaint: str) -> None:
    with pytest.raises(ColumnError, match=complaint):
        make()  # type: ignore[operator]


def test_params_defaults_follow_the_custom_resource() -> None:
    params = make_params(1, max_replicas=(25, 8), present=(True, False), min_replicas=2)
    assert params.step_size.tolist() == [[3, 1]]
    assert (params.min_replicas.tolist(), params.max_replicas.tolist()) == ([[2, 0]], [[25, 0]])
    assert params.fallback_replicas.tolist() == [[2, 0]]
    assert not params.has_behavior[0]
    assert make_params(1, stabilization_seconds=(0, 60)).has_behavior[0]


def test_what_was_before_the_first_observation_is_not_known() -> None:
    """Copies of the first observation would look like a long quiet."""
    params = make_params(1, requests_per_second=(20, 4))
    state = initial_state(1, 3)
    contract = ObservationContract(stack_size=3)
    seen = [np.array([NEUTRAL], np.float32)] * 2
    for index in range(4):
        samples = make_samples(1, **HEALTHY | {"cpu_utilization": 10.0 * index})
        observation, state = observe(params, state, samples, contract)
        seen.append(observation.fed)
        np.testing.assert_array_equal(stacked_input(state), np.concatenate(seen[-3:], axis=1))
        assert state.stacked[0] == min(index + 1, 3)


def test_stack_of_another_size_is_refused() -> None:
    with pytest.raises(ContractMismatchError, match="initial_state"):
        observe(make_params(1), initial_state(1, 3), make_samples(1, **HEALTHY), ObservationContract(stack_size=4))


def test_history_takes_a_raw_sample_once_and_only_when_it_is_known() -> None:
    params = make_params(1)
    state = initial_state(1, 1)
    for time, rate, age in [(10, 5.0, 2), (15, 5.0, 7), (20, 7.0, 2), (25, np.nan, 1), (30, 9.0, 70), (35, 8.0, 1)]:
        samples = make_samples(
            1, **HEALTHY | {"time": time, "arrival_rate": rate, "age_seconds": ages(arrival_rate=age)}
        )
        state = sense(params, state, samples)
    filled = ~np.isnan(state.rate_time)
    assert state.rate_time[filled].tolist() == [8, 18, 34]
    assert state.rate_value[filled].tolist() == [5, 7, 8]
    assert filled[0, -3:].all()


def test_only_the_rows_with_news_move() -> None:
    params, state = make_params(2), initial_state(2, 1)
    state = sense(params, state, make_samples(2, **HEALTHY | {"arrival_rate": [1.0, np.nan]}))
    assert state.rate_value[:, -1].tolist()[0] == 1
    assert np.isnan(state.rate_value[1]).all()
