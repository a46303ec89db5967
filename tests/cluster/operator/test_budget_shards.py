"""One budget, two operators, and members on both of their shards: grants and wishes travel by the API server."""

from __future__ import annotations

import pytest

from tests.harness.sharing import member
from tests.harness.split import Split

pytestmark = pytest.mark.usefixtures("with_budgets")

GPUS, GUARANTEED = 6, 3
BUDGET = "split"
OPTIONS = ("--budgets", "--shards", "2", "--lease-seconds", "15")


@pytest.fixture(scope="module")
def split(kube, world, start):
    return Split(kube, world.namespace, lambda: start(*OPTIONS))


def test_a_guarantee_is_lent_to_another_shard_and_comes_back(split, world, wait, sharing, overseer):
    shard = sharing.shard_of_budget(BUDGET)
    lender, borrower = sharing.of_shard(shard, "lender"), sharing.of_shard(1 - shard, "borrower")
    pair = split.settle()
    owner, other = pair[shard], pair[1 - shard]
    load = sharing.service(lender, 5)
    sharing.service(borrower, 400)
    name = sharing.budget(BUDGET, GPUS, member(lender, guaranteed=GUARANTEED), member(borrower))
    wait(lambda: overseer.have(**{lender: 1, borrower: 5}), 120)
    wait(lambda: sharing.share(name, borrower).get("borrowed") == 5, 60)
    wait(lambda: world.condition(borrower, "Active") == ("True", "GrantLimited"), 60)

    def said():
        """What the operator of the borrower says of it; that of the lender need not say anything."""
        return world.get("rlscalingpolicies", borrower)["status"].get("budget")

    told = {"name": name, "asked": 10, "held": 5, "acts": True}
    wait(lambda: told.items() <= (said() or {}).items(), 60)
    assert "budget" not in world.get("rlscalingpolicies", lender)["status"]
    before = sharing.status(name)["round"]
    # Of the amount a guarantee alone does not wait for what the borrower still has.
    with overseer.bound(GPUS + GUARANTEED - 1, **{lender: GUARANTEED, borrower: 5}):
        load.rate = 400
        wait(lambda: overseer.have(**{lender: 3, borrower: 3}), 120)
    with overseer.bound(GPUS, **{lender: 3, borrower: 3}):
        wait(lambda: said()["held"] == 3, 60)
        wait(lambda: said()["round"] > before, 60)
        wait(lambda: sharing.share(name, borrower)["running"] == 3, 60)
    assert not other.decisions(lender), "each policy is decided for by the operator of its own shard"
    assert not owner.decisions(borrower)
    text = f"RLScalingBudget {name}: asked 10, granted 3"
    wait(lambda: any(text in (record["grant"] or "") for record in other.decisions(borrower)))
    for one in (owner, other):
        tally = one.replayed()
        assert tally["same"] == tally["decisions"] > 0
        assert tally["sharings"] == tally["sharingsSame"]
    assert owner.replayed()["sharings"] > 0
    with overseer.bound(GPUS) as seen:
        assert owner.stop() == 0
        wait(lambda: split.holder(shard) is other, 90)
        sharing.limit(lender, 1)
        wait(lambda: overseer.have(**{lender: 1, borrower: 5}), 120)
    assert seen.highest == GPUS
    for one in (lender, borrower):
        sharing.remove(one)
