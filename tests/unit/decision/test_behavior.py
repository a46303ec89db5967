"""The `behavior` rules against the examples of Kubernetes' documentation and of KEP-853."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.behavior import DISABLED, DOWN, MIN, PERCENT, PODS, UP
from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.observation import ObservationContract, observe, sense
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import BEHAVIOR_RULES, EVENTS, Flag

STEP = 1000
FAR = 10_000


def rules_of(direction: int, *rules: tuple[int, float, float]) -> np.ndarray:
    table = np.zeros((1, 2, BEHAVIOR_RULES, 3))
    for slot, rule in enumerate(rules):
        table[0, direction, slot] = rule
    return table


class Scaler:
    """One GPU pool whose decisions are written at once; `to` asks for a number of replicas."""

    def __init__(self, start: int, *, highest: int = FAR, written: bool = True, **columns: object) -> None:
        self.options = columns | {"reactive_floor": columns.get("reactive_floor", False)}
        self.highest, self.written = highest, written
        self.state = initial_state(1, 1)
        self.replicas, self.time = start, 0.0
        self.flags = 0

    def to(self, wanted: int, after: float = 15.0, rate: float = 10.0, tick: bool = False) -> int:
        self.time += after
        params = make_params(
            1,
            present=(True, False),
            max_replicas=self.highest,
            step_size=abs(wanted - self.replicas) or 1,
            requests_per_second=1.0,
            target_utilization=1.0,
            **self.options,
        )
        samples = make_samples(
            1,
            time=self.time,
            arrival_rate=rate,
            p95_ms=100.0,
            spec_replicas=(self.replicas, 0),
            ready_replicas=(self.replicas, 0),
        )
        state = sense(params, self.state, samples)
        if tick:
            decision, _, self.state = decide(params, state, samples, kind="floor")
        else:
            observation, state = observe(params, state, samples, ObservationContract(stack_size=1))
            action = np.array([[np.sign(wanted - self.replicas), 0, 1]], np.int32)
            decision, _, self.state = decide(params, state, samples, Proposal(observation, action))
        self.flags = int(decision.flags[0])
        desired = int(decision.desired[0, 0])
        if self.written:
            self.replicas = desired
        return desired


def test_example_of_two_scale_down_policies() -> None:
    """80 replicas to 10 with 4 pods or 10 % a minute: 8 at first, 7.2 rounded up to 8, then 4 at a time below 40."""
    scaler = Scaler(80, rules=rules_of(DOWN, (PODS, 4, 60), (PERCENT, 10, 60)))
    assert [scaler.to(10, after=60) for _ in range(2)] == [72, 64]
    while scaler.replicas > 40:
        scaler.to(10, after=60)
    assert [scaler.to(10, after=60) for _ in range(3)] == [scaler.replicas + 8, scaler.replicas + 4, scaler.replicas]


@pytest.mark.parametrize(
    ("columns", "wanted", "expected"),
    [
        pytest.param(
            {"rules": rules_of(UP, (PERCENT, 900, 60))}, 2000, [10, 100, 1000, 2000], id="as fast as possible"
        ),
        pytest.param({"rules": rules_of(UP, (PODS, 1, 60))}, 9, [2, 3, 4, 5], id="one pod a minute"),
        pytest.param(
            {"rules": rules_of(UP, (PERCENT, 100, 60), (PODS, 4, 60))}, 90, [5, 10, 20, 40], id="HPA default, Max"
        ),
        pytest.param(
            {"rules": rules_of(UP, (PERCENT, 100, 60), (PODS, 4, 60)), "select_policy": (MIN, 0)},
            90,
            [2, 4, 8, 12],
            id="Min",
        ),
        pytest.param({"select_policy": (DISABLED, 0)}, 9, [1, 1, 1, 1], id="Disabled"),
    ],
)
def test_scale_up_examples(columns: dict, wanted: int, expected: list[int]) -> None:
    scaler = Scaler(1, **columns)
    assert [scaler.to(wanted, after=60) for _ in expected] == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        pytest.param({"rules": rules_of(DOWN, (PERCENT, 100, 15))}, [1], id="all at once"),
        pytest.param({"rules": rules_of(DOWN, (PODS, 5, 600))}, [95, 95], id="five pods in ten minutes"),
        pytest.param(
            {"rules": rules_of(DOWN, (PODS, 5, 60), (PERCENT, 10, 60)), "select_policy": (0, MIN)}, [95, 90], id="Min"
        ),
        pytest.param({"select_policy": (0, DISABLED)}, [100, 100], id="never down"),
    ],
)
def test_scale_down_examples(columns: dict, expected: list[int]) -> None:
    scaler = Scaler(100, **columns)
    assert [scaler.to(1, after=60) for _ in expected] == expected
    assert bool(scaler.flags & Flag.BEHAVIOR) == (expected[-1] != 1)


def test_changes_within_the_period_count_together() -> None:
    scaler = Scaler(10, rules=rules_of(UP, (PODS, 4, 60)))
    assert [scaler.to(wanted, after=20) for wanted in (12, 20, 20, 20)] == [12, 14, 14, 16]


def test_removed_replicas_may_come_back_within_the_period() -> None:
    scaler = Scaler(10, rules=rules_of(UP, (PODS, 4, 60)))
    assert [scaler.to(wanted, after=20) for wanted in (7, 30)] == [7, 14]


def test_a_decision_that_was_not_written_is_no_scale_event() -> None:
    scaler = Scaler(10, rules=rules_of(UP, (PODS, 4, 60)), written=False)
    assert [scaler.to(30) for _ in range(3)] == [14, 14, 14]
    scaler.replicas = 14
    assert scaler.to(30) == 14


def test_the_highest_recommendation_of_the_window_stops_a_fall() -> None:
    """Documentation: "the highest recommendation of the last 5 minutes" is what a fall may reach."""
    scaler = Scaler(10, stabilization_seconds=(0, 300))
    assert [scaler.to(wanted, after=60) for wanted in (9, 8, 9, 5, 4)] == [9, 9, 9, 9, 9]
    assert [scaler.to(3, after=60) for _ in range(4)] == [9, 9, 5, 4]


def test_window_opens_when_the_high_recommendation_expires() -> None:
    scaler = Scaler(10, stabilization_seconds=(0, 300))
    assert scaler.to(10) == 10
    assert [scaler.to(6, after=100) for _ in range(2)] == [10, 10]
    assert scaler.to(7, after=100) == 7
    assert scaler.to(6, after=50) == 7


def test_the_lowest_recommendation_of_the_window_stops_a_rise() -> None:
    scaler = Scaler(5, stabilization_seconds=(60, 0))
    assert scaler.to(5) == 5
    assert [scaler.to(9, after=20), scaler.to(8, after=20)] == [5, 5]
    assert scaler.to(9, after=20) == 8


def test_scale_up_rules_cap_the_floor() -> None:
    scaler = Scaler(5, reactive_floor=True, rules=rules_of(UP, (PODS, 2, 60)))
    assert scaler.to(5, rate=30.0, tick=True) == 7
    assert scaler.to(7, after=5, rate=30.0, tick=True) == 7
    assert scaler.to(7, after=60, rate=30.0, tick=True) == 9


def test_scale_up_window_makes_the_floor_wait_for_a_lasting_load() -> None:
    scaler = Scaler(5, reactive_floor=True, stabilization_seconds=(60, 0))
    scaler.to(5, rate=5.0, tick=True)
    assert [scaler.to(5, after=20, rate=30.0, tick=True) for _ in range(3)] == [5, 5, 30]


def test_what_the_floor_needed_keeps_the_scale_down_window_shut() -> None:
    scaler = Scaler(5, reactive_floor=True, stabilization_seconds=(0, 100))
    assert scaler.to(5, rate=20.0, tick=True) == 20
    assert scaler.to(10, after=30, rate=1.0) == 20
    assert scaler.to(10, after=80, rate=1.0) == 10


def test_more_events_than_slots_still_limit() -> None:
    scaler = Scaler(1, rules=rules_of(UP, (PODS, EVENTS + 8, 1800)))
    for _ in range(EVENTS + 20):
        scaler.to(scaler.replicas + 1, after=5)
    assert scaler.replicas == EVENTS + 9


def test_more_recommendations_than_slots_keep_the_highest() -> None:
    scaler = Scaler(500, stabilization_seconds=(0, 3600), written=False)
    scaler.to(500, after=5)
    for wanted in range(400, 400 - 2 * EVENTS, -1):
        assert scaler.to(wanted, after=5) == 500
