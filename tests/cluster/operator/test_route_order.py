"""Weights first, then replicas: the operator's writer against the real API server, with a clock of the test's own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.batch import Entry, decide_all, fresh_state
from rlscaler_core.decision.tables import make_params, make_samples
from rlscaler_operator.actuation.apply import Actuator
from rlscaler_operator.actuation.drain import Need
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.kube import Kube, load_configuration
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry

NEED = Need(arrivals=40.0, carried=(16.0, 3.2), most=(10, 40))
ARGO = "argocd-controller"


def ref(name: str, weight: int | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "port": 80, **({} if weight is None else {"weight": weight}), **more}


class Trial:
    """One policy of a GPU and a CPU pool with a route, written for without an operator's loop."""

    def __init__(self, world: Any, kube: Kube, name: str) -> None:
        self.world, self.name, self.now = world, name, 1000.0
        self.cache = WatchCache(clock=lambda: self.now)
        settings = Settings(drain_seconds=5.0)
        shards = Shards(kube, settings)
        shards.leases[0]._deadline = math.inf
        self.actuator = Actuator(kube, shards, ConcurrencyLimiter(8), self.cache, settings)
        world.policy(name, mode="Off", placement={"httpRoute": {"name": name}})
        self.policy = Registry().put(world.get("rlscalingpolicies", name))
        world.deployments(name, gpu=2, cpu=3)
        self.look()
        entry = Entry(
            make_params(1, requests_per_second=(20.0, 4.0)),
            fresh_state(None, (2, 3), 100.0),
            make_samples(1, time=100.0, arrival_rate=40.0, spec_replicas=(2, 3), ready_replicas=(2, 3)),
            "floor",
            None,
        )
        decision = decide_all([entry])[0].decision
        assert decision is not None
        self.decision = decision

    def route(self, *rules: list[dict[str, Any]], gateway: bool = False) -> None:
        body = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": self.name}}
        spec: dict[str, Any] = {"rules": [{"backendRefs": refs} for refs in rules]}
        if gateway:
            spec["parentRefs"] = [{"name": "gateway"}]
        self.world.kube.request("POST", self.world.path("httproutes"), body | {"spec": spec})
        self.look()

    def look(self) -> None:
        """What the watches would have brought."""
        for pool in ("gpu", "cpu"):
            self.cache.put_deployment(self.world.get("deployments", f"{self.name}-{pool}"))
        items = self.world.kube.request("GET", self.world.path("httproutes"))["items"]
        for item in items:
            self.cache.put_route(item)

    def set_back(self, *weights: int, manager: str = ARGO) -> None:
        """Another tool applies the rules of its manifest."""
        rules = self.world.get("httproutes", self.name)["spec"]["rules"]
        for one, weight in zip(rules[0]["backendRefs"], weights, strict=True):
            one["weight"] = weight
        self.world.patch("httproutes", self.name, {"spec": {"rules": rules}}, manager=manager)
        self.look()

    def accepts(self, generation: int) -> None:
        """What a Gateway's controller reports."""
        accepted = {
            "type": "Accepted",
            "status": "True",
            "reason": "Accepted",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": generation,
        }
        parent = {"parentRef": {"name": "gateway"}, "controllerName": "example.com/gateway", "conditions": [accepted]}
        self.world.patch("httproutes", self.name, {"status": {"parents": [parent]}}, "status")
        self.look()

    @property
    def generation(self) -> int:
        return int(self.world.get("httproutes", self.name)["metadata"]["generation"])

    @property
    def weights(self) -> list[int]:
        return [one["weight"] for one in self.world.get("httproutes", self.name)["spec"]["rules"][0]["backendRefs"]]

    async def apply(self, desired: tuple[int, int], weights: tuple[int, int], seconds: float = 0.0) -> Any:
        """A tick, so many seconds after the last one."""
        self.now += seconds
        self.look()
        base = np.array([self.world.replicas(self.name)], np.int32)
        decision = replace(
            self.decision, base=base, desired=np.array([desired], np.int32), weights=np.array([weights], np.int32)
        )
        return await self.actuator.apply(self.policy, decision, NEED)


@pytest.fixture
async def trial(world, cluster, request):
    kube = Kube(await load_configuration(Settings(kubeconfig=cluster.kubeconfig)))
    yield Trial(world, kube, request.node.name.replace("_", "-")[5:50].strip("-"))
    await kube.close()


async def test_a_pool_goes_to_zero_only_after_its_weight(trial):
    trial.route([ref(f"{trial.name}-gpu", 800), ref(f"{trial.name}-cpu", 200)])
    await trial.apply((2, 3), (800, 200))
    await trial.apply((2, 3), (800, 200), seconds=60)
    assert trial.policy.params().routed.all(), "each pool gets its part of the traffic"
    first = await trial.apply((0, 3), (0, 1000))
    assert trial.weights == [0, 1000]
    assert trial.world.replicas(trial.name) == (2, 3)
    assert first.writes["gpu"].outcome == "Waiting"
    assert trial.policy.traffic.pending == {"gpu": 0}
    await trial.apply((0, 3), (0, 1000), seconds=4.9)
    assert trial.world.replicas(trial.name) == (2, 3)
    last = await trial.apply((0, 3), (0, 1000), seconds=0.1)
    assert last.writes["gpu"].outcome == "Applied"
    assert trial.world.replicas(trial.name) == (0, 3)
    assert trial.policy.traffic.pending == {}


async def test_what_the_old_share_does_not_need_goes_at_once(trial):
    trial.world.patch("deployments", f"{trial.name}-gpu", {"spec": {"replicas": 9}})
    trial.route([ref(f"{trial.name}-gpu", 800), ref(f"{trial.name}-cpu", 200)])
    await trial.apply((9, 3), (800, 200))
    await trial.apply((9, 3), (800, 200), seconds=60)
    await trial.apply((1, 3), (100, 900))
    assert trial.world.replicas(trial.name) == (2, 3)
    await trial.apply((1, 3), (100, 900), seconds=5)
    assert trial.world.replicas(trial.name) == (1, 3)


async def test_a_route_whose_weight_cannot_be_moved_keeps_its_pool(trial):
    trial.route([ref(f"{trial.name}-gpu", 800), ref("cpu-v2", 200)])
    for seconds in (0, 5, 60, 3600):
        applied = await trial.apply((0, 3), (0, 1000), seconds=seconds)
        assert applied.weights_problem.reason == "BackendMissing"
        assert not trial.policy.params().routed.any()
        assert trial.world.replicas(trial.name) == (2, 3)
    assert trial.weights == [800, 200]


async def test_a_route_that_is_not_there_keeps_one_replica(trial):
    for seconds in (0, 60, 3600):
        applied = await trial.apply((0, 3), (0, 1000), seconds=seconds)
        assert applied.weights_problem.reason == "HTTPRouteMissing"
        assert trial.world.replicas(trial.name)[0] >= 1


async def test_a_rule_that_sends_to_the_pool_alone_keeps_one_replica(trial):
    trial.route([ref(f"{trial.name}-gpu", 800), ref(f"{trial.name}-cpu", 200)], [ref(f"{trial.name}-gpu", 1)])
    for seconds in (0, 5, 60):
        applied = await trial.apply((0, 3), (0, 1000), seconds=seconds)
    assert applied.weights_problem.reason == "BackendInOtherRule"
    assert not trial.policy.params().routed.any(), "its part of the traffic is not known"
    assert trial.weights == [0, 1000]
    assert trial.world.replicas(trial.name) == (1, 3)


async def test_two_backends_of_one_service_are_refused(trial):
    gpu, cpu = ref(f"{trial.name}-gpu", 400), ref(f"{trial.name}-cpu", 200)
    trial.route([gpu, cpu, gpu | {"port": 8080}])
    applied = await trial.apply((2, 3), (900, 100))
    assert applied.weights_problem.reason == "BackendAmbiguous"
    assert trial.weights == [400, 200, 400]


async def test_a_gateway_that_reports_is_waited_for(trial):
    trial.route([ref(f"{trial.name}-gpu", 800), ref(f"{trial.name}-cpu", 200)], gateway=True)
    trial.accepts(trial.generation)
    await trial.apply((2, 3), (800, 200))
    await trial.apply((2, 3), (800, 200), seconds=60)
    await trial.apply((0, 3), (0, 1000))
    applied = await trial.apply((0, 3), (0, 1000), seconds=10)
    assert trial.world.replicas(trial.name) == (2, 3)
    assert applied.weights_problem is None
    applied = await trial.apply((0, 3), (0, 1000), seconds=30)
    assert applied.weights_problem.reason == "HTTPRouteNotAccepted"
    assert trial.world.replicas(trial.name) == (2, 3)
    trial.accepts(trial.generation)
    applied = await trial.apply((0, 3), (0, 1000), seconds=1)
    assert applied.weights_problem is None
    assert trial.world.replicas(trial.name) == (0, 3)


async def test_a_tool_that_sets_the_weights_back_is_not_fought_for_ever(trial):
    trial.route([ref(f"{trial.name}-gpu", 500), ref(f"{trial.name}-cpu", 500)])
    await trial.apply((2, 3), (800, 200))
    warned, writes, waited = set(), 0, set()
    for _ in range(6 * 60):
        if trial.weights == [800, 200]:
            writes += 1
            trial.set_back(500, 500)
        applied = await trial.apply((2, 3), (800, 200), seconds=10)
        warned |= {problem.reason for problem in applied.warnings}
        if applied.weights_problem is not None:
            waited.add(applied.weights_problem)
    assert writes <= 8
    assert warned == {"WeightsReplaced"}
    [problem] = waited
    assert problem.reason == "HTTPRouteForeignWriter"
    assert "Argo CD" in problem.message
    assert "jqPathExpressions" in problem.message
    trial.set_back(500, 500)
    await trial.apply((0, 3), (0, 1000))
    assert trial.world.replicas(trial.name)[0] >= 1


async def test_the_third_backend_keeps_its_share(trial):
    trial.route([ref(f"{trial.name}-gpu", 45), ref(f"{trial.name}-cpu", 45), ref("canary", 10)])
    await trial.apply((2, 3), (833, 167))
    assert trial.weights == [75, 15, 10]
