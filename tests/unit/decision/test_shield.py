"""The guards in their order, one at a time."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.guards import STAGES
from rlscaler_core.decision.manifest import LearnedPrices, Manifest, RuleGains
from rlscaler_core.decision.observation import ObservationContract, observe, sense
from rlscaler_core.decision.rule import BY_LOAD, DEFAULT_SETTINGS, Rule, RuleSettings, rule_of, rule_under
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Decision, FallbackBehavior, Flag, Placement, State
from rlscaler_rl.baselines.actors import FrozenActor

HEALTHY = {
    "time": 100.0,
    "arrival_rate": 1.0,
    "cpu_utilization": 50.0,
    "memory_utilization": 40.0,
    "gpu_utilization": 60.0,
    "p95_ms": 250.0,
    "spec_replicas": (4, 5),
    "ready_replicas": (4, 5),
}
CONTRACT = ObservationContract(stack_size=1)


def decided(
    action: tuple[int, int, int] = (0, 0, 1),
    *,
    params: dict | None = None,
    state: State | None = None,
    ok: bool = True,
    outside: bool = False,
    residual: bool = False,
    tick: bool = False,
    **sampled: object,
) -> tuple[Decision, State]:
    """One row: 4 GPU replicas of 20 and 5 CPU replicas of 4 requests/s, next to no load, all known."""
    table = make_params(1, **{"requests_per_second": (20, 4), "target_utilization": 1.0} | (params or {}))
    samples = make_samples(1, **HEALTHY | sampled)
    state = sense(table, state or initial_state(1, 1), samples)
    if tick:
        decision, _, state = decide(table, state, samples, kind="floor")
        return decision, state
    observation, state = observe(table, state, samples, CONTRACT)
    rule, usable = DEFAULT_SETTINGS if residual else None, np.array([ok])
    proposal = Proposal(observation, np.array([action], np.int32), rule, usable=usable, outside=np.array([outside]))
    decision, _, state = decide(table, state, samples, proposal)
    return decision, state


def trail(decision: Decision) -> dict[str, list[int]]:
    return dict(zip(STAGES, decision.trail[0].tolist(), strict=True))


def flags(decision: Decision) -> Flag:
    return Flag(int(decision.flags[0]))


def test_an_action_moves_from_spec_replicas_in_steps() -> None:
    decision, _ = decided((2, -1, 0), params={"step_size": (2, 3)}, ready_replicas=(1, 1))
    assert decision.desired.tolist() == [[8, 2]]
    assert decision.placement[0] == Placement.PREFER_GPU
    assert flags(decision) == Flag.NONE
    assert decision.action.tolist() == [[2, -1, 0]]
    assert np.isnan(decision.probabilities).all()


def test_limits_come_after_the_action() -> None:
    decision, _ = decided((2, -2, 1), params={"max_replicas": (5, 10), "min_replicas": (1, 4)})
    assert (trail(decision)["proposal"], trail(decision)["limits"]) == ([6, 3], [5, 4])
    assert flags(decision) == Flag.LIMITED


def test_a_pool_that_is_not_there_stays_at_nothing() -> None:
    decision, _ = decided((1, 1, 1), params={"present": (False, True)}, spec_replicas=(3, 5), ready_replicas=(3, 5))
    assert decision.desired.tolist() == [[0, 6]]
    assert decision.weights.tolist() == [[0, 1000]]


@pytest.mark.parametrize("why", ["unknown", "failed"])
@pytest.mark.parametrize(
    ("fallback", "expected"),
    [
        (FallbackBehavior.CURRENT_REPLICAS, [4, 5]),
        (FallbackBehavior.CURRENT_REPLICAS_IF_HIGHER, [7, 5]),
        (FallbackBehavior.STATIC, [7, 2]),
        (FallbackBehavior.HPA_FORMULA, {"unknown": [4, 5], "failed": [3, 4]}),
        (FallbackBehavior.FORECAST_RULE, {"unknown": [4, 5], "failed": [1, 0]}),
    ],
)
def test_hold_then_fall_back(why: str, fallback: FallbackBehavior, expected: list[int] | dict) -> None:
    params = {"fallback": fallback, "fallback_replicas": (7, 2), "target_utilization": 0.8}
    broken = {"arrival_rate": np.nan} if why == "unknown" else {"ok": False}
    state = None
    for interval in range(3):
        decision, state = decided((-2, -2, 2), params=params, state=state, **broken)  # type: ignore[arg-type]
        falls_back = interval == 2
        assert flags(decision) & (Flag.FALLBACK | Flag.HELD_UNKNOWN) == (
            Flag.FALLBACK if falls_back else Flag.HELD_UNKNOWN
        )
        wanted = expected[why] if isinstance(expected, dict) else expected
        assert trail(decision)["unknown"] == (wanted if falls_back else [4, 5])
        assert decision.placement[0] == Placement.BALANCED
    assert state.unknown_intervals[0] == 3
    decision, state = decided((-1, 0, 2), params=params, state=state)
    assert (flags(decision), state.unknown_intervals[0]) == (Flag.NONE, 0)


def test_no_rise_either_while_held() -> None:
    decision, _ = decided((2, 2, 1), arrival_rate=np.nan)
    assert decision.desired.tolist() == [[4, 5]]


def test_outside_the_envelope_the_fallback_acts_at_once() -> None:
    params = {"fallback": FallbackBehavior.STATIC, "fallback_replicas": (7, 2)}
    decision, _ = decided((-2, -2, 0), params=params, outside=True)
    assert decision.desired.tolist() == [[7, 2]]
    assert flags(decision) == Flag.FALLBACK | Flag.OUT_OF_ENVELOPE
    assert decision.action.tolist() == [[0, 0, -1]]


def test_without_known_capacity_the_actor_may_not_lower_there() -> None:
    decision, _ = decided((-2, -2, 1), params={"requests_per_second": (np.nan, 4)})
    assert decision.desired.tolist() == [[4, 3]]
    assert flags(decision) & Flag.CAPACITY_UNKNOWN


def test_without_known_capacity_the_floor_is_the_hpa_formula() -> None:
    params = {"requests_per_second": (np.nan, 4), "target_utilization": 0.5}
    decision, _ = decided(params=params, gpu_utilization=100.0, arrival_rate=500.0)
    assert decision.desired.tolist() == [[8, 5]]
    assert flags(decision) == Flag.CAPACITY_UNKNOWN | Flag.FLOOR


@pytest.mark.parametrize("tick", [False, True])
def test_floor_raises_at_the_action_and_between(tick: bool) -> None:
    decision, state = decided((0, 0, 1), arrival_rate=110.0, tick=tick)
    assert decision.desired.tolist() == [[4, 8]]
    assert flags(decision) == Flag.FLOOR
    assert state.floor_hold.tolist() == [[0, 8]]


def test_floor_stops_a_fall_without_holding_anything() -> None:
    """What runs already is ready soonest: it is kept before anything new is started."""
    decision, state = decided((-2, -2, 1), arrival_rate=70.0)
    assert trail(decision)["behavior"] == [2, 3]
    assert decision.desired.tolist() == [[3, 3]]
    assert flags(decision) == Flag.FLOOR
    assert not state.floor_hold.any()


def test_floor_can_be_switched_off() -> None:
    decision, state = decided(params={"reactive_floor": False}, arrival_rate=110.0)
    assert decision.desired.tolist() == [[4, 5]]
    assert not state.floor_hold.any()


def test_what_the_floor_added_stays_until_it_was_ready_once() -> None:
    _, state = decided(arrival_rate=110.0, tick=True)
    for ready in (5, 7):
        decision, state = decided((0, -2, 1), state=state, spec_replicas=(4, 8), ready_replicas=(4, ready))
        assert decision.desired.tolist() == [[4, 8]]
    decision, state = decided((0, -2, 1), state=state, spec_replicas=(4, 8), ready_replicas=(4, 8))
    assert decision.desired.tolist() == [[4, 6]]
    decision, _ = decided((0, -2, 1), state=state, spec_replicas=(4, 6), ready_replicas=(4, 6))
    assert decision.desired.tolist() == [[4, 4]]


def test_what_the_floor_added_is_let_go_where_it_was_not_written() -> None:
    _, state = decided(arrival_rate=110.0, tick=True)
    decision, state = decided((0, -1, 1), state=state)
    assert decision.desired.tolist() == [[4, 4]]
    assert not state.floor_hold.any()


@pytest.mark.parametrize(
    ("pause", "expected"),
    [
        ({"paused": True}, [4, 5]),
        ({"paused": True, "paused_replicas": (2, -1)}, [2, 5]),
        ({"paused": True, "paused_replicas": (99, 0)}, [10, 1]),
        ({"paused_scale_down": True}, [5, 5]),
        ({"paused_replicas": (2, 2)}, [5, 4]),
    ],
)
def test_pause(pause: dict, expected: list[int]) -> None:
    decision, _ = decided((1, -1, 0), **pause)
    assert decision.desired.tolist() == [expected]
    assert bool(flags(decision) & Flag.PAUSED) == (expected != [5, 4])
    assert decision.placement[0] == (Placement.BALANCED if pause.get("paused") else Placement.PREFER_GPU)


def test_weights_move_before_a_pool_shrinks() -> None:
    now, _ = decided((0, 0, 1))
    shrinking, _ = decided((-2, 0, 1))
    assert now.weights.tolist() == [[800, 200]]
    assert shrinking.weights.tolist() == [[667, 333]]


def test_between_actions_weights_follow_readiness_and_placement_stays() -> None:
    _, state = decided((0, 0, 0))
    decision, _ = decided(state=state, tick=True, ready_replicas=(0, 5))
    assert decision.weights.tolist() == [[0, 1000]]
    assert decision.placement[0] == Placement.PREFER_GPU
    assert decision.action.tolist() == [[0, 0, -1]]


def test_between_actions_an_edit_of_the_limits_applies() -> None:
    decision, _ = decided(params={"max_replicas": 3}, tick=True)
    assert decision.desired.tolist() == [[3, 3]]
    assert flags(decision) == Flag.LIMITED


def test_the_rule_under_a_residual_actor_is_the_manifests() -> None:
    gains = RuleGains(loading=0.7, peak_seconds=60)
    on_rule, plain = (FrozenActor(Manifest(name="x", residual=mode, rule=gains)) for mode in (True, False))
    assert rule_under(on_rule) == RuleSettings(
        loading=0.7, peak_seconds=60, late_price=0.0, placement=Placement.BALANCED
    )
    assert rule_under(plain) is None
    assert rule_under(Rule(RuleSettings(horizon=0.5))) == RuleSettings(horizon=0.5)
    learned = LearnedPrices(late_price=0.4, caution=0.3, jump_caution=0.1)
    knowing = Manifest(name="x", residual=True, rule=gains, learned=learned)
    assert rule_of(knowing) == RuleSettings(
        loading=0.7, peak_seconds=60, late_price=0.4, caution=0.3, jump_caution=0.1, placement=BY_LOAD
    )
    assert Manifest.parse(knowing.model_dump_json()) == knowing
    assert Manifest(name="x").rule.model_dump().items() <= asdict(DEFAULT_SETTINGS).items()


def test_residual_actions_start_from_the_rule() -> None:
    rule, _ = decided(residual=True, arrival_rate=90.0)
    decision, _ = decided((1, -1, 1), residual=True, arrival_rate=90.0)
    assert (decision.trail[0, 0] - rule.trail[0, 0]).tolist() == [1, -1]
    assert decision.base.tolist() == [[4, 5]]
