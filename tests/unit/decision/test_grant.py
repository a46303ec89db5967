"""The grant guard: nothing grows beyond it, and what runs beyond it is given back through `behavior`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.guards import STAGES, without
from rlscaler_core.decision.observation import ObservationContract, observe, sense
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Decision, Flag, State

CONTRACT = ObservationContract(stack_size=1)
KNOWN = {"arrival_rate": 60.0, "gpu_utilization": 50.0, "cpu_utilization": 50.0, "p95_ms": 100.0}
SERVICE = {"requests_per_second": (20.0, 4.0), "max_replicas": 30, "target_utilization": 1.0, "ceiling": False}


def action(
    base: tuple[int, int],
    granted: tuple[int, int],
    step: int = 0,
    *,
    usable: bool = True,
    state: State | None = None,
    time: float = 0.0,
    params: dict[str, Any] | None = None,
    **samples: Any,
) -> tuple[Decision, State]:
    table = make_params(1, **(SERVICE | (params or {})))
    seen = make_samples(
        1,
        **(
            KNOWN | {"time": time, "spec_replicas": base, "ready_replicas": base, "granted_replicas": granted} | samples
        ),
    )
    state = sense(table, state or initial_state(1, 1), seen)
    observation, state = observe(table, state, seen, CONTRACT)
    proposal = Proposal(observation, np.array([[step, 0, 1]], np.int32), usable=np.array([usable]))
    decision, _, state = decide(table, state, seen, proposal)
    return decision, state


def flagged(decision: Decision) -> bool:
    return bool(decision.flags[0] & Flag.GRANT_LIMITED)


def test_what_is_asked_for_stops_at_the_grant() -> None:
    decision, _ = action((3, 1), (4, -1), step=2)
    assert decision.trail[0, STAGES.index("ceiling")].tolist() == [9, 1]
    assert decision.desired.tolist() == [[4, 1]]
    assert flagged(decision)
    free, _ = action((3, 1), (12, -1), step=2)
    assert free.desired.tolist() == [[9, 1]]
    assert not flagged(free)


def test_the_floor_does_not_grow_a_pool_beyond_its_grant_and_the_other_pool_helps() -> None:
    table = make_params(1, **SERVICE)
    seen = make_samples(1, arrival_rate=200.0, spec_replicas=(3, 1), ready_replicas=(3, 1), granted_replicas=(4, -1))
    decision, _, _ = decide(table, initial_state(1, 1), seen, kind="floor")
    assert decision.desired[0, 0] == 4
    assert decision.desired[0, 1] * 4 + 4 * 20 >= 200
    assert flagged(decision)


@pytest.mark.parametrize("at", ["action", "tick"])
def test_minimum_replicas_do_not_break_a_grant(at: str) -> None:
    lowest = {"min_replicas": (5, 1)}
    if at == "action":
        decision, _ = action((2, 1), (3, -1), params=lowest, arrival_rate=1.0)
    else:
        seen = make_samples(1, arrival_rate=1.0, spec_replicas=(2, 1), ready_replicas=(2, 1), granted_replicas=(3, -1))
        decision, _, _ = decide(make_params(1, **(SERVICE | lowest)), initial_state(1, 1), seen, kind="floor")
    assert decision.desired[0, 0] in (2, 3)


def test_minimum_replicas_that_run_are_not_taken_back() -> None:
    decision, _ = action((5, 1), (1, -1), params={"min_replicas": (4, 1)}, arrival_rate=100.0)
    assert decision.desired[0, 0] == 4


def test_what_runs_beyond_the_grant_goes_even_where_the_load_needs_it() -> None:
    decision, _ = action((6, 1), (4, -1), arrival_rate=120.0)
    assert decision.desired[0, 0] == 4
    assert decision.desired[0, 1] >= 10


def test_it_goes_at_the_rate_and_after_the_window_of_behavior() -> None:
    rules = np.zeros((2, 4, 3))
    rules[1, 0] = 1, 1, 60
    slow = {"rules": rules, "stabilization_seconds": (0.0, 0.0)}
    assert action((6, 1), (2, -1), params=slow)[0].desired[0, 0] == 5
    windowed = {"stabilization_seconds": (0.0, 100.0)}
    decision, state = action((6, 1), (-1, -1), params=windowed, arrival_rate=120.0)
    for time, expected in ((60.0, 6), (99.0, 6), (161.0, 3)):
        decision, state = action((6, 1), (3, -1), params=windowed, state=state, time=time, arrival_rate=120.0)
        assert decision.desired[0, 0] == expected, time


@pytest.mark.parametrize("samples", [{"arrival_rate": np.nan, "age_seconds": np.inf}, {"paused": True}])
def test_nothing_is_given_back_on_unknown_data_or_while_paused(samples: dict[str, Any]) -> None:
    decision, _ = action((6, 1), (2, -1), **samples)
    assert decision.desired.tolist() == [[6, 1]]


def test_nothing_is_given_back_between_two_actions() -> None:
    seen = make_samples(1, arrival_rate=1.0, spec_replicas=(6, 1), ready_replicas=(6, 1), granted_replicas=(2, -1))
    decision, _, _ = decide(make_params(1, **SERVICE), initial_state(1, 1), seen, kind="floor")
    assert decision.desired.tolist() == [[6, 1]]


def test_an_annotation_does_not_grow_a_pool_beyond_its_grant() -> None:
    decision, _ = action((2, 1), (4, -1), paused=True, paused_replicas=(9, 1))
    assert decision.desired.tolist() == [[4, 1]]


def test_a_grant_of_none_is_a_grant() -> None:
    decision, _ = action((0, 1), (0, -1), step=2, params={"min_replicas": (0, 1)})
    assert decision.desired[0, 0] == 0


@pytest.mark.parametrize("seed", range(20))
def test_without_a_budget_every_array_is_as_without_the_guard(seed: int) -> None:
    from tests.property.test_shield_properties import random_params, random_samples

    rng = np.random.default_rng(seed)
    params = random_params(rng, 200)
    spec = rng.integers(0, 20, (200, 2))
    seen = random_samples(rng, params, 0.0, spec)
    state = sense(params, initial_state(200, 1), seen)
    observation, state = observe(params, state, seen, CONTRACT)
    proposal = Proposal(observation, rng.integers(-2, 3, (200, 3)).astype(np.int32), usable=rng.random(200) < 0.9)
    proposal.action[:, 2] = abs(proposal.action[:, 2])
    with_guard, _, after = decide(params, state, seen, proposal)
    bare, _, expected = decide(params, state, seen, proposal, guards=without("grant"))
    place = STAGES.index("grant")
    np.testing.assert_array_equal(np.delete(with_guard.trail, place, axis=1), bare.trail)
    for name in ("desired", "flags", "weights", "placement"):
        np.testing.assert_array_equal(getattr(with_guard, name), getattr(bare, name))
    for name in after.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(after, name), getattr(expected, name))


@pytest.mark.parametrize("seed", range(20))
def test_no_input_grows_a_pool_beyond_its_grant(seed: int) -> None:
    from tests.property.test_shield_properties import random_params, random_samples

    rng = np.random.default_rng(100 + seed)
    params = random_params(rng, 400)
    spec = rng.integers(0, 20, (400, 2))
    seen = random_samples(rng, params, 0.0, spec)
    seen.granted_replicas[:] = rng.integers(-1, 25, (400, 2))
    bound = (seen.granted_replicas >= 0) & params.present
    state = sense(params, initial_state(400, 1), seen)
    observation, state = observe(params, state, seen, CONTRACT)
    proposal = Proposal(observation, rng.integers(0, 3, (400, 3)).astype(np.int32), usable=rng.random(400) < 0.9)
    for decision, _, _ in (decide(params, state, seen, proposal), decide(params, state, seen, kind="floor")):
        most = np.maximum(seen.granted_replicas, decision.base)
        assert (decision.desired <= most)[bound].all()
        lowered = bound & (
            decision.desired < np.minimum(decision.base, np.minimum(params.max_replicas, params.min_replicas))
        )
        assert not lowered.any(), "never below minReplicas that run"
