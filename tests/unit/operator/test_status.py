import json
import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_core.api import Status
from rlscaler_core.api.convert import to_params
from rlscaler_core.api.status import PlacementStatus
from rlscaler_core.decision.batch import decide_all
from rlscaler_core.decision.headroom import MODEL, model_number
from rlscaler_core.decision.tables import initial_state, make_params
from rlscaler_operator.cluster.bodies import Deployment
from rlscaler_operator.records.rows import decode_params, decode_state, encode, encode_state
from rlscaler_operator.reporting.stabilization import restore, restore_headroom, restore_placement, to_status
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.status import (
    decision_status,
    headroom_status,
    merge_patch,
    observation_status,
    placement_status,
    significant,
    targets_status,
    with_history,
)

json_objects = st.recursive(
    st.one_of(st.integers(), st.text(max_size=3), st.booleans(), st.lists(st.integers(), max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
).filter(lambda value: isinstance(value, dict))


def apply(target, patch):
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            inner = result.get(name)
            result[name] = apply(inner if isinstance(inner, dict) else {}, value)
        else:
            result[name] = value
    return result


@given(json_objects, json_objects)
def test_the_patch_leads_from_the_old_status_to_the_new(old, new):
    assert apply(old, merge_patch(old, new)) == new
    assert merge_patch(new, new) == {}


@pytest.fixture
def decided(entry):
    def make(**changes):
        outcome = decide_all([entry(rate=70.0, **changes)])[0]
        return outcome, decision_status("id", 0.0, outcome.decision, outcome.entry.params, True, "Applied")

    return make


def test_a_decision_says_what_each_guard_did(decided):
    outcome, status = decided()
    assert next(step.name for step in status.guards) == "proposal"
    assert status.guards[-1].after == status.desired
    assert status.desired.gpu == outcome.decision.desired[0, 0]


def test_an_absent_pool_is_left_out(decided):
    _, status = decided(present=(True, False))
    assert status.desired.cpu is None
    assert "cpu" not in status.to_dict()["desired"]


def test_history_keeps_the_last_five_that_changed_something(decided):
    _, status = decided()
    history = []
    for number in range(7):
        history = with_history(history, status.model_copy(update={"id": str(number)}))
    assert [one.id for one in history] == ["6", "5", "4", "3", "2"]
    assert with_history(history, status.model_copy(update={"desired": status.base})) is history


def test_unknown_values_are_absent_never_zero(entry):
    outcome = decide_all([entry(rate=math.nan)])[0]
    shown = observation_status(outcome.observation, 0.0).to_dict()
    assert shown["throughput"]["state"] == "Unknown"
    assert "value" not in shown["throughput"]


def test_a_deployment_that_does_not_exist_has_only_its_name():
    shown = targets_status(
        {"gpu": "chat-gpu", "cpu": "chat-cpu"}, {"gpu": None, "cpu": Deployment("u", "1", 3, 2, "")}, {"cpu": 4}
    ).to_dict()
    assert shown["gpu"] == {"deployment": "chat-gpu"}
    assert shown["cpu"] == {
        "deployment": "chat-cpu",
        "current": 3,
        "ready": 2,
        "starting": 1,
        "desired": 4,
        "summary": "2/4",
    }


def test_measured_values_are_not_worth_a_write_replicas_and_guards_are(decided):
    outcome, last = decided()
    status = Status(last_decision=last, observation=observation_status(outcome.observation, 0.0)).to_dict()
    later = Status(last_decision=last.model_copy(update={"id": "other", "time": datetime.now(UTC)})).to_dict()
    assert significant(status) == significant(later)
    guarded = Status(last_decision=last.model_copy(update={"reasons": ["Floor"]})).to_dict()
    assert significant(status) != significant(guarded)


def test_stabilization_survives_a_restart():
    params = make_params(1, stabilization_seconds=(0.0, 300.0), rules=np.full((2, 4, 3), (1.0, 4.0, 60.0)))
    state = initial_state(1, 4)
    state.recommendation_time[0, 0, :2], state.recommendation[0, 0, :2] = (1000.0, 600.0), (7, 9)
    state.event_time[0, 1, 0], state.event_change[0, 1, 0] = 990.0, 3
    state.floor_hold[0] = (0, 5)
    status = to_status(state, params, 1010.0, {})
    assert [e.value for e in status.gpu.recommendations] == [7]
    restored = restore(initial_state(1, 4), params, status, 1020.0)
    assert restored.recommendation_time[0, 0, 0] == 1000.0
    assert (restored.event_time[0, 1, 0], restored.event_change[0, 1, 0]) == (990.0, 3)
    assert restored.floor_hold[0].tolist() == [0, 5]
    assert np.isnan(restore(initial_state(1, 4), params, status, 2000.0).event_time).all()


def test_a_write_is_a_change_as_soon_as_the_replicas_show_it():
    params = make_params(
        1, has_behavior=True, stabilization_seconds=(0.0, 300.0), rules=np.full((2, 4, 3), (1.0, 4.0, 60.0))
    )
    state = initial_state(1, 4)
    state.write_time[0], state.write_base[0], state.write_desired[0] = 1000.0, (2, 1), (5, 3)
    status = to_status(state, params, 1001.0, {"gpu": 5, "cpu": 1})
    assert [e.value for e in status.gpu.changes] == [3]
    assert status.cpu is None
    restored = restore(initial_state(1, 4), params, status, 1020.0)
    assert (restored.event_time[0, 0, 0], restored.event_change[0, 0, 0]) == (1000.0, 3)


def test_the_budget_that_was_kept_survives_a_restart():
    params, state = make_params(1, budget_per_hour=10.0), initial_state(1, 4)
    state.budget_kept[0] = 10.0
    status = to_status(state, params, 0.0, {})
    assert status.to_dict() == {"budgetPerHour": 10.0}
    assert restore(initial_state(1, 4), params, status, 1.0).budget_kept[0] == 10.0


def test_the_headroom_survives_a_restart():
    state, digest = initial_state(1, 1), "ab" * 32
    assert headroom_status(state) is None, "no network moves it"
    state.headroom[0, :4] = np.log(1.18), np.nan, 1_767_604_440.0, np.nan
    state.headroom[0, MODEL] = model_number(digest)
    written = Status(headroom=headroom_status(state)).to_dict()
    assert written["headroom"] == {"gpu": {"percent": 18.0, "since": "2026-01-05T09:14:00Z"}}
    other = initial_state(1, 1)
    restore_headroom(other, Status.model_validate(written).headroom, digest)
    np.testing.assert_allclose(other.headroom, state.headroom, rtol=1e-6)


def test_nothing_to_remember_is_no_status():
    assert to_status(initial_state(1, 4), make_params(1), 0.0, {}) is None


def test_a_restart_goes_on_with_the_factor_that_was_in_force():
    shown = placement_status(0, 1.5, (860, 140), "chat").to_dict()
    assert shown["factor"] == 1.5
    state = initial_state(1, 1)
    restore_placement(state, PlacementStatus(**shown))
    assert (state.placement[0], state.preference[0], state.weights[0].tolist()) == (0, 1.5, [860, 140])


def test_a_status_of_an_older_release_has_no_factor_and_means_four():
    state = initial_state(1, 1)
    restore_placement(state, PlacementStatus(preference="PreferCPU", weights={"gpu": 300, "cpu": 700}))
    assert state.preference[0] == 4.0
    assert "factor" not in placement_status(1, 4.0, (500, 500), None).to_dict()


def test_a_record_of_an_older_release_is_replayed_without_the_split():
    params, state = encode(make_params(1, split_by_load=True)), encode_state(initial_state(1, 1))
    assert decode_params(json.loads(json.dumps(params))).split_by_load.tolist() == [True]
    del params["split_by_load"], state["preference"]
    assert decode_params(params).split_by_load.tolist() == [False]
    assert decode_state(state).preference.tolist() == [4.0]


def test_policies_of_this_release_split_by_load(policy_body):
    assert to_params(Registry().put(policy_body()).spec).split_by_load.tolist() == [True]
