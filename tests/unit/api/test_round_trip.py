"""Whatever the models accept survives the way to the API server and back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.api import parse, to_params
from rlscaler_core.api.base import format_time
from rlscaler_core.api.status import Status

names = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?\Z")
numbers = st.floats(0.01, 1000, allow_nan=False)


def optional(**fields):
    return st.fixed_dictionaries({}, optional=fields)


targets = st.fixed_dictionaries(
    {"deployment": names, "maxReplicas": st.integers(20, 200)},
    optional={
        "minReplicas": st.integers(0, 20),
        "stepSize": st.integers(1, 20),
        "costPerHour": numbers,
        "requestsPerSecond": numbers,
        "coldStartSeconds": numbers,
        "startCostSeconds": st.floats(0, 86_400),
    },
)
rules = st.fixed_dictionaries(
    {"type": st.sampled_from(["Pods", "Percent"]), "value": st.integers(1, 100), "periodSeconds": st.integers(1, 1800)}
)
directions = optional(
    stabilizationWindowSeconds=st.integers(0, 3600),
    selectPolicy=st.sampled_from(["Max", "Min", "Disabled"]),
    policies=st.lists(rules, min_size=1, max_size=4),
)
specs = st.fixed_dictionaries(
    {
        "targets": optional(gpu=targets, cpu=targets),
        "slo": st.fixed_dictionaries({"latencyMilliseconds": st.integers(1, 10_000)}),
    },
    optional={
        "mode": st.sampled_from(["Off", "Shadow", "Auto"]),
        "intervalSeconds": st.integers(10, 300),
        "senseSeconds": st.integers(1, 10),
        "policy": optional(bundled=st.sampled_from(["ppo", "rule"])),
        "metrics": optional(maxAgeSeconds=st.integers(5, 3600), queries=optional(arrivalRate=st.just("up"))),
        "placement": optional(httpRoute=st.fixed_dictionaries({"name": names})),
        "behavior": optional(scaleUp=directions, scaleDown=directions),
        "guards": optional(reactiveFloor=st.booleans(), targetUtilization=optional(gpu=st.integers(1, 100))),
        "restoreOnDelete": st.booleans(),
    },
)


def scales_something(spec):
    """No rule of the targets is broken; the rules have tests of their own."""
    pools = list(spec["targets"].values())
    zeros = [pool for pool in pools if pool.get("minReplicas") == 0]
    return len({pool["deployment"] for pool in pools}) == len(pools) > len(zeros)


@pytest.mark.slow
@settings(max_examples=200)
@given(specs.filter(scales_something))
def test_spec_survives_the_way_to_the_api_server_and_back(spec):
    policy = parse({"metadata": {"name": "chat"}, "spec": spec})
    assert parse(policy.to_dict()) == policy
    params = to_params(policy.spec)
    assert (params.min_replicas <= params.max_replicas).all()
    assert (params.step_size >= 1).all()


@given(
    st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC)), numbers, st.sampled_from(["Known", "Unknown"])
)
def test_status_survives_the_way_to_the_api_server_and_back(time, value, state):
    status = Status.model_validate(
        {
            "observation": {"time": format_time(time), "p95Latency": {"value": value, "state": state}},
            "stabilization": {"gpu": {"changes": [{"value": -2, "expires": format_time(time)}]}},
        }
    )
    assert status.observation.time == time
    assert Status.model_validate(status.to_dict()) == status
