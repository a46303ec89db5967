"""The decision function on arrays that are not NumPy's: training puts it on a GPU, and it must be the same function."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.observation import ObservationContract, observe, sense, stacked_input
from rlscaler_core.decision.readiness import Prices
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_core.decision.shield import Proposal, act, floor_tick, unexplained_floor_tick
from rlscaler_core.decision.situation import capacity_of
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Params, Samples
from tests.harness.device_array import DeviceArray, to_device

ROWS = 60
TICKS = 60


def params_of(kind: str, rng: np.random.Generator) -> Params:
    present = rng.random((ROWS, 2)) > 0.1
    present[~present.any(axis=1)] = True
    columns: dict[str, Any] = {"requests_per_second": np.array([20.0, 4.0]) * rng.uniform(0.5, 2, (ROWS, 1))}
    if kind == "limits":
        columns["requests_per_second"] = np.where(rng.random((ROWS, 2)) < 0.2, np.nan, columns["requests_per_second"])
        columns["budget_per_hour"] = np.where(rng.random(ROWS) < 0.5, 9.0, np.inf)
        columns["fallback"] = rng.integers(0, 5, ROWS)
        columns["stabilization_seconds"] = np.where(rng.random((ROWS, 1)) < 0.5, 120.0, 0.0)
        rules = np.zeros((ROWS, 2, 4, 3))
        rules[::2, 0, 0], rules[::3, 1, 0] = (1, 2, 60), (2, 50, 60)
        columns["rules"] = rules
    return make_params(ROWS, present=present, ceiling_seconds=100.0, **columns)


def samples_of(params: Params, tick: int, rng: np.random.Generator) -> Samples:
    def some(values: Any, share: float) -> Any:
        return np.where(rng.random(values.shape) < share, np.nan, values)

    spec = np.where(params.present, rng.integers(0, 11, (ROWS, 2)), 0)
    load = 25.0 * np.where(rng.random(ROWS) < 0.05, 5.0, rng.uniform(0.2, 1.5, ROWS))
    return make_samples(
        ROWS,
        time=1.7e9 + 5.0 * tick,
        arrival_rate=some(load, 0.05),
        cpu_utilization=some(rng.uniform(10, 100, ROWS), 0.1),
        memory_utilization=rng.uniform(10, 100, ROWS),
        gpu_utilization=some(rng.uniform(10, 100, ROWS), 0.1),
        p95_ms=some(rng.uniform(50, 2000, ROWS), 0.1),
        spec_replicas=spec,
        ready_replicas=np.maximum(spec - rng.integers(0, 3, (ROWS, 2)), 0),
        pending_seconds=np.where(rng.random((ROWS, 2)) < 0.1, 500.0, 0.0),
        paused_scale_down=rng.random(ROWS) < 0.05,
        granted_replicas=np.where(rng.random((ROWS, 2)) < 0.1, 4, -1),
        counted_requests=some(rng.uniform(0, 9000, ROWS), 0.5),
        counted_late=rng.uniform(0, 90, ROWS),
    )


def assert_same(found: Any, expected: Any, what: str) -> None:
    for field in dataclasses.fields(expected):
        mine, plain = getattr(found, field.name), getattr(expected, field.name)
        assert isinstance(mine, DeviceArray), f"{what}: {field.name} has left the device"
        assert mine.dtype == plain.dtype, f"{what}: {field.name}"
        np.testing.assert_array_equal(mine.kept, plain, err_msg=f"{what}: {field.name}")


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("kind", ["plain", "limits"])
@pytest.mark.parametrize("rule", [None, RuleSettings()])
def test_same_bits_on_arrays_of_a_device(kind: str, learns: bool, rule: RuleSettings | None) -> None:
    rng = np.random.default_rng(3)
    params = params_of(kind, rng)
    contract = ObservationContract(prices=Prices(0.5, 0.2, 0.15))
    state = initial_state(ROWS, contract.stack_size, 64, forecaster=learns)
    own_params, own_state = to_device(params), to_device(state)
    capacity, own_capacity = capacity_of(params), capacity_of(own_params)
    assert_same(own_capacity, capacity, "capacity")
    for tick in range(TICKS):
        samples = samples_of(params, tick, rng)
        own = to_device(samples)
        state, own_state = sense(params, state, samples), sense(own_params, own_state, own)
        if tick % 3 == 0:
            seen, state = observe(params, state, samples, contract)
            own_seen, own_state = observe(own_params, own_state, own, contract)
            assert_same(own_seen, seen, f"observation {tick}")
            np.testing.assert_array_equal(stacked_input(own_state).kept, stacked_input(state))
            action = np.stack([*rng.integers(-2, 3, (2, ROWS)), rng.integers(0, 3, ROWS)], axis=1).astype(np.int32)
            usable = rng.random(ROWS) < 0.9
            made, state = act(params, state, samples, seen, Proposal(action, usable, None, rule), capacity=capacity)
            proposal = Proposal(DeviceArray(action), DeviceArray(usable), None, rule)
            own_made, own_state = act(own_params, own_state, own, own_seen, proposal, capacity=own_capacity)
            assert_same(own_made, made, f"decision {tick}")
        elif tick % 3 == 1:
            made, state = floor_tick(params, state, samples, capacity=capacity)
            own_made, own_state = floor_tick(own_params, own_state, own, capacity=own_capacity)
            assert_same(own_made, made, f"floor {tick}")
        else:
            desired, weights, state = unexplained_floor_tick(params, state, samples, capacity)
            own_desired, own_weights, own_state = unexplained_floor_tick(own_params, own_state, own, own_capacity)
            np.testing.assert_array_equal(own_desired.kept, desired)
            np.testing.assert_array_equal(own_weights.kept, weights)
        assert_same(own_state, state, f"state {tick}")
        assert_same(own_state.take(slice(0, 3)), state.take(slice(0, 3)), "rows")
