"""kill -9 at each stage of a tick: the next operator takes over from what the cluster says, and nothing is lost.

A proxy stops the operator's own request at the stage in question, before the server has done it or after, so that the
kill hits exactly there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.chaos.conftest import Line
from tests.chaos.trial import BUSY, CALM, Trial
from tests.harness.operators import Operator
from tests.harness.proxy import Proxy, Request
from tests.harness.waiting import until

START = {"gpu": 3, "cpu": 4}


@dataclass(frozen=True)
class Stage:
    """A request of the operator, and whether the kill comes before the server has done it."""

    name: str
    what: str
    method: str = "PATCH"
    path: str = ""
    body: bytes = b""
    after: bool = False
    prometheus: bool = False
    fresh: bool = False
    """At the first tick of a new policy."""

    def matches(self, request: Request, service: str) -> bool:
        path, body = self.path.format(s=service), self.body.replace(b"{s}", service.encode())
        return request.method == self.method and request.path.endswith(path) and body in request.body


STAGES = [
    Stage("sensing", "Prometheus is being asked", "POST", prometheus=True),
    Stage("finalizer", "the finalizer is being set", path="/{s}", body=b"finalizers", fresh=True),
    Stage("originals", "the originals are not recorded", path="/{s}/status", body=b"originals", fresh=True),
    Stage(
        "originals-lost",
        "originals recorded, answer lost",
        path="/{s}/status",
        body=b"originals",
        after=True,
        fresh=True,
    ),
    Stage("weights", "weights decided, not written", path="/{s}", body=b"traffic-weights", fresh=True),
    Stage("deciding", "replicas decided, not written", path="/{s}-gpu/scale"),
    Stage("between", "one pool is written, the other is not", path="/{s}-cpu/scale"),
    Stage("written", "replicas written, answer lost", path="/{s}-gpu/scale", after=True),
    Stage("event", "replicas written, Event not posted", "POST", path="/events", body=b'"name": "{s}"'),
    Stage("reporting", "replicas written, status not", path="/{s}/status"),
    Stage("renewing", "lease renewed, answer lost", "PUT", path="/leases/{s}", after=True),
]


@pytest.fixture(scope="module")
def api(api_proxy) -> Proxy:
    return api_proxy()


@pytest.fixture(scope="module")
def prometheus(proxy, cluster) -> Proxy:
    return proxy(cluster.prometheus_url)


class Successors:
    """One operator after the other."""

    def __init__(self, start, api: Proxy, prometheus: Proxy) -> None:
        self._start, self._api, self._prometheus = start, api, prometheus
        self.current = self.next()

    def next(self) -> Operator:
        self.current = self._start("--allow-prometheus-url", self._prometheus.url, server=self._api.url)
        return self.current


@pytest.fixture(scope="module")
def operators(start, api, prometheus) -> Iterator[Successors]:
    return Successors(start, api, prometheus)


@pytest.mark.parametrize(
    "stage", [pytest.param(s, id=s.name, marks=() if s.name == "between" else pytest.mark.chaos) for s in STAGES]
)
def test_kill(stage: Stage, operators, api, prometheus, world, replicas, line: Line):
    line.fault = f"kill -9: {stage.what}"
    service = f"kill-{stage.name}"
    load = world.service(service, rate=BUSY if stage.fresh else CALM)
    world.deployments(service, **START)
    until(lambda: replicas.now(service) == tuple(START.values()))

    def create() -> None:
        metrics = {"prometheus": {"url": prometheus.url}}
        world.policy(service, senseSeconds=2, restoreOnDelete=True, metrics=metrics)

    def matches(request: Request) -> bool:
        return stage.matches(request, world.namespace if stage.name == "renewing" else service)

    if not stage.fresh:
        create()
        trial = Trial.settled(world, replicas, load, line)
    else:
        trial = Trial(world, replicas, service, load, line, replicas.now(service))
    with (prometheus if stage.prometheus else api).hold(matches, after=stage.after) as hold:
        if stage.fresh:
            create()
        load.rate = BUSY
        assert hold.reached.wait(60), "the operator did not come to this stage"
        operators.current.kill()
    operators.next()
    trial.check(trial.followed(BUSY))
    originals = world.get("rlscalingpolicies", service)["status"]["originals"]
    assert originals["replicas"] == START
    until(lambda: world.get("rlscalingpolicies", service)["status"].get("lastDecision"))
