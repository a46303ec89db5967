"""A report is made again where anything that it was made from has changed, and not otherwise."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.decision.batch import decide_all
from rlscaler_core.decision.types import Flag
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kube import FIELD_MANAGER
from rlscaler_operator.exceptions import ModelUnavailableError
from rlscaler_operator.loop.wiring import build_engine
from rlscaler_operator.sensing.results import Reading, unknown
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.decision import DecisionState
from rlscaler_operator.state.observed import WEIGHTS_ANNOTATION
from rlscaler_operator.state.schedule import Due, Schedule

GPU, CPU = ("ns", "chat-gpu"), ("ns", "chat-cpu")


class World:
    """A policy in mode Shadow with two targets and a route; the test says what is measured and what is there."""

    def __init__(self, engine, policy_body):
        self.engine, self._body, self._version = engine, policy_body, 0
        self.readings, self.error = {"cpu_usage": Reading(0.5, 1.0)}, None
        for name in ("chat-gpu", "chat-cpu"):
            self.deployment(name)
        self.route(500)
        self.policy = self.put()
        self.policy.timing.schedule = Schedule.starting(30, 5, 0.0)
        named = engine.actors.get

        async def ask(_, queries):
            known = {("ns", "chat"), GPU, CPU}
            return {
                query.name: dict.fromkeys(known, self.readings.get(query.name, Reading(1.0, 1.0))) for query in queries
            }

        engine.sensing.sources.ask = ask
        engine.actors.get = lambda policy: (named(policy)[0], self.error)

    def _metadata(self, name, **more):
        self._version += 1
        return {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(self._version), **more}

    def put(self, name="chat", mode="Shadow", pools=("gpu", "cpu"), **metadata):
        body = self._body(name, **metadata)
        targets = {pool: {"deployment": f"chat-{pool}", "maxReplicas": 4, "coldStartSeconds": 5} for pool in pools}
        spec = {"mode": mode, "targets": targets, "policy": {"bundled": "rule"}}
        route = {"placement": {"httpRoute": {"name": "chat"}}} if len(pools) == 2 else {}
        return self.engine.registry.put(body | {"spec": body["spec"] | spec | route})

    def deployment(self, name="chat-gpu", replicas=1, ready=1, manager=FIELD_MANAGER, status=None, **metadata):
        fields = [{"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
        self.engine.cache.put_deployment(
            {
                "metadata": self._metadata(name, managedFields=fields, **metadata),
                "spec": {"replicas": replicas},
                "status": {"readyReplicas": ready} | (status or {}),
            }
        )

    def route(self, weight, **metadata):
        references = [{"name": "chat-gpu", "weight": weight}, {"name": "chat-cpu", "weight": 1000 - weight}]
        body = {"metadata": self._metadata("chat", **metadata), "spec": {"rules": [{"backendRefs": references}]}}
        self.engine.cache.put_route(body)

    def autoscaler(self):
        body = {"metadata": self._metadata("theirs"), "spec": {"scaleTargetRef": {"name": "chat-gpu"}}}
        self.engine.cache.autoscalers.put("HorizontalPodAutoscaler", body)

    def vertical_autoscaler(self):
        body = {"metadata": self._metadata("theirs"), "spec": {"targetRef": {"name": "chat-gpu"}}}
        self.engine.cache.verticals.put(body)

    def promote(self, **changes):
        promotion = self.policy.promotion
        promotion.set_status(promotion.status.model_copy(update=changes), *promotion.valid_for)

    async def tick(self, due=Due.SENSE):
        """One tick; was it reported?"""
        engine, before = self.engine, self.policy.report.reported_at
        batch = engine.ticker.tick_batch(engine.sensing.access(self.policy), [(self.policy, due)])
        engine.background.launch([self.policy], batch)
        while engine.background.tasks:
            await asyncio.wait(engine.background.tasks)
        return self.policy.report.reported_at != before


@pytest.fixture
async def world(kube, policy_body):
    """It is quiet: a tick finds what the one before found."""
    settings = Settings(gather_seconds=0, prometheus_url="http://127.0.0.1:9", lease_seconds=60)
    one = World(build_engine(settings, kube), policy_body)
    one.engine.shards.leases[0]._deadline = math.inf
    assert await one.tick(Due.ACTION)
    await one.tick()
    assert not await one.tick()
    return one


ROLLING = {"conditions": [{"type": "Progressing", "status": "True"}], "updatedReplicas": 0, "replicas": 1}

CHANGES = {
    "the spec": lambda w: w.put(generation=2),
    "an annotation": lambda w: w.put(annotations={"owner": "me"}),
    "a finalizer": lambda w: w.put(finalizers=["theirs"]),
    "replicas": lambda w: w.deployment(replicas=2),
    "ready replicas": lambda w: w.deployment(ready=0),
    "another Deployment of the same name": lambda w: w.deployment(uid="new"),
    "the manager of the replicas": lambda w: w.deployment(manager="kubectl"),
    "a Deployment that is being deleted": lambda w: w.deployment(deletionTimestamp="2026-01-01T00:00:00Z"),
    "a rollout": lambda w: w.deployment(status=ROLLING),
    "a Deployment that is gone": lambda w: w.engine.cache.deployments.pop(CPU),
    "our own write": lambda w: w.engine.cache.wrote_replicas(GPU, 2, "99"),
    "an autoscaler": lambda w: w.autoscaler(),
    "a VerticalPodAutoscaler": lambda w: w.vertical_autoscaler(),
    "a rival": lambda w: w.put("rival", "Auto", ["gpu"]),
    "why a signal is unknown": lambda w: w.readings.update(p95_ms=unknown("WindowEmpty", "…")),
    "a signal that became too old": lambda w: w.readings.update(arrival_rate=Reading(1.0, 1e4)),
    "the route": lambda w: w.route(400),
    "a route that is gone": lambda w: w.engine.cache.routes.clear(),
    "what is wrong with the model": lambda w: setattr(w, "error", ModelUnavailableError("broken", "ModelInvalid")),
    "the promotion's state": lambda w: w.promote(state="Ready"),
    "the promotion's reason": lambda w: w.promote(reason="Cheaper"),
    "a status that is old": lambda w: setattr(w.policy.outbox, "written_at", -math.inf),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_report_is_stale_where_this_changed(world, change):
    change(world)
    assert await world.tick()


async def test_what_changes_during_a_diagnosis_is_reported_at_the_next_tick(world, monkeypatch):
    diagnostician = world.engine.reconciler._diagnostician
    diagnose = diagnostician.diagnose

    async def slowly(policy, outcome):
        found = await diagnose(policy, outcome)
        world.vertical_autoscaler()
        return found

    monkeypatch.setattr(diagnostician, "diagnose", slowly)
    world.deployment(ready=0)
    assert await world.tick()
    monkeypatch.undo()
    assert await world.tick()
    assert not await world.tick()


async def test_a_rival_that_goes_is_reported_and_then_it_is_quiet_again(world):
    world.put("rival", "Auto", ["gpu"])
    assert await world.tick()
    world.engine.registry.drop(("ns", "rival"))
    assert await world.tick()
    assert not await world.tick()


UNCHANGED = {
    "a status": lambda w: w.engine.registry.put(w.policy.observed.latest | {"status": {"observedGeneration": 1}}),
    "the published weights": lambda w: w.put(annotations={WEIGHTS_ANNOTATION: "gpu=1,cpu=999"}),
    "a Deployment's resourceVersion": lambda w: w.deployment(),
    "measured values": lambda w: w.readings.update(p95_ms=Reading(2.0, 2.0)),
    "the promotion's figures": lambda w: w.promote(days=3, message="more is known"),
    "a rival that does not act": lambda w: w.put("rival", "Shadow", ["gpu"]),
    "another policy": lambda w: w.engine.registry.put(w._body("else")),
    "another Deployment": lambda w: w.deployment("else-gpu"),
}


@pytest.mark.parametrize("change", UNCHANGED.values(), ids=UNCHANGED)
async def test_a_quiet_tick_is_not_reported_whatever_else_happens(world, change):
    change(world)
    assert not await world.tick()


async def test_an_action_is_always_reported(world):
    assert await world.tick(Due.ACTION)


async def test_what_is_decided_is_reported_where_it_differs(entry):
    """Flags, placement and weights; those of the last action stand until the next one."""
    outcome = decide_all([entry("floor")])[0]
    known, decision = DecisionState(), outcome.decision
    revisions = []
    for changed in (
        decision,
        decision,
        replace(decision, flags=decision.flags | Flag.PENDING),
        replace(decision, flags=decision.flags | Flag.PENDING, placement=(decision.placement + 1) % 3),
        decision,
        replace(decision, weights=np.array([[1, 999]], np.int32)),
    ):
        known.decided(replace(outcome, decision=changed))
        revisions.append(known.revision)
    assert revisions == [1, 1, 2, 3, 4, 5]
    action = replace(decision, flags=decision.flags | Flag.FALLBACK, weights=np.array([[1, 999]], np.int32))
    known.decided(replace(outcome, entry=entry("action"), decision=action))
    assert known.revision == 6
    known.decided(replace(outcome, decision=replace(decision, weights=np.array([[1, 999]], np.int32))))
    assert known.revision == 6


def test_an_autoscaler_whose_status_changes_is_the_same():
    cache = WatchCache()
    hpa = {"metadata": {"namespace": "ns", "name": "theirs"}, "spec": {"scaleTargetRef": {"name": "chat-gpu"}}}
    seen = [cache.revisions(GPU)]
    for body in (
        hpa,
        hpa | {"status": {"currentReplicas": 3}},
        hpa | {"spec": {"scaleTargetRef": {"name": "else"}}},
        hpa,
    ):
        cache.autoscalers.put("HorizontalPodAutoscaler", body)
        seen.append(cache.revisions(GPU))
    assert seen[0] == seen[3] == (0, 0, 0)
    assert seen[1] == seen[2]
    assert len({seen[0], seen[1], seen[4]}) == 3
