"""The forecast rule's split between decision, status and record: a restart moves no traffic, old records stay true."""

import json

from rlscaler_core.api.convert import to_params
from rlscaler_core.api.status import PlacementStatus
from rlscaler_core.decision.tables import initial_state, make_params
from rlscaler_operator.records.rows import decode_params, decode_state, encode, encode_state
from rlscaler_operator.reporting.stabilization import restore_placement
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.status import placement_status


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
