"""The loop without a cluster: what it waits for, and who waits for whom."""

import asyncio
import contextlib
import math
import time

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_operator.cluster.concurrency import CROWD, Priority
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.loop import sense
from rlscaler_operator.loop.engine import CROWDED_SECONDS, IDLE_SECONDS
from rlscaler_operator.loop.wiring import build_engine
from rlscaler_operator.sensing.measure import ROW
from rlscaler_operator.sensing.queries import Window
from rlscaler_operator.sensing.results import NOTHING, HeldRates, Reading, TimedAnswers, group
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.schedule import Due, Schedule
from tests.harness.ticks import happens, tick


async def test_a_deposed_leader_does_not_spin_on_what_was_due(engine, policy_body):
    policy = engine.registry.put(policy_body())
    policy.timing.schedule = Schedule.starting(30, 5, time.monotonic() - 100)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(engine._sleep(), IDLE_SECONDS / 5)


async def test_a_crowd_of_scale_writes_slows_sensing_down_and_never_stops_it(engine, policy_body):
    """What would be decided meanwhile could not be written."""
    policy = engine.registry.put(policy_body())
    engine.acting = {0: 1}
    async with contextlib.AsyncExitStack() as slots:
        for _ in range(engine.settings.write_concurrency):
            await slots.enter_async_context(engine.limiter.slot(Priority.SCALE))
        crowd = [
            asyncio.create_task(engine.limiter.slot(Priority.SCALE).__aenter__())
            for _ in range(engine.settings.write_concurrency * CROWD + 1)
        ]
        await asyncio.sleep(0)
        assert engine.limiter.crowded
        policy.timing.schedule = Schedule.starting(30, 5, time.monotonic() - 100)
        engine._launched_at = time.monotonic()
        engine._launch_due()
        assert not policy.timing.busy
        engine._launched_at -= CROWDED_SECONDS
        engine._launch_due()
        assert policy.timing.busy
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
    await happens(lambda: not policy.timing.busy and not policy.outbox.writing)


async def test_what_falls_due_while_prometheus_answers_shares_the_next_batch(engine, policy_body, monkeypatch):
    policy = engine.registry.put(policy_body())
    engine.acting = {0: 1}
    busy = [True]
    monkeypatch.setattr(engine.sensing.sources, "busy", lambda access: busy[0])
    policy.timing.schedule = Schedule.starting(30, 5, time.monotonic() - 100)
    engine._launch_due()
    assert not policy.timing.busy
    busy[0] = False
    engine._launch_due()
    assert policy.timing.busy
    await happens(lambda: not policy.timing.busy and not policy.outbox.writing)


async def test_slow_writes_of_one_policy_hold_up_only_that_policy(engine, api_server, policy_body):
    engine.shards.leases[0]._deadline = math.inf
    slow, quick = engine.registry.put(policy_body("slow")), engine.registry.put(policy_body("quick"))
    api_server.slow_path = "/slow"
    tick(engine, slow, quick)
    await happens(lambda: not quick.timing.busy and not quick.outbox.writing and quick.report.conditions)
    await happens(lambda: not slow.timing.busy)
    assert slow.outbox.writing
    assert "observedGeneration" in quick.outbox.status
    assert "observedGeneration" not in slow.outbox.status
    api_server.hold.set()
    await happens(lambda: not slow.outbox.writing)
    assert "observedGeneration" in slow.outbox.status


def with_own_query(body, promql="sum(hits)"):
    return body | {"spec": body["spec"] | {"metrics": {"queries": {"arrivalRate": promql}}}}


async def test_slow_queries_of_one_policys_own_hold_up_only_that_policy(engine, policy_body, monkeypatch):
    """And those that share its request, once."""
    bodies = [
        with_own_query(policy_body("slow"), "sum(slow)"),
        with_own_query(policy_body("mate")),
        with_own_query(policy_body("other", namespace="elsewhere")),
        policy_body("plain"),
    ]
    slow, mate, other, plain = policies = [engine.registry.put(body) for body in bodies]
    answered, asked = asyncio.Event(), []

    async def ask(_, queries):
        return {query.name: {} for query in queries}

    async def ask_own(_, namespace, queries, parameters, apart):
        asked.append((namespace, sorted(query.promql[15:25] for query in queries), apart))
        if slowly := any("slow" in query.promql for query in queries):
            await answered.wait()
        return TimedAnswers({query.name: {NOTHING: Reading(7.0, 1.0)} for query in queries}, 1000.0 if slowly else 0.1)

    engine.sensing.sources.ask, engine.sensing.sources.ask_own = ask, ask_own
    for policy in policies:
        key = dict(zip(("namespace", "name"), (policy.key[0], next(filter(None, policy.deployments))), strict=True))
        engine.cache.put_deployment(GPUS | {"metadata": key})

    async def work(*quick):
        """A tick in which `quick` are done while the answer to the slow query is held back."""
        answered.clear()
        tick(engine, *policies)
        await happens(lambda: not any(policy.timing.busy for policy in quick))
        assert slow.timing.busy
        answered.set()
        await happens(lambda: not any(policy.timing.busy for policy in policies))

    await work(other, plain)
    assert plain.decision.readings["arrival_rate"].reason == "SeriesAbsent"
    assert [one.decision.readings["arrival_rate"].value for one in (slow, mate, other)] == [7, 7, 7]
    monkeypatch.setattr(sense, "PATIENCE_SECONDS", 60.0)
    for _ in range(3):
        # The slow one is set apart: a batch that waited for it would not end within the deadline of `until`.
        await work(mate, other, plain)
    crowds = [(len(queries), apart) for namespace, queries, apart in asked if namespace == "ns"]
    assert crowds == [(2, False), *[(1, True)] * 2, *[(1, True), (1, False)] * 2]


async def test_forbidden_own_queries_are_the_reason_of_that_signal_and_nothing_is_asked(api_server, policy_body):
    settings = Settings(gather_seconds=0, prometheus_url="http://127.0.0.1:9", allow_own_queries=False)
    kube = Kube(Configuration(host=api_server.url))
    engine = build_engine(settings, kube)
    policy = engine.registry.put(with_own_query(policy_body()))
    engine.cache.put_deployment(GPUS)
    tick(engine, policy)
    await happens(lambda: not policy.timing.busy)
    reading = policy.decision.readings["arrival_rate"]
    assert (reading.known, reading.reason) == (False, "OwnQueriesForbidden")
    assert "spec.metrics.queries" in reading.message
    await engine.sensing.sources.close()
    await kube.close()


async def test_nothing_is_remembered_over_a_missing_deployment(engine, policy_body):
    policy = engine.registry.put(policy_body())
    answers = await engine.sensing.ask(engine.sensing.access(policy), [policy])
    body = {"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {"replicas": 2}}
    engine.cache.put_deployment(body)
    first = engine.preparer.prepare(policy, Due.SENSE, answers)
    policy.decision.state, policy.decision.state.stacked[0] = first.state, 3
    policy.outbox.status["placement"] = {"preference": "PreferCPU", "weights": {"gpu": 300, "cpu": 700}}
    del engine.cache.deployments["ns", "chat-gpu"]
    assert engine.preparer.prepare(policy, Due.SENSE, answers) is None
    engine.cache.put_deployment(body)
    again = engine.preparer.prepare(policy, Due.SENSE, answers)
    assert again.state.stacked[0] == 0
    assert again.state.weights[0].tolist() == [300, 700]


GPUS = {"metadata": {"namespace": "ns", "name": "chat-gpu"}, "spec": {"replicas": 2}, "status": {"readyReplicas": 2}}


def row_of(engine, policy, rates, at, newest):
    """What is decided upon at `at` where the newest sample is of `newest`."""
    labels = {"namespace": "ns", "service": "chat", "pool": "gpu"}
    numbers = {"v": 20.0, "t": newest}
    found = [{"metric": labels | {"_": kind}, "value": [at, str(number)]} for kind, number in numbers.items()]
    prepared = engine.preparer.prepare(policy, Due.ACTION, {"arrival_rate": group(found, "pool", rates)})
    return dict(zip(ROW, prepared.samples, strict=True))


async def test_an_operator_that_starts_while_samples_stop_lowers_nothing(engine, policy_body):
    policy, rates = engine.registry.put(policy_body()), HeldRates(Window(60, 15.0))
    engine.cache.put_deployment(GPUS)
    limit = policy.spec.metrics.max_age_seconds
    ages = (1.0, limit / 2, limit - 1.0)
    rows = [row_of(engine, policy, rates, at=1000.0 + age, newest=1000.0) for age in ages]
    assert [row["paused_scale_down"] for row in rows] == [True] * 3
    assert {row["arrival_rate"] for row in rows} == {20.0}
    assert not any(row["paused"] for row in rows)
    rows = [row_of(engine, policy, rates, at=newest + 1.0, newest=newest) for newest in (1015.0, 1030.0)]
    assert [row["paused_scale_down"] for row in rows] == [True, False]


async def test_while_a_target_rolls_out_nothing_is_scaled_down(engine, policy_body):
    policy, rates = engine.registry.put(policy_body()), HeldRates(Window(60, 15.0))
    engine.cache.put_deployment(GPUS)
    assert [row_of(engine, policy, rates, at, at)["paused_scale_down"] for at in (970.0, 1000.0)] == [True, False]
    progress = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}
    engine.cache.put_deployment(GPUS | {"status": {"replicas": 2, "updatedReplicas": 1, "conditions": [progress]}})
    assert row_of(engine, policy, rates, at=1015.0, newest=1015.0)["paused_scale_down"]
    engine.cache.put_deployment(GPUS)
    assert not row_of(engine, policy, rates, at=1030.0, newest=1030.0)["paused_scale_down"]


async def test_an_edit_and_a_pause_are_due_at_once_and_other_changes_are_not(engine, policy_body):
    engine.take_in(policy_body())
    policy = engine.registry.get(("ns", "chat"))
    now = time.monotonic()

    def due_after(body):
        policy.timing.schedule = Schedule(30, 5, next_sense=now + 100, next_action=now + 100, last=now - 100)
        engine.take_in(body)
        return policy.timing.schedule.due(time.monotonic()) is Due.SENSE

    assert not due_after(policy_body())
    assert not due_after(policy_body(annotations={"owner": "me"}))
    assert due_after(policy_body(annotations={"rlscaler.io/paused": "true"}))
    assert due_after(policy_body(generation=2, annotations={"rlscaler.io/paused": "true"}))
    assert engine.registry.get(("ns", "chat")) is policy


async def test_a_status_is_no_news_and_everything_else_wakes_the_loop(engine, policy_body):
    def wakes(body):
        engine.background.wake.clear()
        engine.take_in(body)
        return engine.background.wake.is_set()

    assert wakes(policy_body())
    assert not wakes(policy_body() | {"status": {"observedGeneration": 1}})
    assert engine.registry.get(("ns", "chat")).observed.latest["status"] == {"observedGeneration": 1}
    assert wakes(policy_body(annotations={"owner": "me"}))
    assert wakes(policy_body(generation=2))
    assert wakes(policy_body(generation=2, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert wakes(policy_body(uid="another"))
