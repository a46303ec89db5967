"""Two operators, and a Lease that is taken, deleted or out of reach: one writes at a time, and one will again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest

from rlscaler_dev.cluster.kube import KubeClient
from tests.chaos.conftest import Line
from tests.chaos.trial import CALM, Trial
from tests.harness.load import RPS
from tests.harness.operators import Operator
from tests.harness.proxy import Fault, Proxy
from tests.harness.waiting import looks, until

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SECONDS = 14.0
STEP = 12.0
"""Requests per second by which the load rises every second: there is something to write all the time."""

pytestmark = pytest.mark.chaos


@dataclass
class Pair:
    """Two operators, each behind a proxy of its own."""

    operators: list[Operator]
    proxies: list[Proxy]
    kube: KubeClient
    lease: str

    def leader(self) -> int | None:
        """Which of them wrote replicas last."""
        last = [max((r.time for r in proxy.seen if r.scales), default=0.0) for proxy in self.proxies]
        return last.index(max(last)) if max(last) else None

    def writers(self, since: float) -> list[int]:
        """Who wrote replicas from then on, one entry for each change of hands."""
        writes = [(r.time, i) for i, p in enumerate(self.proxies) for r in p.seen if r.scales and r.time >= since]
        order = [who for _, who in sorted(writes)]
        return [who for i, who in enumerate(order) if i == 0 or order[i - 1] != who]


@pytest.fixture(scope="module")
def pair(start, api_proxy, world, kube) -> Pair:
    proxies = [api_proxy(), api_proxy()]
    operators = [start(server=proxy.url) for proxy in proxies]
    return Pair(operators, proxies, kube, f"{LEASES}/{world.namespace}")


@contextmanager
def deleted(pair: Pair) -> Iterator[None]:
    pair.kube.delete(pair.lease)
    yield


@contextmanager
def usurped(pair: Pair) -> Iterator[None]:
    """Somebody writes another name into it and then says nothing any more."""
    body = {"spec": {"holderIdentity": "usurper"}}
    pair.kube.merge(pair.lease, body)
    yield


@contextmanager
def cut_off(pair: Pair) -> Iterator[None]:
    leader = pair.leader()
    assert leader is not None
    with pair.proxies[leader].fault(Fault(drop=True)):
        pair.proxies[leader].cut()
        yield


CASES: dict[str, tuple[str, Callable[[Pair], AbstractContextManager[None]], int]] = {
    "deleted": ("two leaders: the Lease is deleted", deleted, 2),
    "usurped": ("two leaders: somebody else is written into the Lease", usurped, 2),
    "cut-off": ("two leaders: the leader is cut off and comes back", cut_off, 2),
}
"""Name -> line, fault, the most hands that writing may pass through."""


@pytest.mark.parametrize("name", CASES)
def test_one_writes_at_a_time(pair: Pair, world, replicas, line: Line, name: str):
    line.fault, fault, most = CASES[name]
    load = world.service(name, rate=CALM)
    world.deployments(name, gpu=1, cpu=2)
    targets = {
        pool: {"deployment": f"{name}-{pool}", "maxReplicas": 60, "requestsPerSecond": RPS[pool], "coldStartSeconds": 8}
        for pool in ("gpu", "cpu")
    }
    world.policy(name, senseSeconds=1, targets=targets)
    trial = Trial.settled(world, replicas, load, line)
    until(lambda: pair.leader() is not None)
    with fault(pair):
        for _ in looks(SECONDS, 1.0):
            load.rate += STEP
    # What was beyond the need when the trial began may go, as it would without a fault.
    trial.check(trial.followed(load.rate), CALM)
    hands = pair.writers(trial.begun)
    line.note = f"writing passed through {len(hands)} hands"
    assert 1 <= len(hands) <= most, hands
    assert [one.process.poll() for one in pair.operators] == [None, None]
