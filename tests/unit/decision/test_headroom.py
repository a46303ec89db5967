"""The headroom that steps of a network move: how long it lasts, what it plans, and when it ends."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision import headroom
from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.observation import ObservationContract, observe, sense
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Decision, Flag, Observation, State

LASTING = RuleSettings(lasting=True)
INTERVAL = 30.0


class Service:
    """A service of constant load whose network takes one step an interval; its replicas do not follow."""

    def __init__(self, rule: RuleSettings = LASTING, **columns: object) -> None:
        fixed = {"requests_per_second": (20, 4), "reactive_floor": False, "ceiling": False, "learns_capacity": False}
        self.params = make_params(1, **fixed | columns)
        self.state, self.rule, self.time = initial_state(1, 1), rule, 100.0
        self.observation: Observation

    def step(self, gpu: int, cpu: int, *, model: float = 1.0, **samples: object) -> Decision:
        sampled = {
            "time": self.time,
            "arrival_rate": 100.0,
            "cpu_utilization": 60.0,
            "gpu_utilization": 60.0,
            "p95_ms": 200.0,
            "spec_replicas": (6, 1),
            "ready_replicas": (6, 1),
        }
        seen = make_samples(1, **sampled | samples)
        sensed = sense(self.params, self.state, seen)
        self.observation, sensed = observe(self.params, sensed, seen, ObservationContract(stack_size=1))
        proposal = Proposal(self.observation, np.array([[gpu, cpu, 1]], np.int32), self.rule, model=model)
        decision, _, self.state = decide(self.params, sensed, seen, proposal)
        self.time += INTERVAL
        return decision

    def percent(self) -> list[float]:
        return (100 * (headroom.factors(self.state)[0] - 1)).round(1).tolist()


def test_a_step_lasts_until_another_and_wears_off() -> None:
    service = Service()
    plain = service.step(0, 0).desired[0].tolist()
    raised = [service.step(2, 0).desired[0].tolist() for _ in range(5)][-1]
    assert raised[0] > plain[0]
    assert service.percent()[0] == pytest.approx(34, abs=1)
    later = service.step(0, 0)
    assert later.desired[0].tolist() == raised, "no step, and the headroom is still there"
    since = headroom.above(service.state)["gpu"].since
    assert since == 130.0, "the interval of the first step"
    for _ in range(500):
        settled = service.step(0, 0)
    assert service.percent() == [0, 0]
    assert settled.desired[0].tolist() == plain
    assert headroom.in_words(headroom.above(service.state)) == "as planned"


def probabilities(gpu: dict[int, float], cpu: dict[int, float]) -> np.ndarray:
    """One row, from the chances of the steps of both heads; the rest is no step."""
    row = np.zeros((1, 13), np.float32)
    for first, head in ((0, gpu), (5, cpu)):
        row[0, first + 2] = 1 - sum(head.values())
        for step, chance in head.items():
            row[0, first + 2 + step] = chance
    row[0, 11] = 1
    return row


def test_steps_keep_up_with_the_mean_of_the_distribution() -> None:
    """A step is taken one interval in three where its chance is a third, though no step is the most likely."""
    state, taken = initial_state(1, 1), []
    state.headroom[:, headroom.MODEL] = 1.0
    for _ in range(30):
        steps, state = headroom.steps_of_mean(state, probabilities({1: 1 / 3}, {-2: 0.1, 2: 0.1}), 1.0)
        taken.append(steps[0].tolist())
    assert [gpu for gpu, _ in taken].count(1) == 10
    assert {cpu for _, cpu in taken} == {0}, "what leans to neither side moves nothing"
    _, other = headroom.steps_of_mean(state, probabilities({}, {}), 2.0)
    assert not other.headroom[:, headroom.OWED].any(), "another network owes nothing"


def test_a_network_that_gives_no_numbers_takes_no_step() -> None:
    steps, state = headroom.steps_of_mean(initial_state(1, 1), np.full((1, 13), np.nan, np.float32), 1.0)
    assert not steps.any()
    assert not state.headroom[:, headroom.OWED].any()


def test_the_bounds_hold_and_a_pool_that_is_absent_has_none() -> None:
    service = Service(present=(True, False))
    for _ in range(40):
        service.step(2, 2)
    assert service.percent() == [60, 0]
    for _ in range(60):
        service.step(-2, -2)
    assert service.percent() == [-15, 0]
    assert service.observation.values[0, 1] == pytest.approx(-15, abs=0.1)


def test_belief_and_headroom_are_apart() -> None:
    services = [Service(learns_capacity=True) for _ in range(2)]
    for _ in range(10):
        for service, step in zip(services, (2, 0), strict=True):
            service.step(step, step)
    raised, plain = (service.state for service in services)
    np.testing.assert_array_equal(raised.belief, plain.belief)
    assert headroom.factors(raised).min() > headroom.factors(plain).max()


def test_unknown_data_hold_it_and_the_fallback_ends_it() -> None:
    service = Service(failure_threshold=3)
    for _ in range(5):
        service.step(2, 2)
    before = service.percent()
    for _ in range(2):
        service.step(2, 2, arrival_rate=np.nan)
        assert service.percent() == before
    decision = service.step(2, 2, arrival_rate=np.nan)
    assert decision.flags[0] & Flag.FALLBACK
    assert service.percent() == [0, 0]


def test_another_network_begins_at_the_plan() -> None:
    service = Service()
    for _ in range(5):
        service.step(2, 2)
    service.step(0, 1, model=2.0)
    assert service.percent() == pytest.approx([0, 1.5], abs=0.1)


def test_an_actor_without_a_lasting_action_leaves_none() -> None:
    service = Service()
    service.step(2, 2)
    service.rule = RuleSettings()
    service.step(0, 0)
    assert headroom.above(service.state) is None


def test_a_restart_goes_on_with_it() -> None:
    service = Service()
    for _ in range(5):
        service.step(2, -1)
    told = headroom.above(service.state)
    other = Service()
    percent, since = (np.array([getattr(told[pool], name) for pool in ("gpu", "cpu")]) for name in ("percent", "since"))
    headroom.resume(other.state, percent, since, 1.0)
    other.time = service.time
    assert other.step(0, 0).trail[0, 0].tolist() == service.step(0, 0).trail[0, 0].tolist()
    assert other.percent() == service.percent()


def test_limits_stay_above_it() -> None:
    service = Service(max_replicas=(6, 1))
    for _ in range(30):
        decision = service.step(2, 2)
    assert service.percent() == [60, 60]
    assert decision.desired[0].tolist() == [6, 1]


def test_near_misses_are_remembered_for_half_an_hour() -> None:
    service = Service(slo_ms=1000.0)
    for _ in range(60):
        service.step(0, 0, p95_ms=1000.0)
    near = service.observation.values[0, 8]
    assert 0.5 < near < 0.75
    service.step(0, 0, p95_ms=np.nan)
    assert service.observation.values[0, 8] == near, "an unknown latency moves nothing"
    for _ in range(60):
        service.step(0, 0, p95_ms=400.0)
    assert service.observation.values[0, 8] == pytest.approx(near * np.exp(-1), rel=0.05)


def test_a_state_without_headroom_is_all_nan() -> None:
    state: State = initial_state(2, 1)
    assert np.isnan(state.headroom).all()
    assert headroom.factors(state).tolist() == [[1, 1], [1, 1]]
