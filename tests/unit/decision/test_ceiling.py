"""The ceiling takes back what a whole stretch of measured load has not needed, and nothing else.

A GPU replica answers 20 requests/s and a CPU replica 4, at 80 % 16 and 3.2; capacity of GPUs costs least.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.guards import GUARDS, STAGES, Guard, without
from rlscaler_core.decision.observation import ObservationContract, observe, sense
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Decision, FallbackBehavior, Flag

CONTRACT = ObservationContract(stack_size=1)
STRETCH = 600


class Service:
    """One service whose actor asks for what it is told, by default for the replicas that it has."""

    def __init__(self, replicas: tuple[int, int] = (12, 4), guards: tuple[Guard, ...] = GUARDS, **params: object):
        self.params = make_params(1, **{"requests_per_second": (20.0, 4.0), "max_replicas": (20, 20)} | params)
        self.replicas, self.guards, self.time = np.array([replicas]) * self.params.present, guards, 1e6
        self.state = initial_state(1, 1)
        self.ready: np.ndarray | None = None
        self.usable, self.outside = True, False

    def samples(self, rate: float, **sampled: object) -> object:
        usual = {"gpu_utilization": 30.0, "cpu_utilization": 30.0, "p95_ms": 100.0}
        ready = self.replicas if self.ready is None else self.ready
        return make_samples(
            1,
            **usual
            | {"time": self.time, "arrival_rate": rate, "spec_replicas": self.replicas, "ready_replicas": ready}
            | sampled,
        )

    def tick(self, rate: float, **sampled: object) -> Decision:
        """A sensing tick between two actions; what it decides is written."""
        samples = self.samples(rate, **sampled)
        decision, _, self.state = decide(self.params, sense(self.params, self.state, samples), samples, kind="floor")
        return self._write(decision)

    def act(self, rate: float, action: tuple[int, int] = (0, 0), **sampled: object) -> Decision:
        samples = self.samples(rate, **sampled)
        state = sense(self.params, self.state, samples)
        observation, state = observe(self.params, state, samples, CONTRACT)
        asked = np.array([(*action, 1)], np.int32)
        proposal = Proposal(observation, asked, usable=np.array([self.usable]), outside=np.array([self.outside]))
        decision, _, self.state = decide(self.params, state, samples, proposal, guards=self.guards)
        return self._write(decision)

    def _write(self, decision: Decision) -> Decision:
        self.replicas = decision.desired.copy()
        return decision

    def play(self, seconds: float, rate: float, **sampled: object) -> list[int]:
        """The replicas after so many seconds of a constant rate, with a sensing tick every 5 s."""
        for second in range(0, int(seconds), 5):
            (self.act if second % 30 == 0 else self.tick)(rate, **sampled)
            self.time += 5
        return self.replicas[0].tolist()


def test_after_a_stretch_of_little_load_what_it_needs_is_left_and_one_more() -> None:
    service = Service()
    assert service.play(STRETCH, 20.0) == [12, 4], "not before the load was known for the whole of it"
    assert service.play(60, 20.0) == [2, 2], "one GPU and two CPU replicas carry 20 requests/s, and one is the reserve"


def test_it_says_what_it_did() -> None:
    service = Service()
    service.play(STRETCH, 20.0)
    decision = service.act(20.0)
    assert decision.flags[0] & Flag.CEILING
    assert decision.trail[0, STAGES.index("pending")].tolist() == [12, 4]
    assert decision.trail[0, STAGES.index("ceiling")].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("params", "rate", "expected"),
    [
        pytest.param({}, 10.0, [2, 1], id="the least of both pools carries it"),
        pytest.param({"present": (True, False)}, 10.0, [2, 0], id="GPU only"),
        pytest.param({"present": (False, True)}, 10.0, [0, 4], id="CPU only: there are no more"),
        pytest.param({"present": (False, True)}, 3.0, [0, 2], id="CPU only"),
        pytest.param({"min_replicas": (0, 1)}, 3.0, [1, 1], id="a single CPU replica, and the reserve is a GPU"),
        pytest.param({"min_replicas": (5, 3)}, 10.0, [6, 3], id="minReplicas"),
        pytest.param({}, 150.0, [10, 2], id="the dearer capacity goes first"),
        pytest.param({"cost_per_hour": (2.5, 0.1)}, 20.0, [1, 3], id="CPU capacity is cheaper"),
        pytest.param({}, 1000.0, [20, 20], id="more than there is: the floor has raised both"),
    ],
)
def test_what_is_left_is_a_cheapest_mix(params: dict, rate: float, expected: list[int]) -> None:
    assert Service(**params).play(STRETCH + 60, rate) == expected


def test_switched_off_or_without_its_row_replicas_stay() -> None:
    assert Service(ceiling=False).play(2 * STRETCH, 20.0) == [12, 4]
    assert Service(guards=without("ceiling")).play(2 * STRETCH, 20.0) == [12, 4]


def test_the_stretch_is_the_users() -> None:
    service = Service(ceiling_seconds=1800.0)
    assert service.play(1800, 20.0) == [12, 4]
    assert service.play(60, 20.0) == [2, 2]


def test_a_peak_counts_for_the_whole_stretch() -> None:
    service = Service()
    service.play(STRETCH - 30, 20.0)
    service.play(30, 200.0)
    assert service.play(STRETCH - 60, 20.0) == [12, 4]
    assert service.play(180, 20.0) == [2, 2]


def test_a_longer_stretch_does_not_forget_that_it_has_seen_less() -> None:
    """An edit of the spec: the peak of twenty minutes ago is no longer remembered, so nothing is known of it."""
    service = Service(ceiling_seconds=300.0, guards=without("ceiling"))
    service.play(60, 190.0)
    service.play(1200, 20.0)
    service.params.ceiling_seconds[:], service.guards = 1500.0, GUARDS
    assert service.play(1200, 20.0) == [12, 4]
    assert service.play(900, 20.0) == [2, 2]


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param({"arrival_rate": np.nan}, id="no arrivals"),
        pytest.param({"age_seconds": np.array([[61.0, 0, 0, 0, 0, 0]])}, id="stale"),
    ],
)
def test_a_gap_begins_the_stretch_anew_and_nothing_is_lowered_in_it(unknown: dict) -> None:
    service = Service()
    service.play(STRETCH, 20.0)
    assert service.play(90, 20.0, **unknown) == [12, 4]
    assert service.play(STRETCH, 20.0) == [12, 4], "what arrived in the gap is not known"
    assert service.play(120, 20.0) == [2, 2]


def test_a_scrape_that_is_missed_is_no_gap() -> None:
    service = Service()
    service.play(STRETCH - 60, 20.0)
    service.play(20, np.nan)
    assert service.play(120, 20.0) == [2, 2]


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({"requests_per_second": (np.nan, 4.0)}, id="capacity not known"),
        pytest.param({"requests_per_second": (20.0, np.nan)}, id="nor the other's"),
    ],
)
def test_not_where_it_is_not_known_what_a_replica_carries(params: dict) -> None:
    assert Service(learns_capacity=False, **params).play(2 * STRETCH, 20.0) == [12, 4]


def test_below_the_forecast_nothing_is_taken() -> None:
    """The load has just begun to grow, by 0.4 requests/s each second, and two cold starts are 90 s."""
    service = Service(guards=without("ceiling"))
    service.play(STRETCH + 30, 20.0)
    for step in range(9):
        service.tick(20.0 + 2 * step)
        service.time += 5
    service.guards = GUARDS
    gpu, cpu = service.act(36.0).desired[0].tolist()
    assert 36 + 0.4 * 90 < 16 * gpu + 3.2 * cpu < 16 * 12


def test_replicas_that_do_not_serve_are_no_reason_to_take_one_that_does() -> None:
    service = Service((12, 4))
    service.ready = np.array([[1, 1]])
    assert service.play(STRETCH + 60, 20.0)[0] >= 12, "17 requests/s are all that is ready"
    service.ready = np.array([[1, 3]])
    assert service.play(30, 20.0) == [2, 2], "now they serve, and those that start are not needed"


def test_what_was_overloaded_was_not_enough_whatever_the_capacity_is_said_to_be() -> None:
    """The spec says 20 requests/s and a replica answers five: latency and utilization show it."""
    service = Service((12, 4), learns_capacity=False)
    overloaded = {"p95_ms": 5000.0, "gpu_utilization": 100.0}
    assert service.play(2 * STRETCH, 20.0, **overloaded) == [12, 4]
    assert service.play(STRETCH - 60, 20.0) == [12, 4], "for a stretch after that too"
    assert service.play(180, 20.0) == [2, 2]


def test_a_latency_above_the_slo_without_load_holds_nothing() -> None:
    assert Service().play(STRETCH + 60, 20.0, p95_ms=5000.0, gpu_utilization=5.0, cpu_utilization=5.0) == [2, 2]


def test_without_a_latency_a_full_pool_is_left_alone() -> None:
    assert Service().play(STRETCH + 60, 20.0, p95_ms=np.nan, gpu_utilization=95.0) == [12, 4]
    assert Service().play(STRETCH + 60, 20.0, p95_ms=np.nan) == [2, 2]


def test_no_requests_at_all_need_the_least() -> None:
    assert Service().play(STRETCH + 60, 0.0, p95_ms=np.nan) == [2, 1]


def test_an_actor_that_asks_for_more_gets_no_more_than_the_reserve() -> None:
    service = Service((2, 1))
    service.play(STRETCH + 30, 10.0)
    assert service.act(10.0, (2, 2)).desired.tolist() == [[2, 1]]


def test_behavior_bounds_how_fast_it_goes() -> None:
    rules = np.zeros((2, 4, 3))
    rules[1, 0] = (1, 1, 60)
    service = Service((12, 4), rules=rules, has_behavior=True)
    service.play(STRETCH, 10.0)
    assert service.play(60, 10.0) == [11, 3]
    assert service.play(60, 10.0) == [10, 2]


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [
        (FallbackBehavior.CURRENT_REPLICAS, [12, 4]),
        (FallbackBehavior.CURRENT_REPLICAS_IF_HIGHER, [12, 9]),
        (FallbackBehavior.STATIC, [7, 9]),
    ],
)
def test_replicas_that_the_user_named_for_the_fallback_are_left(fallback: int, expected: list[int]) -> None:
    service = Service((12, 4), fallback=fallback, fallback_replicas=(7, 9))
    service.outside = True
    assert service.play(2 * STRETCH, 20.0) == expected


@pytest.mark.parametrize("fallback", [FallbackBehavior.HPA_FORMULA, FallbackBehavior.FORECAST_RULE])
@pytest.mark.parametrize("why", ["outside", "failed"])
def test_a_fallback_that_follows_the_load_gives_back(fallback: int, why: str) -> None:
    service = Service((12, 4), fallback=fallback)
    service.usable, service.outside = why != "failed", why == "outside"
    assert service.play(STRETCH + 120, 20.0)[0] <= 2


def test_a_pause_of_scaling_down_holds() -> None:
    assert Service().play(STRETCH + 60, 20.0, paused_scale_down=True) == [12, 4]


def test_between_two_actions_nothing_is_lowered() -> None:
    service = Service()
    service.play(STRETCH + 30, 20.0, paused_scale_down=True)
    assert service.tick(20.0).desired.tolist() == [[12, 4]]


def test_a_state_that_is_passed_in_stays_as_it_is() -> None:
    service = Service()
    service.play(STRETCH, 20.0)
    before = replace(service.state, peak_value=service.state.peak_value.copy())
    state = service.state
    service.act(20.0, p95_ms=5000.0, gpu_utilization=100.0)
    np.testing.assert_array_equal(before.peak_value, state.peak_value)
