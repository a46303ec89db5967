"""The API server refuses, hangs, forgets and dies. The load rises meanwhile; the same process goes on afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager

import pytest

from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_operator.run.gaps import DELETION_CHECK_SECONDS
from tests.chaos.conftest import Line
from tests.chaos.trial import BUSY, CALM, Trial
from tests.harness.control_plane import ControlPlane
from tests.harness.operators import Operator
from tests.harness.proxy import Fault, Proxy, Request
from tests.harness.waiting import looks, stays

SECONDS = 12.0
"""Longer than a lease of 5 s and than one action interval."""


def status(code: int, reason: str) -> bytes:
    return json.dumps(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code}
    ).encode()


@pytest.fixture(scope="module")
def api(api_proxy: Callable[[], Proxy]) -> Proxy:
    return api_proxy()


@pytest.fixture(scope="module")
def operator(start, api) -> Operator:
    return start(server=api.url)


@pytest.fixture
def trial(operator, world, replicas, line: Line, request):
    """The service named by the test, settled; the operator must outlive the test."""
    load = world.service(request.param, rate=CALM)
    world.deployments(request.param, gpu=3, cpu=4)
    world.policy(request.param, senseSeconds=2)
    one = Trial.settled(world, replicas, load, line)
    yield one
    assert operator.process.poll() is None, operator.log.read_text()[-3000:]


def bear(trial: Trial, fault: object, seconds: float = SECONDS) -> None:
    """Raise the load under the fault, and see that the replicas follow once it is over."""
    with fault:
        trial.load.rate = BUSY
        for _ in looks(seconds):
            pass
    trial.check(trial.followed(BUSY))


@pytest.mark.parametrize("trial", ["conflicts"], indirect=True)
def test_every_scale_write_conflicts(trial, api, line):
    line.fault = "API server: 409 to every write of replicas"
    bear(trial, api.fault(Fault(status=409, body=status(409, "Conflict")), lambda request: request.scales))


def not_watching(request: Request) -> bool:
    return not request.watches


@pytest.mark.chaos
@pytest.mark.parametrize("trial", ["throttled"], indirect=True)
def test_too_many_requests(trial, api, line):
    line.fault = "API server: 429 to everything but watches"
    refusal = Fault(status=429, body=status(429, "TooManyRequests"), headers=(("Retry-After", "1"),))
    asked = len(api.seen)
    bear(trial, api.fault(refusal, not_watching))
    line.note = f"{len(api.seen) - asked} requests until it had recovered"


@pytest.mark.chaos
@pytest.mark.parametrize("trial", ["errors"], indirect=True)
def test_internal_errors(trial, api, line):
    line.fault = "API server: 500 to everything, watches too"
    bear(trial, api.fault(Fault(status=500, body=status(500, "InternalError"))))


@pytest.mark.chaos
@pytest.mark.parametrize("trial", ["silent"], indirect=True)
def test_no_answer(trial, api, line):
    line.fault = "API server: no answer to anything but watches"
    bear(trial, api.fault(Fault(delay_seconds=60), not_watching))


@pytest.mark.chaos
@pytest.mark.parametrize("trial", ["deaf"], indirect=True)
def test_watches_drop_and_stay_away(trial, api, line, world):
    """Meanwhile somebody scales by hand: what the operator believes is wrong, and its writes must not land."""
    line.fault = "API server: watches dropped, none for 12 s, scaled by hand meanwhile"
    cpu = trial.before[1]

    @contextmanager
    def deaf():
        with api.fault(Fault(drop=True), lambda request: request.watches):
            api.cut()
            world.patch("deployments", "deaf-cpu", {"spec": {"replicas": cpu + 3}}, "scale", manager="kubectl")
            yield

    bear(trial, deaf())
    assert trial.replicas.lowest("deaf", trial.begun)[1] >= cpu


@pytest.mark.chaos
def test_a_policy_is_deleted_while_nobody_watches(operator, api, world, replicas, line):
    """Its Deployments belong to somebody else from then on: a scale by hand must stay."""
    line.fault = "API server: policy deleted while watches are away"
    load = world.service("orphan", rate=CALM)
    world.deployments("orphan", gpu=3, cpu=4)
    world.policy("orphan", senseSeconds=2)
    trial = Trial.settled(world, replicas, load, line)
    with api.fault(Fault(drop=True), lambda request: request.watches):
        api.cut()
        world.delete("rlscalingpolicies", "orphan")
        for _ in looks(DELETION_CHECK_SECONDS + SECONDS):
            pass
    held = replicas.now("orphan")
    load.rate = BUSY
    stays(lambda: replicas.now("orphan"), held, SECONDS)
    trial.check()


@pytest.mark.chaos
@pytest.mark.parametrize("trial", ["restart"], indirect=True)
def test_killed_and_started_again(trial, cluster: ClusterInfo, line):
    line.fault = "API server: kill -9, started again after 5 s"
    bear(trial, ControlPlane(cluster).killed("kube-apiserver"), 5.0)


@pytest.mark.chaos
@pytest.mark.parametrize("trial", ["frozen"], indirect=True)
def test_etcd_stands_still(trial, cluster: ClusterInfo, line):
    line.fault = "etcd: SIGSTOP for 12 s"
    bear(trial, ControlPlane(cluster).paused("etcd"))
