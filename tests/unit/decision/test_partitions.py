"""Consumers of a stream: numbers that make a difference, what drains a lag, and when nothing moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.partitions import consumers_for, drain
from rlscaler_core.decision.rule import DEFAULT_SETTINGS, Rule, rule_plan
from rlscaler_core.decision.situation import full_at
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Decision, Flag, Params

GROUP: dict[str, Any] = {
    "present": (False, True),
    "stream": True,
    "requests_per_second": (np.nan, 100.0),
    "max_replicas": 20,
    "target_utilization": 1.0,
    "slo_ms": 10_000.0,
    "ceiling": False,
}


def decided(
    replicas: int,
    rate: float,
    lag: float = 0.0,
    *,
    kind: str = "action",
    actor: ActorLike | None = None,
    **columns: Any,
) -> Decision:
    """Decide for one group of 12 partitions in the pool of CPUs."""
    given = {"partitions": 12, "ready_replicas": (0, replicas), "p95_ms": 10.0} | columns
    params = make_params(1, **GROUP | given.pop("params", {}))
    samples = make_samples(1, arrival_rate=rate, lag_messages=lag, spec_replicas=(0, replicas), **given)
    state = sense(params, initial_state(1, 1), samples)
    decision, _, _ = decide(params, state, samples, actor or Rule(), kind=kind)  # type: ignore[arg-type]
    return decision


def consumers(*arguments: Any, **columns: Any) -> int:
    decision = decided(*arguments, **columns)
    assert decision.desired[0, 0] == 0
    return int(decision.desired[0, 1])


@given(st.integers(1, 300), st.floats(0, 1e6, allow_subnormal=False), st.floats(1e-3, 1e5, allow_subnormal=False))
def test_the_busiest_consumer_carries_its_partitions_and_one_fewer_would_not(
    partitions: int, load: float, unit: float
) -> None:
    found = int(consumers_for(np.array([partitions]), np.array([load]), np.array([unit]))[0])
    assert 1 <= found <= partitions

    def carries(number: int) -> bool:
        return -(-partitions // number) * load <= unit * partitions * (1 + 1e-6)

    assert carries(found) or found == partitions
    assert found == 1 or not -(-partitions // (found - 1)) * load <= unit * partitions * (1 - 1e-6)


@pytest.mark.parametrize(("load", "unit", "partitions"), [(np.nan, 1.0, 4), (1.0, np.nan, 4), (1.0, 0.0, 4), (1, 1, 0)])
def test_what_is_not_known_sizes_nothing(load: float, unit: float, partitions: int) -> None:
    assert consumers_for(np.array([partitions]), np.array([load]), np.array([unit])).tolist() == [0]


def test_a_lag_is_gone_within_the_objective_and_messages_on_their_way_are_none() -> None:
    params = make_params(4, **GROUP)
    params.stream[3] = False
    samples = make_samples(
        4, arrival_rate=100.0, lag_messages=[250.0, 2250.0, np.nan, 2250.0], spec_replicas=(0, 1), ready_replicas=(0, 1)
    )
    assert drain(params, samples).tolist() == [0.0, 200.0, 0.0, 0.0]


def test_the_step_is_as_large_as_the_lag_asks_for() -> None:
    assert consumers(1, 90.0) == 1
    assert consumers(1, 480.0) == 6, "5 consumers would have 3 partitions on the busiest one, as 4 have"
    assert consumers(1, 90.0, 5225.0) == 6, "5,000 messages above what is on its way, in 10 s"
    assert consumers(1, 90.0, 15225.0) == 12


def test_there_are_no_more_consumers_than_partitions_with_messages() -> None:
    assert consumers(3, 5000.0) == 12
    assert consumers(15, 5000.0) == 12, "three of them are idle"
    assert consumers(15, 5000.0, kind="floor") == 15, "between two actions nothing is taken away"


def test_of_equally_fast_numbers_the_smallest_is_taken() -> None:
    assert consumers(5, 360.0) == 4, "the busiest one has three partitions either way"
    assert consumers(3, 360.0, params={"max_replicas": 5}) == 4
    fallback = decided(4, 90.0, params={"min_replicas": 5})
    assert fallback.desired.tolist() == [[0, 5]], "the user's limit comes after"
    assert not fallback.flags[0] & Flag.PARTITIONS


def test_the_users_rates_and_grants_are_kept() -> None:
    disabled = {"select_policy": (0, 2), "has_behavior": True, "requests_per_second": (np.nan, 1e6)}
    assert consumers(5, 90.0, params=disabled) == 5, "scaleDown is disabled, also from 5 to 4"
    assert consumers(6, 590.0, granted_replicas=(-1, 3)) == 3, "what is not granted is given back"
    assert consumers(2, 590.0, granted_replicas=(-1, 3)) == 3


def test_one_rebalance_after_the_other() -> None:
    assert consumers(2, 1000.0, settling=True) == 2
    assert consumers(6, 90.0, settling=True) == 6
    assert consumers(2, 1000.0, settling=True, kind="floor") == 2


def test_pods_that_start_are_waited_for_before_others_go() -> None:
    assert consumers(6, 90.0, ready_replicas=(0, 4), pending_seconds=(0.0, 5.0)) == 6
    assert consumers(6, 90.0, ready_replicas=(0, 4), pending_seconds=(0.0, 500.0)) == 1, "they do not come up"
    assert consumers(2, 1000.0, ready_replicas=(0, 1), pending_seconds=(0.0, 5.0)) == 12, "growing is not held"


def test_fewer_consumers_carry_production_and_lag() -> None:
    assert consumers(12, 90.0) == 1
    assert consumers(12, 90.0, 2225.0) == 3, "90 and 200 messages/s"
    below = {"reactive_floor": False, "fallback": 2, "fallback_replicas": 1, "failure_threshold": 1}
    assert consumers(12, 90.0, 2225.0, params=below) == 3


def test_nothing_is_taken_away_on_an_unknown_lag() -> None:
    assert consumers(6, 90.0, np.nan) == 6
    assert consumers(6, np.nan, 0.0) == 6
    assert consumers(6, 90.0, partitions=0) == 6


def test_a_static_fallback_is_the_users_own_number() -> None:
    static = {"fallback": 2, "fallback_replicas": 2, "failure_threshold": 1}
    assert consumers(6, np.nan, np.nan, params=static, p95_ms=np.nan) == 2


@given(st.data())
def test_a_group_beside_services_decides_as_it_does_alone(data: st.DataObject) -> None:
    """A stream in a batch changes nothing for its neighbours."""
    rate = data.draw(st.floats(0, 500))
    replicas = data.draw(st.integers(1, 9))

    def params(stream: list[bool]) -> Params:
        return make_params(len(stream), stream=stream, requests_per_second=(20.0, 4.0), max_replicas=30)

    def played(stream: list[bool]) -> Decision:
        n = len(stream)
        samples = make_samples(
            n, arrival_rate=rate, p95_ms=10.0, spec_replicas=(replicas, 2), ready_replicas=(replicas, 2)
        )
        state = sense(params(stream), initial_state(n, 1), samples)
        return decide(params(stream), state, samples, Rule()).decision

    assert played([False, True]).trail[0].tolist() == played([False]).trail[0].tolist()


def test_consumers_are_filled_at_the_default_target_and_requests_are_not() -> None:
    params = make_params(3, **GROUP | {"target_utilization": np.array([[0.8], [0.6], [0.95]])})
    assert full_at(params)[:, 1].tolist() == [1.0, 0.75, 1.0]
    params.stream[1] = False
    assert full_at(params)[:, 1].tolist() == [1.0, 0.6, 1.0]
    assert consumers(1, 595.0, params={"target_utilization": 0.8}) == 6, "six consumers process 600 messages/s"


@pytest.mark.parametrize("age", [6.0, 14.0])
def test_a_peak_of_production_is_expected_to_return_for_one_cold_start(age: float) -> None:
    params = make_params(1, **GROUP | {"cold_start_seconds": 10.0})
    state = initial_state(1, 1)
    for time, rate in ((0.0, 90.0), (100.0, 590.0), (100.0 + age, 90.0)):
        samples = make_samples(
            1, time=time, arrival_rate=rate, lag_messages=0.0, partitions=12, p95_ms=10.0,
            spec_replicas=(0, 6), ready_replicas=(0, 6),
        )  # fmt: skip
        state = sense(params, state, samples)
    plan = rule_plan(params, state, samples, DEFAULT_SETTINGS)
    assert (plan.replicas[0, 1] == 6) == (age < 10.0)
