"""The HTTPRoute under the operator: weights that cannot be moved, and a tool that puts them back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.conftest import Line
from tests.chaos.trial import CALM, Trial
from tests.harness.load import RPS
from tests.harness.operators import Operator
from tests.harness.waiting import looks, until

pytestmark = pytest.mark.chaos

GITOPS = "argocd-controller"
WATCHED_SECONDS = 40.0


@pytest.fixture(scope="module")
def operator(start) -> Operator:
    return start()


def route(world: Any, name: str, *backends: tuple[str, int]) -> None:
    refs = [{"name": backend, "port": 80, "weight": weight} for backend, weight in backends]
    body = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name}}
    world.kube.request("POST", world.path("httproutes"), body | {"spec": {"rules": [{"backendRefs": refs}]}})


def put_back(world: Any, name: str, *backends: tuple[str, int], manager: str = GITOPS) -> None:
    refs = [{"name": backend, "port": 80, "weight": weight} for backend, weight in backends]
    world.patch("httproutes", name, {"spec": {"rules": [{"backendRefs": refs}]}}, manager=manager)


def may_be_empty(service: str) -> dict[str, Any]:
    return {
        pool: {
            "deployment": f"{service}-{pool}",
            "minReplicas": least,
            "maxReplicas": 30,
            "requestsPerSecond": RPS[pool],
            "coldStartSeconds": {"gpu": 45, "cpu": 8}[pool],
        }
        for pool, least in (("gpu", 0), ("cpu", 1))
    }


def test_a_weight_cannot_be_moved(operator, world, replicas, line: Line):
    """The GPU pool is asked to go to 0 while the route sends it four of five requests, and a stranger the rest."""
    line.fault = "route: a weight cannot be moved while its pool goes to 0"
    load = world.service("stuck", rate=CALM)
    world.deployments("stuck", gpu=4, cpu=20)
    route(world, "stuck", ("stuck-gpu", 800), ("cpu-v2", 200))
    world.policy("stuck", targets=may_be_empty("stuck"), placement={"httpRoute": {"name": "stuck"}})
    trial = Trial.settled(world, replicas, load, line)
    pause = {"rlscaler.io/paused-replicas-gpu": "0", "rlscaler.io/paused-replicas-cpu": "20"}
    world.patch("rlscalingpolicies", "stuck", {"metadata": {"annotations": pause}})
    until(lambda: "BackendMissing" in world.events("stuck"))
    for _ in looks(WATCHED_SECONDS):
        assert replicas.now("stuck")[0] >= 1
    line.lowest, line.allowed = "1 GPU or more", "1 GPU"
    put_back(world, "stuck", ("stuck-gpu", 800), ("stuck-cpu", 200), manager="kubectl-edit")
    recovered = next(elapsed for elapsed in looks(60, 0.1) if replicas.now("stuck")[0] == 0)
    assert world.weights("stuck") == {"stuck-gpu": 0, "stuck-cpu": 1000}
    line.recovered_seconds = recovered
    assert trial.load.rate == CALM


def test_a_tool_puts_the_route_back(operator, world, replicas, line: Line):
    """A GitOps controller sets the weights of its manifest whenever they differ: it is not answered at every tick."""
    line.fault = "route: a GitOps controller puts the weights back"
    load = world.service("fought", rate=CALM)
    world.deployments("fought", gpu=4, cpu=8)
    declared = (("fought-gpu", 1), ("fought-cpu", 999))
    route(world, "fought", *declared)
    world.policy("fought", placement={"httpRoute": {"name": "fought"}})
    trial = Trial.settled(world, replicas, load, line)
    until(lambda: world.weights("fought")["fought-gpu"] > 1)
    answers = 0
    for _ in looks(WATCHED_SECONDS):
        if world.weights("fought") != dict(declared):
            answers += 1
            put_back(world, "fought", *declared)
    until(lambda: world.condition("fought", "Active") == ("True", "HTTPRouteForeignWriter"))
    assert {"WeightsReplaced", "HTTPRouteForeignWriter"} <= world.events("fought")
    assert answers <= 3, answers
    recovered = next(elapsed for elapsed in looks(120, 0.1) if world.weights("fought")["fought-gpu"] > 1)
    line.note = f"set back {answers} times in {WATCHED_SECONDS:g} s"
    trial.check(recovered, allowed=CALM)
