"""How full many replicas may be together, and that the floor goes by it without ever leaving fewer than are needed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.pooling import SMALL_POOL, eased, pooled
from rlscaler_core.decision.tables import initial_state, make_params, make_samples

RPS = (20.0, 4.0)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (0.0, 0.8),
        (20.0 * SMALL_POOL, 0.8),
        (20.0 * SMALL_POOL * 4, 0.9),
        (20.0 * SMALL_POOL * 16, 0.95),
        (20.0 * SMALL_POOL * 100, 0.95),
        (np.nan, 0.8),
    ],
)
def test_spare_capacity_grows_with_the_square_root_of_the_load(load: float, expected: float) -> None:
    found = pooled(np.array([[0.8, 0.8]]), np.array([load]), np.array([RPS]))
    assert found[0, 0] == pytest.approx(expected)
    assert found[0, 1] >= found[0, 0]


rates = st.floats(0, 1e7)


@given(rates, st.floats(0.05, 1.0), st.tuples(st.floats(0.1, 500), st.floats(0.1, 500)))
def test_the_floor_is_never_eased_below_what_the_arrivals_need_at_full_capacity(
    rate: float, target: float, rps: tuple[float, float]
) -> None:
    params = make_params(1, requests_per_second=rps, target_utilization=target)
    needed = eased(params, np.array([rate]))[0]
    assert rate * target * (1 - 1e-9) <= needed <= rate * (1 + 1e-9)


@given(rates, rates)
def test_more_load_never_needs_fewer_replicas(one: float, other: float) -> None:
    params = make_params(2, requests_per_second=RPS)
    low, high = eased(params, np.array(sorted((one, other))))
    assert low <= high * (1 + 1e-9)


def test_unknown_arrivals_stay_unknown() -> None:
    assert np.isnan(eased(make_params(1, requests_per_second=RPS), np.array([np.nan]))[0])


def floor(rate: float, replicas: int, *, present: tuple[bool, bool] = (True, False), start_seconds: float = 0.0) -> int:
    """GPU replicas after one tick of the floor, of a service of up to 400 replicas that start for `start_seconds`."""
    spec = make_params(1, requests_per_second=RPS, max_replicas=400, present=present, start_seconds=start_seconds)
    now = make_samples(
        1,
        time=1e9,
        arrival_rate=rate,
        gpu_utilization=50.0,
        spec_replicas=(replicas, 0),
        ready_replicas=(replicas, 0),
    )
    decision, _, _ = decide(spec, sense(spec, initial_state(1, 1), now), now, kind="floor")
    return int(decision.desired[0, 0])


def test_a_small_service_keeps_its_target_and_a_large_one_is_fuller() -> None:
    assert floor(40.0, 1) == 3, "2 replicas' load at 80 %"
    assert floor(4000.0, 1) == 211, "200 replicas' load: 95 %, where 80 % would be 250"
    assert floor(4000.0, 250) == 250, "it takes nothing back"


def test_a_start_that_costs_is_made_at_the_load_at_which_the_rule_makes_it():
    assert (floor(36.0, 2), floor(38.0, 2)) == (3, 3), "at 80 % two replicas carry 32 requests/s"
    assert (floor(36.0, 2, start_seconds=30.0), floor(38.0, 2, start_seconds=30.0)) == (2, 3), "at 92 % they carry 36.8"
