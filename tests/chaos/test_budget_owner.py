"""kill -9 of the operator that shares a budget of two shards, while it writes new grants: nobody ever has too much."""

from __future__ import annotations

import time

import pytest

from tests.chaos.conftest import Line
from tests.harness.operators import Operator
from tests.harness.proxy import Fault, Proxy, Request
from tests.harness.sharing import member
from tests.harness.split import Split
from tests.harness.waiting import until

pytestmark = pytest.mark.usefixtures("with_budgets")

GPUS = 6
CALM, BUSY = 5.0, 400.0
"""Requests per second that want one replica, and the ten that a service has at most."""
OPTIONS = ("--budgets", "--shards", "2", "--lease-seconds", "10")


class Proxies:
    """An API server's proxy for each operator: one of them may be cut off alone."""

    def __init__(self, start, api_proxy) -> None:
        self._start, self._api_proxy = start, api_proxy
        self._of: dict[int, Proxy] = {}

    def run(self) -> Operator:
        proxy = self._api_proxy()
        operator = self._start(*OPTIONS, server=proxy.url)
        self._of[operator.process.pid] = proxy
        return operator

    def of(self, operator: Operator) -> Proxy:
        return self._of[operator.process.pid]


@pytest.fixture(scope="module")
def proxies(start, api_proxy) -> Proxies:
    return Proxies(start, api_proxy)


@pytest.fixture(scope="module")
def split(kube, world, proxies) -> Split:
    return Split(kube, world.namespace, proxies.run)


@pytest.mark.parametrize(
    "arrives",
    [
        pytest.param(True, id="written"),
        pytest.param(False, id="lost", marks=pytest.mark.chaos),
    ],
)
def test_the_owner_of_a_budget_is_killed(arrives: bool, split, proxies, sharing, overseer, line: Line):
    """The member of the other shard keeps its last grant until the other operator shares the budget in its place."""
    line.fault = f"budget: its owner killed -9, new grants {'written, answer' if arrives else 'decided, write'} lost"
    budget = "written" if arrives else "lost"
    shard = sharing.shard_of_budget(budget)
    ours, theirs = sharing.of_shard(shard, f"{budget}-ours"), sharing.of_shard(1 - shard, f"{budget}-theirs")
    split.settle()
    mine = sharing.service(ours, CALM)
    sharing.service(theirs, BUSY)
    full = sharing.budget(budget, GPUS, member(ours), member(theirs))
    until(lambda: overseer.have(**{ours: 1, theirs: 5}), 120)
    until(lambda: sharing.share(full, theirs).get("granted") == 5, 60)
    pair = split.settle()
    owner, other = pair[shard], pair[1 - shard]
    proxy = proxies.of(owner)

    def grants(request: Request) -> bool:
        return request.path.endswith(f"/{full}/status") and b'"round"' in request.body

    with overseer.bound(GPUS, **{theirs: 5}) as seen:
        with proxy.fault(Fault(drop=not arrives), grants), proxy.hold(grants, after=arrives) as hold:
            mine.rate = BUSY
            assert hold.reached.wait(120), "the owner did not share anew"
            owner.kill()
        killed = time.monotonic()
        until(lambda: split.holder(shard) is other, 90)
        until(lambda: overseer.have(**{ours: 3, theirs: 3}), 120)
        line.recovered_seconds = time.monotonic() - killed
        until(lambda: {sharing.share(full, name)["granted"] for name in (ours, theirs)} == {3}, 60)
        assert seen.lowest(theirs) == 3, "it was never taken more than it had to give back"
        sharing.limit(ours, 1)
        until(lambda: overseer.have(**{ours: 1, theirs: 5}), 120)
    assert seen.highest == GPUS, "the bound was reached, so that it could have been broken"
    line.lowest, line.allowed = f"{seen.highest} GPUs at most", f"{GPUS} GPUs"
    line.note = f"{len(seen.moments)} moments"
    for name in (ours, theirs):
        sharing.remove(name)
    sharing.delete(full)
    assert other.process.poll() is None
