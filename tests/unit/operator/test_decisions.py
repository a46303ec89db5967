import numpy as np
import pytest

from rlscaler_core.decision import batch as decisions
from rlscaler_core.decision.batch import decide_all, fresh_state, with_stack
from rlscaler_core.decision.types import FallbackBehavior, Flag


def test_outcomes_come_in_the_order_of_the_entries(entry):
    entries = [entry("floor"), entry("action"), entry("action", actor=None), entry("action", replicas=(3, 1))]
    outcomes = decide_all(entries)
    assert [outcome.entry for outcome in outcomes] == entries
    assert outcomes[0].observation is None
    assert outcomes[3].decision.base.tolist() == [[3, 1]]


def test_without_an_actor_replicas_are_held_then_fall_back(entry):
    first = decide_all(
        [entry(actor=None, failure_threshold=2, reactive_floor=False, fallback=FallbackBehavior.CURRENT_REPLICAS)]
    )[0]
    assert first.decision.flags[0] & Flag.HELD_UNKNOWN
    again = entry(actor=None, failure_threshold=2, reactive_floor=False, fallback=FallbackBehavior.CURRENT_REPLICAS)
    again.state = first.state
    second = decide_all([again])[0]
    assert second.decision.flags[0] & Flag.FALLBACK
    assert second.decision.desired.tolist() == [[2, 2]]


def test_one_entry_that_fails_does_not_spoil_the_others(caplog, entry):
    broken = entry(rate=30.0)
    broken.samples.ready_replicas = np.zeros((1, 3), np.int32)
    outcomes = decide_all([entry(), broken, entry(rate=70.0)])
    assert outcomes[1].error is not None
    assert outcomes[1].decision is None
    assert outcomes[0].decision is not None
    assert outcomes[2].decision.desired[0].sum() > outcomes[0].decision.desired[0].sum()
    assert "its halves are tried" in caplog.text


def test_after_a_start_nothing_is_scaled_down_before_a_full_window(entry):
    quiet = {"rate": 1.0, "replicas": (5, 5), "has_behavior": True, "stabilization_seconds": (0.0, 300.0)}
    held = entry(**quiet)
    assert decide_all([held])[0].decision.desired.tolist() == [[5, 5]]
    later = entry(**quiet)
    later.samples.time[:] = 100.0 + 301
    assert decide_all([later])[0].decision.desired.sum() < 10


def test_another_actor_may_look_at_another_number_of_observations(rule):
    state = fresh_state(None, (1, 1), 0.0)
    assert state.stack.shape[1] == 4
    assert with_stack(state, rule).stack.shape[1] == 1
    assert with_stack(state, None) is state


def test_equal_policies_decide_equally_in_any_batch(entry):
    alone = decide_all([entry()])[0].decision.desired
    crowd = decide_all([entry(), entry(rate=90.0), entry()])
    assert (crowd[0].decision.desired == alone).all()
    assert (crowd[2].decision.desired == alone).all()


@pytest.mark.parametrize("kind", ["action", "floor"])
def test_state_that_goes_in_is_left_alone(kind, entry, rule):
    one = entry(kind)
    before = one.state.copy()
    decide_all([one])
    for name in ("rate_time", "stack", "stacked", "recommendation_time", "weights"):
        np.testing.assert_array_equal(getattr(one.state, name), getattr(before, name))
    assert decisions.stack_size(rule) == 1


@pytest.mark.parametrize("kind", ["floor", "action"])
def test_where_every_pool_is_off_nothing_is_asked_for(entry, kind):
    outcome = decide_all([entry(kind, replicas=(0, 0), rate=50.0, present=(False, False))])[0]
    assert outcome.error is None
    assert outcome.decision.desired.tolist() == [[0, 0]]
    assert not outcome.moves
