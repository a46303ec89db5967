"""The loop without a cluster: statuses, conditions and sizes of new pods that it reports."""

import math
import time

import pytest

from rlscaler_operator.actuation.apply import Applied
from rlscaler_operator.state.findings import Findings
from rlscaler_operator.state.schedule import Due
from tests.harness.ticks import happens, tick

STATUS = "/apis/rlscaler.io/v1alpha1/namespaces/ns/rlscalingpolicies/chat/status?fieldManager=rlscaler"


def sizing_new_pods(engine, api_server, body: dict, mode: str):
    """A policy of this mode, reported before, whose status says how large new GPU pods begin."""
    engine.shards.leases[0]._deadline = math.inf
    body["spec"]["mode"] = mode
    body["status"] = {"observedGeneration": 1, "newPods": {"gpu": {"deployment": "chat-gpu", "cpu": "1"}}}
    api_server.objects[STATUS] = body
    return engine.registry.put(body)


async def test_new_pods_of_a_policy_that_was_reported_as_switched_off_are_left_alone_all_the_same(
    engine, api_server, policy_body
):
    """The removal may have failed when that was reported, or an operator before may have written last."""
    policy = sizing_new_pods(engine, api_server, policy_body(), "Off")
    policy.outbox.written_at, engine.acting = time.monotonic(), {0: 1}
    engine._launch_due()
    await happens(lambda: not policy.timing.busy and not policy.outbox.writing)
    assert policy.observed.new_pods == {}
    assert "newPods" not in api_server.objects[STATUS]["status"]


async def test_new_pods_of_a_policy_in_shadow_are_left_alone_where_nothing_can_be_decided(
    engine, api_server, policy_body
):
    """A target does not exist, say, so there is no outcome."""
    policy = sizing_new_pods(engine, api_server, policy_body(), "Shadow")
    await engine.reconciler.apply_and_report(policy, None, None)
    assert policy.observed.new_pods == {}
    await happens(lambda: not policy.outbox.writing)


@pytest.mark.parametrize("mode", ["Shadow", "Off"])
async def test_a_policy_that_does_not_act_says_what_keeps_sizes_of_new_pods_in_force(
    engine, api_server, policy_body, mode
):
    policy, api_server.status = sizing_new_pods(engine, api_server, policy_body(), mode), 403
    if mode == "Off":
        await engine.reconciler.report_idle(policy)
    else:
        await engine.reconciler.apply_and_report(policy, None, None)
    await happens(lambda: any(method == "POST" and "NewPodsNotSized" in sent for method, sent in api_server.sent))
    await happens(lambda: not policy.outbox.writing)


async def test_while_a_policy_is_paused_new_pods_that_it_sizes_no_more_are_left_alone(engine, api_server, policy_body):
    policy = sizing_new_pods(engine, api_server, policy_body(), "Auto")
    await engine.reconciler._resize(policy, Findings(mode="Auto", paused="paused"), Applied())
    assert policy.observed.new_pods == {}


async def test_a_policy_whose_status_waits_goes_on_sensing_and_the_newest_status_is_written(
    engine, api_server, policy_body
):
    engine.shards.leases[0]._deadline = math.inf
    policy = engine.registry.put(policy_body())
    api_server.slow_path = "/chat/status"
    put = engine.cache.put_deployment
    spec = {"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {"replicas": 2}}
    for ready in (0, 1, 2):
        put(spec | {"status": {"readyReplicas": ready}})
        tick(engine, policy)
        await happens(lambda: not policy.timing.busy)
    assert policy.outbox.writing
    api_server.hold.set()
    await happens(lambda: not policy.outbox.writing)
    assert policy.outbox.status["targets"]["gpu"]["ready"] == 2
    assert [path for path in api_server.paths if path.endswith("/chat/status")] == 2 * [
        "/apis/rlscaler.io/v1alpha1/namespaces/ns/rlscalingpolicies/chat/status"
    ]
    assert policy.report.made_from is not None


async def test_a_status_that_could_not_be_written_is_reported_again(engine, policy_body):
    policy = engine.registry.put(policy_body())
    tick(engine, policy)
    await happens(lambda: not policy.timing.busy and not policy.outbox.writing)
    assert policy.report.conditions
    assert policy.report.made_from is None
    assert "observedGeneration" not in policy.outbox.status


async def test_a_quiet_policy_is_not_judged_again_until_something_changes(engine, api_server, policy_body):
    engine.shards.leases[0]._deadline = math.inf
    policy = engine.registry.put(policy_body())
    put = engine.cache.put_deployment
    put({"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {"replicas": 2}, "status": {"readyReplicas": 2}})

    async def work(due=Due.SENSE):
        before = len(api_server.paths), policy.report.reported_at
        tick(engine, policy, due=due)
        await happens(lambda: not policy.timing.busy and not policy.outbox.writing)
        return len(api_server.paths) - before[0], policy.report.reported_at != before[1]

    assert (await work())[1]
    assert policy.report.made_from is not None
    assert await work() == (0, False)
    assert (await work(Due.ACTION))[1]
    await work()
    assert await work() == (0, False)
    engine.registry.put(policy_body(annotations={"rlscaler.io/paused": "true"}))
    writes, reported = await work()
    assert reported
    assert writes
    assert await work() == (0, False)
    put({"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {"replicas": 2}, "status": {"readyReplicas": 1}})
    assert (await work())[1]


@pytest.mark.parametrize("moment", ["before it is asked for", "while Prometheus answers", "after the decision"])
async def test_a_spec_that_becomes_invalid_during_a_tick_is_a_condition_and_spoils_no_other(
    engine, policy_body, monkeypatch, caplog, moment
):
    engine.shards.leases[0]._deadline = math.inf
    edited, other = engine.registry.put(policy_body("edited")), engine.registry.put(policy_body("other"))
    for pool in ("edited-gpu", "other-gpu", "chat-gpu"):
        engine.cache.put_deployment({"metadata": {"namespace": "ns", "name": pool}, "spec": {"replicas": 2}})

    def edit():
        body = policy_body("edited")
        body["metadata"]["generation"] += 1
        body["spec"]["mode"] = "Sometimes"
        engine.registry.put(body)

    ask, compare = engine.sensing.ask, engine.ticker._compare_all

    async def ask_and_edit(access, policies):
        answers = await ask(access, policies)
        edit()
        return answers

    def edit_and_compare(access, ticks):
        edit()
        compare(access, ticks)

    tick(engine, edited, other, due=Due.ACTION)
    if moment == "before it is asked for":
        edit()
    elif moment == "while Prometheus answers":
        monkeypatch.setattr(engine.sensing, "ask", ask_and_edit)
    else:
        monkeypatch.setattr(engine.ticker, "_compare_all", edit_and_compare)
    await happens(lambda: not edited.timing.busy and not other.timing.busy and other.report.conditions)
    assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert {one.type: one.reason for one in other.report.conditions}["Ready"] != "InternalError"
    engine.acting = {0: 1}
    engine._launch_due()
    await happens(lambda: not edited.timing.busy and edited.report.conditions)
    assert {one.type: one.reason for one in edited.report.conditions}["Ready"] == "InvalidSpec"
    await happens(lambda: not edited.outbox.writing and not other.outbox.writing)


async def test_a_policy_that_is_deleted_during_its_tick_leaves_no_series_and_no_event(engine, api_server, policy_body):
    policy = engine.registry.put(policy_body())
    engine.forget(policy.key, policy.uid)
    await engine.reconciler.apply_and_report(policy, None, None)
    await engine.reconciler.report_idle(policy)
    engine.metrics.of(*policy.key).add(engine.metrics.errors, 1)
    assert 'policy="chat"' not in engine.metrics.render().decode()
    assert not engine.events._filters
    assert not policy.outbox.writing


async def test_a_status_that_somebody_emptied_is_written_again_with_its_originals(
    engine, api_server, policy_body, monkeypatch
):
    engine.shards.leases[0]._deadline = math.inf
    originals = {"time": "2026-01-01T00:00:00Z", "replicas": {"gpu": 3}}
    policy = engine.registry.put(policy_body() | {"status": {"originals": originals}})
    await engine.reconciler.apply_and_report(policy, None, None)
    await happens(lambda: not policy.outbox.writing)
    full = dict(policy.outbox.status)
    assert full["conditions"]
    engine.registry.put(policy_body() | {"status": full})
    await engine.reconciler.apply_and_report(policy, None, None)
    assert not policy.outbox.writing
    engine.registry.put(policy_body())
    assert policy.outbox.lost >= {"conditions", "originals", "observedGeneration"}
    patches, kube = [], engine.reporter._publisher._kube
    patch = kube.patch
    monkeypatch.setattr(kube, "patch", lambda path, sent, **more: patches.append(sent) or patch(path, sent, **more))
    await engine.reconciler.apply_and_report(policy, None, None)
    await happens(lambda: not policy.outbox.writing)
    assert patches[-1]["status"]["originals"] == originals
    assert patches[-1]["status"]["conditions"]
    assert not policy.outbox.lost
