"""Which edits begin the evidence anew."""

import pytest

from rlscaler_core.models import load_bundled
from rlscaler_operator.shadow.basis import edited, former_basis
from rlscaler_operator.shadow.comparison import requirements_of
from rlscaler_operator.state.registry import Registry
from tests.unit.operator.test_shadow import at_stage

GPU = {"deployment": "chat-gpu", "maxReplicas": 4}


@pytest.fixture
def edit(policy_body):
    """Apply an edit of the spec; return the policy."""
    registry, body = Registry(), policy_body()

    def apply(**spec):
        body["metadata"]["generation"] += 1
        body["spec"] |= spec
        policy = registry.put(body)
        assert not policy.observed.invalid
        policy.decision.actor = policy.decision.actor or load_bundled("rule")
        return policy

    return apply


@pytest.mark.parametrize(
    ("part", "spec"),
    [
        ("targets", {"targets": {"gpu": GPU | {"requestsPerSecond": 5000}}}),
        ("targets", {"targets": {"gpu": GPU | {"costPerHour": 900}}}),
        ("targets", {"targets": {"gpu": GPU | {"maxReplicas": 40}}}),
        ("guards", {"guards": {"reactiveFloor": False}}),
        ("slo", {"slo": {"latencyMilliseconds": 500, "objective": 50}}),
        ("slo", {"slo": {"latencyMilliseconds": 501}}),
        ("metrics", {"metrics": {"queries": {"arrivalRate": "vector(3)"}}}),
        ("metrics", {"metrics": {"prometheus": {"url": "http://other:9090"}}}),
        ("metrics", {"metrics": {"preset": "vllm"}}),
        ("capacity", {"capacity": {"perReplica": {"gpu": 7}}}),
        ("fallback", {"fallback": {"behavior": "currentReplicas"}}),
        ("behavior", {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 600}}}),
        ("intervalSeconds", {"intervalSeconds": 60}),
    ],
)
def test_an_edit_of_what_decides_begins_anew_and_is_named(edit, part, spec):
    before = requirements_of(edit()).basis
    now = requirements_of(edit(**spec)).basis
    assert edited(before, now) == [part]
    assert len(now) <= 316


@pytest.mark.parametrize(
    "spec",
    [
        {"mode": "Shadow", "promotion": {"require": "Evidence", "minDays": 9}, "restoreOnDelete": True},
        {"metrics": {"prometheus": {"auth": {"bearerToken": {"name": "token", "key": "token"}}}}},
        {"guards": {"reactiveFloor": True}, "fallback": {}},
    ],
)
def test_an_edit_of_who_acts_of_credentials_or_to_a_default_keeps_it(edit, spec):
    before = requirements_of(edit()).basis
    assert requirements_of(edit(**spec)).basis == before


KAFKA = {"bootstrapServers": ["kafka:9092"], "topics": ["t"], "group": "g"}
SASL = {name: {"name": "kafka", "key": name} for name in ("username", "password")}


def test_how_a_stream_is_logged_in_to_is_no_part_and_which_one_it_is_is(edit):
    before = requirements_of(edit(signal={"kafka": KAFKA})).basis
    renewed = {"sasl": SASL, "tls": {"ca": {"name": "kafka", "key": "ca.crt"}}}
    assert requirements_of(edit(signal={"kafka": KAFKA | renewed})).basis == before
    assert edited(before, requirements_of(edit(signal={"kafka": KAFKA | {"group": "h"}})).basis) == ["signal"]


def test_another_tenant_has_other_series(edit):
    before = requirements_of(edit()).basis
    tenant = {"prometheus": {"auth": {"tenant": {"id": {"name": "tenant", "key": "id"}}}}}
    assert edited(before, requirements_of(edit(metrics=tenant)).basis) == ["metrics"]


def test_another_model_is_another_basis_and_one_that_cannot_be_read_is_not(edit):
    policy = edit()
    basis = requirements_of(policy).basis
    policy.decision.actor = load_bundled("ppo")
    assert edited(basis, requirements_of(policy).basis) == ["model"]
    policy.promotion.status = at_stage("Promoted").model_copy(update={"basis": basis})
    policy.decision.actor = None
    assert requirements_of(policy).basis == basis


def test_the_basis_of_an_earlier_release_stays_until_it_can_be_compared(edit):
    policy = edit()
    former = former_basis(policy)
    policy.promotion.status = at_stage("Promoted").model_copy(update={"basis": former})
    assert (requirements_of(policy).former, ":" in requirements_of(policy).basis) == (former, True)
    policy.decision.actor = None
    assert requirements_of(policy).basis == former
