"""The learned arbiter: what it is shown, what its bids do, and what acts where it fails."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.arbiter.features import FEATURES, Signals, features, padded
from rlscaler_core.arbiter.learned import FACTORS, Bids, Learned, chosen
from rlscaler_core.arbiter.types import make_budgets, make_members, no_loans
from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_rl.tenants.network import arbiter_onnx
from tests.harness.arbiters import arbitrary_arbiter, arbitrary_policies


def two_pools():
    """A pool of 10 with three members, one of which is unknown, and a pool of 4 with two."""
    asked = [6.0, np.nan, 8.0, 3.0, 3.0]
    members = make_members(5, budget=[0, 0, 0, 1, 1], asked=asked, current=[2, 1, 3, 2, 2], guaranteed=[2, 1, 0, 0, 2])
    return make_budgets(2, amount=[10.0, 4.0]), members, no_loans(5)


def saved(folder, **changes):
    content = arbiter_onnx(arbitrary_policies(0, 0.5))
    manifest = {
        "contract": "arbiter/1",
        "columns": FEATURES,
        "digest": hashlib.sha256(content).hexdigest(),
        "trained_members": (2, 8),
        "seed": 0,
        "epochs": 1,
    }
    (folder / "arbiter.onnx").write_bytes(content)
    (folder / "arbiter.json").write_text(json.dumps(manifest | changes))
    return folder


def test_what_is_not_known_is_zero_with_a_column_that_says_so():
    budgets, members, loans = two_pools()
    signals = Signals(np.array([0.5, np.nan, 0, 1, 1.0]), np.full(5, np.nan), np.ones(5))
    table = dict(zip(FEATURES, features(budgets, members, loans, signals).T, strict=True))
    assert table["asked_known"].tolist() == [1, 0, 1, 1, 1]
    assert table["asked"][1] == 0
    assert table["utilization_known"].tolist() == [1, 0, 1, 1, 1]
    assert table["latency_known"].tolist() == [0] * 5
    assert table["asked"][0] == pytest.approx(6 / (10 / 3))
    assert table["scarcity"][3] == pytest.approx(6 / 4)


def test_features_are_finite_whatever_is_measured():
    budgets, members, loans = two_pools()
    members.asked[0] = np.inf
    hostile = np.array([np.inf, -np.inf, 1e30, -5.0, np.nan])
    assert np.isfinite(features(budgets, members, loans, Signals(hostile, hostile, hostile))).all()


def test_members_are_laid_out_by_budget_and_found_again():
    budget = np.array([1, 0, 1, 1, 0], np.int32)
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    wide, mask, place = padded(table, budget, 3)
    assert wide.shape == (3, 3, 2)
    assert mask[..., 0].sum(axis=1).tolist() == [2, 3, 0]
    np.testing.assert_array_equal(wide[place], table)


def test_equal_bids_are_weighted_max_min_and_a_higher_bid_gets_more():
    budgets, members, loans = two_pools()
    fair = arbitrate("MaxMinFair", budgets, members, loans)[0].granted
    equal = Bids(np.full(5, 4.0), np.ones(2, np.bool_))
    np.testing.assert_array_equal(arbitrate(equal.order, budgets, members, loans)[0].granted, fair)
    favoured = Bids(np.array([4.0, 1, 0.25, 4.0, 0.25]), np.ones(2, np.bool_))
    granted = arbitrate(favoured.order, budgets, members, loans)[0].due
    assert granted[0] > fair[0]
    assert granted[2] < fair[2]
    assert granted[4] == 2, "a guarantee is no matter of bids"


def test_a_nan_for_one_member_leaves_its_budget_to_max_min_and_no_other():
    logits = np.zeros((5, len(FACTORS)), np.float32)
    logits[:, 4] = 1.0
    logits[3, 0] = np.nan
    bids = chosen(logits, np.array([0, 0, 0, 1, 1]), 2)
    assert bids.usable.tolist() == [True, False]
    assert bids.factor.tolist() == [4, 4, 4, 1, 1]


def test_a_broken_network_leaves_everything_to_max_min():
    budgets, members, loans = two_pools()
    bids = arbitrary_arbiter(1, broken=True).bids(budgets, members, loans, Signals(*np.full((3, 5), np.nan)))
    assert not bids.usable.any()
    fair = arbitrate("MaxMinFair", budgets, members, loans)[0]
    np.testing.assert_array_equal(arbitrate(bids.order, budgets, members, loans)[0].granted, fair.granted)


def test_a_network_bids_the_same_beside_another_budget_and_in_another_order(tmp_path):
    learned = Learned.load(saved(tmp_path))
    budgets, members, loans = two_pools()
    together = learned.bids(budgets, members, loans, Signals(*np.full((3, 5), np.nan))).factor
    rows = np.array([2, 0, 1])
    alone = learned.bids(
        budgets.take([0]), members.take(rows), loans.take(rows), Signals(*np.full((3, 3), np.nan))
    ).factor
    np.testing.assert_array_equal(alone, together[rows])


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"contract": "arbiter/0"}, ContractMismatchError, "train it again"),
        ({"columns": FEATURES[1:]}, ContractMismatchError, "train it again"),
        ({"digest": "0" * 64}, ModelError, "copy both files again"),
        ({"seed": "one"}, ModelError, "no manifest"),
    ],
)
def test_a_network_of_something_else_is_refused(tmp_path, changes, error, said):
    with pytest.raises(error, match=said):
        Learned.load(saved(tmp_path, **changes))


def test_a_folder_without_a_network_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"arbiter\.json.*tenants train"):
        Learned.load(tmp_path)
