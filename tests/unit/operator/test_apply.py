"""What is remembered before the first change, against a real HTTP server."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.decision.batch import decide_all
from rlscaler_operator.actuation.apply import Actuator
from rlscaler_operator.actuation.drain import Need
from rlscaler_operator.actuation.restore import FINALIZER, MOST_TRIES, TRIES
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.loop.wiring import build_engine
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry


@pytest.fixture
def cache():
    one = WatchCache()
    one.put_deployment({"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {"replicas": 2}})
    return one


@pytest.fixture
def apply(kube, cache, entry, policy_body):
    shards = Shards(kube, Settings())
    shards.leases[0]._deadline = math.inf
    policy = Registry().put(policy_body())
    actuator = Actuator(kube, shards, ConcurrencyLimiter(8), cache, Settings())
    decision = decide_all([entry()])[0].decision

    async def run(base, desired):
        row = np.array([[base, 0]], np.int32), np.array([[desired, 0]], np.int32)
        changed = replace(decision, base=row[0], desired=row[1])
        return policy, await actuator.apply(policy, changed, Need.unknown())

    return run


async def test_originals_are_what_was_found_even_where_they_could_not_be_recorded_at_once(api_server, cache, apply):
    api_server.status = 500
    policy, applied = await apply(2, 3)
    assert not applied.complete
    assert "originals" not in policy.outbox.status
    cache.deployments["ns", "chat-gpu"].replicas = 3
    api_server.status = 200
    policy, _ = await apply(3, 2)
    assert policy.outbox.status["originals"]["replicas"] == {"gpu": 2}


async def test_growth_is_written_before_anything_else(api_server, apply):
    policy, applied = await apply(2, 3)
    assert applied.complete
    assert api_server.paths[0].endswith("/deployments/chat-gpu/scale")
    assert policy.ownership.originals.replicas.gpu == 2


async def test_where_they_are_restored_originals_are_recorded_before_growth(api_server, apply, policy_body):
    policy, _ = await apply(2, 2)
    body = policy_body(generation=2)
    policy.observed.read(body | {"spec": body["spec"] | {"restoreOnDelete": True}})
    api_server.paths.clear()
    _, applied = await apply(2, 3)
    assert applied.complete
    finalizer, originals, scale, *_ = api_server.paths
    assert finalizer.endswith("/rlscalingpolicies/chat")
    assert originals.endswith("/rlscalingpolicies/chat/status")
    assert scale.endswith("/scale")


async def test_shrinking_waits_until_the_originals_are_recorded(api_server, apply):
    api_server.status = 500
    _, applied = await apply(2, 1)
    assert applied.writes["gpu"].outcome == "Waiting"
    assert not any(path.endswith("/scale") for path in api_server.paths)
    api_server.status = 200
    _, applied = await apply(2, 1)
    assert applied.complete


DENIED = 'deployments.apps "chat-gpu" is forbidden: ValidatingAdmissionPolicy denied request: no more than 5'
TARGET = "/apis/apps/v1/namespaces/ns/deployments/chat-gpu"


def scaled(replicas):
    return json.dumps({"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {"replicas": replicas}})


@pytest.mark.parametrize(
    ("status", "there", "outcome"),
    [
        (422, 2, "Refused"),
        (403, 2, "Refused"),
        (400, 2, "Refused"),
        (422, 4, "Conflict"),
        (409, 2, "Conflict"),
        (429, 2, "Failed"),
        (500, 2, "Failed"),
        (404, 2, "Missing"),
    ],
)
async def test_a_write_that_is_refused_is_told_from_one_that_met_another(api_server, apply, status, there, outcome):
    """The status of an admission policy's refusal is that of a failed `test` of the patch."""
    api_server.text = json.dumps({"message": DENIED})
    api_server.statuses[f"{TARGET}/scale?fieldManager=rlscaler"] = status
    api_server.answers[TARGET] = scaled(there)
    policy, applied = await apply(2, 9)
    write = applied.writes["gpu"]
    assert write.outcome == outcome
    assert applied.failed is (outcome == "Failed")
    assert ("no more than 5" in write.message) is (outcome in ("Refused", "Failed"))
    assert bool(policy.ownership.refusals) is (outcome == "Refused")


@pytest.mark.parametrize(("answer", "there"), [(scaled(5), 5), (scaled(9), None), ('{"spec": {}}', 0), ("{}", None)])
async def test_replicas_that_a_webhook_changes_on_their_way_are_refused_ones(api_server, cache, apply, answer, there):
    api_server.answers[f"{TARGET}/scale?fieldManager=rlscaler"] = answer
    policy, applied = await apply(2, 9)
    assert cache.deployments["ns", "chat-gpu"].replicas == (9 if there is None else there)
    assert applied.complete is (there is None)
    assert bool(policy.ownership.refusals) is (there is not None)
    assert there is None or f"2 -> 9 became {there}" in policy.ownership.refusals["chat-gpu"].words


@pytest.mark.parametrize(("status", "tries"), [(403, TRIES["ScaleRefused"]), (500, MOST_TRIES)])
async def test_a_policy_whose_originals_cannot_be_put_back_goes_after_a_bounded_number_of_attempts(
    api_server, kube, policy_body, monkeypatch, status, tries
):
    monkeypatch.setattr("rlscaler_operator.actuation.restore.RETRY_SECONDS", 0.0)
    engine = build_engine(Settings(), kube)
    engine.shards.leases[0]._deadline = math.inf
    engine.cache.put_deployment(json.loads(scaled(2)))
    body = policy_body(finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z")
    body["spec"]["restoreOnDelete"] = True
    body["status"] = {"originals": {"time": "2026-01-01T00:00:00Z", "replicas": {"gpu": 7}}}
    policy = engine.registry.put(body)
    api_server.text = json.dumps({"message": DENIED})
    api_server.statuses[f"{TARGET}/scale?fieldManager=rlscaler"] = status
    api_server.answers[TARGET] = scaled(2)
    for _ in range(tries):
        assert policy.observed.finalizers == [FINALIZER]
        await engine.deletion.run(policy)
    assert policy.observed.finalizers == []
    (event,) = [json.loads(sent) for _, sent in api_server.sent if "NotRestored" in sent]
    assert "no more than 5" in event["message"]
    assert "kubectl -n ns scale deployment/chat-gpu --replicas=7" in event["message"]


async def test_a_policy_that_cannot_be_read_any_more_goes_and_names_its_originals(api_server, kube, policy_body):
    """A downgraded CustomResourceDefinition leaves objects behind that the operator does not know."""
    engine = build_engine(Settings(), kube)
    engine.shards.leases[0]._deadline = math.inf
    body = policy_body(finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z")
    body["spec"]["mode"] = "Canary"
    body["status"] = {"originals": {"time": "2026-01-01T00:00:00Z", "replicas": {"gpu": 7}}}
    policy = engine.registry.put(body)
    await engine.deletion.run(policy)
    assert policy.observed.finalizers == []
    (event,) = [json.loads(sent) for _, sent in api_server.sent if "NotRestored" in sent]
    assert '"gpu": 7' in event["message"]
    assert "mode" in event["message"]
