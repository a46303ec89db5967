"""What of a spec is searched, within the user's own limits, and how what was found reads as a patch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.decision.types import CPU, GPU
from rlscaler_loadgen.traces import Trace
from rlscaler_rl.evaluation.service_tuning import spec
from rlscaler_rl.evaluation.service_tuning.history import prepare
from rlscaler_rl.evaluation.service_tuning.service import read_policy, service_of
from rlscaler_rl.simulation.scenario import from_rate

from .conftest import make_service, waves
from .test_service import EXAMPLES


def space(service, load=1.0):
    return spec.space_of(service, prepare(Trace(waves() * load, 1.0), "waves.csv", service))


def bounds(distribution):
    return distribution.low, distribution.high


def test_standing_replicas_go_from_the_users_own_to_what_the_load_needs():
    service = make_service(min_replicas=(1, 2), max_replicas=(20, 64))
    found = space(service)
    assert bounds(found["min_gpu"]) == (1, 6)
    assert bounds(found["min_cpu"]) == (2, 29)
    assert bounds(space(make_service(max_replicas=(4, 3)))["min_gpu"]) == (1, 4)
    small = space(make_service(min_replicas=(5, 5)), load=0.1)
    assert bounds(small["min_gpu"]) == (5, 5), "never below the user's own"


def test_the_fallbacks_replicas_bound_them_too():
    service = replace(make_service(), fallback=(3, None))
    assert bounds(space(service)["min_gpu"]) == (1, 3)
    assert bounds(space(service)["min_cpu"]) == (1, 10)


def test_a_pool_that_is_not_there_is_not_searched():
    found = space(make_service(present=(False, True)), load=0.3)
    assert bounds(found["min_gpu"]) == (0, 0)


def test_the_users_own_spec_is_a_point_of_the_space():
    service = make_service(target_utilization=(0.3, 0.3), stabilization_seconds=(0.0, 400.0), reactive_floor=False)
    found, own = space(service), spec.own_point(service)
    assert own == {**own, "target_utilization": 0.3, "down_window": 400, "reactive_floor": False}
    for name, value in own.items():
        assert found[name]._contains(found[name].to_internal_repr(value)), name
    kind = spec.tunable(service, prepare(Trace(waves(), 1.0), "waves.csv", service))
    assert spec.starts(kind)[0] == own
    for start in spec.starts(kind):
        for name, value in start.items():
            assert found[name]._contains(found[name].to_internal_repr(value)), name


def test_only_what_differs_is_in_the_patch():
    service = make_service(target_utilization=(0.5, 0.8), min_replicas=(2, 1))
    assert spec.patch(service, {**spec.own_point(service), "target_utilization": 0.8})["spec"] == {
        "guards": {"targetUtilization": {"gpu": 80}}
    }
    point = {"min_gpu": 3, "min_cpu": 1, "reactive_floor": True, "target_utilization": 0.704, "down_window": 60}
    assert spec.patch(service, point)["spec"] == {
        "targets": {"gpu": {"minReplicas": 3}},
        "guards": {"targetUtilization": {"gpu": 70, "cpu": 70}},
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
    }
    assert spec.patch(make_service(), spec.own_point(make_service())) == {}
    assert spec.patch(service, spec.OWN) == {}


def test_a_target_that_no_floor_aims_at_is_no_change():
    point = {**spec.own_point(make_service()), "reactive_floor": False, "target_utilization": 0.6}
    assert spec.changes(make_service(), point) == {"reactive_floor": False}


def test_what_always_stands_must_fit_into_the_budget():
    service = make_service(budget_per_hour=10.0)
    assert spec.affordable(service, {"min_gpu": 3, "min_cpu": 4})
    assert not spec.affordable(service, {"min_gpu": 3, "min_cpu": 5})


def test_what_is_played_leaves_scale_up_as_the_user_has_it():
    service = make_service(stabilization_seconds=(45.0, 60.0))
    changed = spec.with_point(service, {"down_window": 0, "min_gpu": 2})
    assert changed.params.stabilization_seconds.tolist() == [[45.0, 0.0]]
    assert changed.params.min_replicas.tolist() == [[2, 1]]
    assert (changed.params.target_utilization == service.params.target_utilization).all()


@settings(max_examples=20)
@given(
    gpu=st.integers(1, 10),
    cpu=st.integers(1, 10),
    target=st.floats(0.4, 1.0),
    floor=st.booleans(),
    window=st.integers(0, 20).map(lambda steps: 15 * steps),
)
def test_a_patched_policy_reads_as_what_was_played(tmp_path_factory, gpu, cpu, target, floor, window):
    point = {"min_gpu": gpu, "min_cpu": cpu, "target_utilization": target, "reactive_floor": floor}
    point["down_window"] = window
    body = yaml.safe_load((EXAMPLES / "policy.yaml").read_text())
    own = service_of(read_policy(EXAMPLES / "policy.yaml"), 15)
    path = tmp_path_factory.mktemp("patched") / "policy.yaml"
    path.write_text(yaml.safe_dump(merged(body, spec.patch(own, point))))
    read, played = (service_of(read_policy(path), 15).params, spec.with_point(own, spec.changes(own, point)).params)
    for name in ("min_replicas", "max_replicas", "reactive_floor", "stabilization_seconds", "has_behavior"):
        assert (getattr(read, name) == getattr(played, name)).all(), name
    assert np.allclose(read.target_utilization, played.target_utilization)


def merged(body, patch):
    """RFC 7386, as far as these patches go."""
    found = dict(body)
    for name, value in patch.items():
        found[name] = merged(found.get(name) or {}, value) if isinstance(value, dict) else value
    return found


def test_the_policys_fallback_is_read():
    read = service_of(read_policy(EXAMPLES / "policy-full.yaml"), 15)
    assert read.fallback == (4, 4)
    assert service_of(read_policy(EXAMPLES / "policy.yaml"), 15).fallback == (None, None)


@pytest.mark.parametrize("budget", [np.inf, 5.0])
def test_the_episodes_run_under_the_users_budget(budget):
    service = make_service(budget_per_hour=budget, cost_per_hour=(5.0, 1.0))
    params = service.bind(from_rate(np.full((2, 60), 5.0), [1, 2], **service.columns())).params()
    assert np.allclose(params.budget_per_hour / params.cost_per_hour[:, GPU], budget / 5.0)
    assert np.allclose(params.cost_per_hour[:, CPU] / params.cost_per_hour[:, GPU], 0.2)
