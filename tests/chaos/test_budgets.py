"""Faults of a shared budget: lost GPU nodes, too few of them, a member's broken model, and untimely deletions."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlscaler_core.models import load_bundled
from rlscaler_dev.cluster.kwok import node
from tests.chaos.conftest import Line
from tests.harness import hostile_models
from tests.harness.control_plane import stopped
from tests.harness.operators import Operator
from tests.harness.sharing import BUDGETS, member
from tests.harness.waiting import looks, until

CALM, BUSY = 5.0, 400.0
"""Requests per second that want one replica, and the ten that a service has at most."""
POOL = f"shared-{os.getpid()}"
"""Label of nodes that no other test uses."""
GPUS_EACH = 4
WATCHED_SECONDS = 8.0

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("with_budgets")]


@pytest.fixture(scope="module")
def policy_dir(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("policies")
    return folder


@pytest.fixture(scope="module")
def operator(start, with_budgets, policy_dir: Path) -> Operator:
    return start("--budgets", "--lease-seconds", "15", "--policy-dir", str(policy_dir))


@pytest.fixture(autouse=True)
def alive(operator: Operator) -> Iterator[None]:
    yield
    assert operator.process.poll() is None, operator.log.read_text()[-3000:]


class Nodes:
    """GPU nodes of a pool of their own."""

    def __init__(self, kube: Any) -> None:
        self._kube, self._there = kube, set[str]()

    def add(self, name: str) -> None:
        self._kube.request("POST", "/api/v1/nodes", node(f"{POOL}-{name}", POOL, gpus=GPUS_EACH))
        self._there.add(name)

    def lose(self, name: str) -> None:
        self._kube.delete(f"/api/v1/nodes/{POOL}-{name}")
        self._there.discard(name)

    def close(self) -> None:
        for name in list(self._there):
            self.lose(name)


@pytest.fixture
def nodes(kube) -> Iterator[Nodes]:
    made = Nodes(kube)
    yield made
    made.close()


def told(line: Line, highest: int, allowed: int, begun: float) -> None:
    """Fill in what the summary says of a fault that has passed."""
    line.lowest, line.allowed = f"{highest} GPUs at most", f"{allowed} GPUs"
    line.recovered_seconds = time.monotonic() - begun


def test_gpu_nodes_are_lost(operator, nodes: Nodes, sharing, overseer, line: Line):
    """First one of two, so that guarantees are short; then the other, so that nothing can be counted; both return."""
    line.fault = "budget: GPU nodes lost, back later"
    nodes.add("one")
    nodes.add("two")
    sharing.service("keeps", 60, pool=POOL, gpus=1)
    sharing.service("grows", BUSY, pool=POOL, gpus=1)
    terms = member("keeps", guaranteed=3, ceiling=3), member("grows", guaranteed=3)
    full = sharing.budget("counted", None, *terms, amountFrom={"nodes": {"matchLabels": {"pool": POOL}}})
    until(lambda: overseer.have(keeps=3, grows=5), 120)
    until(lambda: sharing.status(full).get("amount") == 2 * GPUS_EACH, 60)
    with overseer.bound(2 * GPUS_EACH, keeps=3, grows=5) as seen:
        nodes.lose("two")
        until(lambda: sharing.condition(full, "GuaranteesKept") == ("False", "TooFew"), 90)
        until(lambda: overseer.have(keeps=2, grows=2), 120)
        assert f"{GPUS_EACH} units of nvidia.com/gpu on the 1 nodes" in sharing.message(full, "GuaranteesKept")
        with overseer.bound(GPUS_EACH, keeps=2, grows=2):
            nodes.lose("one")
            until(lambda: sharing.condition(full, "AmountKnown") == ("False", "NotCounted"), 90)
            assert "no node has the labels" in sharing.message(full, "AmountKnown")
            for _ in looks(WATCHED_SECONDS):
                assert sharing.status(full)["amount"] == GPUS_EACH, "the last count holds"
    # Nobody was granted the other's guarantee, and nobody was taken more than what there is too little.
    assert (seen.lowest("keeps"), seen.lowest("grows")) == (2, 2)
    back = time.monotonic()
    with overseer.bound(2 * GPUS_EACH, keeps=3, grows=5) as healed:
        nodes.add("one")
        nodes.add("two")
        until(lambda: overseer.have(keeps=3, grows=5), 120)
    told(line, healed.highest, 2 * GPUS_EACH, back)
    until(lambda: sharing.condition(full, "GuaranteesKept") == ("True", "Enough"), 60)
    assert sharing.condition(full, "AmountKnown") == ("True", "Counted")
    for name in ("keeps", "grows"):
        sharing.remove(name)


def test_a_budget_is_larger_than_the_cluster(operator, nodes: Nodes, kube, world, sharing, overseer, line: Line):
    """Pods wait and nobody loses one; the condition names the remedy, which is then followed."""
    line.fault = "budget: larger than the cluster, then counted on nodes"
    nodes.add("single")
    sharing.service("early", 60, pool=POOL, gpus=1)
    terms = member("early", guaranteed=3, ceiling=3), member("eager")
    full = sharing.budget("large", 5 * GPUS_EACH, *terms)
    until(lambda: overseer.have(early=3), 120)
    until(lambda: [pod["status"].get("phase") for pod in world.pods("early-gpu")] == ["Running"] * 3, 60)
    running = {pod["metadata"]["uid"] for pod in world.pods("early-gpu")}
    with overseer.bound(3 + 10, early=3, eager=10) as seen:
        sharing.service("eager", BUSY, pool=POOL, gpus=1)
        until(lambda: world.condition("eager", "Active") == ("True", "PodsPending"), 120)
        conditions = world.get("rlscalingpolicies", "eager")["status"]["conditions"]
        text = next(one["message"] for one in conditions if one["type"] == "Active")
        assert f"RLScalingBudget {full} grants more than there is: lower its amount, or count it" in text
        assert sharing.condition(full, "GuaranteesKept") == ("True", "Enough")
        begun = time.monotonic()
        counted = {"spec": {"amount": None, "amountFrom": {"nodes": {"matchLabels": {"pool": POOL}}}}}
        kube.merge(f"{BUDGETS}/{full}", counted)
        until(lambda: overseer.have(early=3, eager=GPUS_EACH - 3), 120)
    told(line, seen.highest, 3 + 10, begun)
    assert seen.highest > GPUS_EACH, "more was ordered than there is, so that something had to wait"
    assert seen.lowest("early") == 3
    assert {pod["metadata"]["uid"] for pod in world.pods("early-gpu")} == running, "none was killed"
    until(lambda: world.condition("eager", "Active")[1] != "PodsPending", 60)
    sharing.delete(full)
    for name in ("early", "eager"):
        sharing.remove(name)


def test_the_model_of_a_member_gives_nan(operator, policy_dir: Path, world, sharing, overseer, line: Line):
    """Its policy says so and then asks by its fallback; it gets no more than is left of the other's guarantee."""
    line.fault = "budget: a member's model gives NaN"
    amount = 6
    graph = bytes(hostile_models.not_a_number().SerializeToString())
    named = {"stack_size": 4, "digest": hashlib.sha256(graph).hexdigest()}
    (policy_dir / "policy.onnx").write_bytes(graph)
    (policy_dir / "nan.json").write_text(load_bundled("ppo").manifest.model_copy(update=named).model_dump_json())
    sharing.service("sound", BUSY)
    full = sharing.budget("nan", amount, member("sound", guaranteed=4), member("broken"))
    until(lambda: overseer.have(sound=amount), 120)
    begun = time.monotonic()
    # What the new one runs already is nobody's to take back, so that the others return as much of their loan.
    with overseer.bound(amount + 1, sound=amount, broken=2) as seen:
        sharing.service("broken", BUSY, policy={"path": "nan.json"})
        until(lambda: world.condition("broken", "Ready") == ("False", "ModelInvalid"), 60)
        until(lambda: overseer.have(sound=4, broken=2), 120)
        until(lambda: world.condition("broken", "Fallback") == ("True", "ModelInvalid"), 60)
    told(line, seen.highest, amount + 1, begun)
    with overseer.bound(amount, sound=4, broken=2) as settled:
        world.patch("rlscalingpolicies", "broken", {"spec": {"policy": {"bundled": "rule", "path": None}}})
        until(lambda: world.condition("broken", "Ready")[0] == "True", 60)
        for _ in looks(WATCHED_SECONDS):
            assert sharing.share(full, "sound")["granted"] == 4
    assert min(seen.lowest("sound"), settled.lowest("sound")) == 4
    sharing.delete(full)
    for name in ("sound", "broken"):
        sharing.remove(name)


def test_a_member_is_deleted_while_it_borrows(operator, sharing, overseer, line: Line):
    """The lender wants its guarantee back at the same moment: it has it, and the others have the rest."""
    line.fault = "budget: a member deleted in mid-loan"
    amount, own = 8, 3
    lender = sharing.service("lender", CALM)
    sharing.service("borrower", BUSY)
    sharing.service("other", BUSY)
    terms = (
        member("lender", guaranteed=own, ceiling=own),
        member("borrower"),
        member("other", guaranteed=2),
    )
    full = sharing.budget("loan", amount, *terms)
    until(lambda: overseer.have(lender=1, borrower=4, other=3), 120)
    until(lambda: sharing.share(full, "borrower").get("borrowed") == 4, 60)
    # The lender's own two replicas need not wait for those that leave.
    begun = time.monotonic()
    with overseer.bound(amount + own - 1, lender=own) as seen:
        sharing.remove("borrower")
        lender.rate = BUSY
        until(lambda: overseer.have(lender=own, other=amount - own), 120)
    told(line, seen.highest, amount + own - 1, begun)
    line.note = f"{amount}, and those that the lender need not wait for"
    assert seen.lowest("lender") == 1
    assert seen.lowest("other") == 3
    with overseer.bound(amount, lender=own, other=amount - own):
        until(lambda: sharing.status(full).get("policies") == 2, 60)
        for _ in looks(WATCHED_SECONDS):
            assert sharing.status(full)["granted"] == amount
    sharing.delete(full)
    for name in ("lender", "other"):
        sharing.remove(name)


def test_a_budget_is_deleted_while_members_are_above_their_own_limits(operator, world, sharing, overseer, line: Line):
    """The operator stands still meanwhile, so that it meets both edits at once: each member goes to its own limit."""
    line.fault = "budget: deleted while a member is above its own maxReplicas"
    own = 2
    for name in ("above", "below"):
        sharing.service(name, BUSY)
    full = sharing.budget("gone", 6, member("above"), member("below"))
    until(lambda: overseer.have(above=3, below=3), 120)
    with overseer.bound(above=3, below=10) as seen:
        with stopped(operator.process):
            sharing.limit("above", own)
            sharing.delete(full)
            assert overseer.have(above=3, below=3)
        begun = time.monotonic()
        until(lambda: overseer.have(above=own, below=10), 120)
    told(line, seen.highest, 3 + 10, begun)
    assert (seen.lowest("above"), seen.lowest("below")) == (own, 3)
    for name in ("above", "below"):
        until(lambda name=name: "BudgetDeleted" in world.events(name))
        until(lambda name=name: world.condition(name, "Active") != ("True", "GrantLimited"), 60)
        sharing.remove(name)
