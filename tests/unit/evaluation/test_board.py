"""Rows, verdicts and the check that the outcome depends on the network."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlscaler_core.decision.tables import make_params
from rlscaler_rl.evaluation.board import ALL, METRICS, Board
from rlscaler_rl.evaluation.invariants import minimum_cost, physical_floor
from rlscaler_rl.evaluation.rows import dependence, improvement, rows

ENTRIES = [
    SimpleNamespace(name="policy", label="Policy", role="policy"),
    SimpleNamespace(name="hpa", label="HPA", role="contender"),
    SimpleNamespace(name="frozen", label="Frozen", role="control"),
]


def board(**offsets: float) -> Board:
    """Two workloads, 5 runs x 8 episodes; each contender's J is the common noise plus its offset."""
    made = Board(ENTRIES)
    for index, workload in enumerate(("spike", "ramp")):
        common = np.random.default_rng(index).normal(5, 1, (5, 8))
        for entry in ENTRIES:
            offset = offsets.get(f"{entry.name}_{workload}", offsets.get(entry.name, 0.0))
            jitter = np.random.default_rng([index, len(entry.name)]).normal(0, 0.05, (5, 8))
            scores = {name: np.full((5, 8), 2.0 + offset) for name in METRICS}
            made.add(workload, entry.name, scores | {"j": common + offset + jitter})
    return made


def verdicts(made: Board) -> dict[tuple[str, str], str | None]:
    return {(row.workload, row.contender): row.difference and row.difference.verdict for row in rows(made)}


def test_rows_say_win_loss_and_undecided():
    found = verdicts(board(hpa_spike=1.0, hpa_ramp=-1.0))
    assert found["spike", "hpa"] == "win"
    assert found["ramp", "hpa"] == "loss"
    assert found[ALL, "hpa"] == "undecided"
    assert found[ALL, "policy"] is None


def test_percent_are_of_the_contender_and_have_their_interval():
    made = board(hpa=1.0)
    found = next(row for row in rows(made) if (row.workload, row.contender) == ("spike", "hpa")).difference
    theirs = made.mean("spike", "hpa", "j")
    assert found.percent == pytest.approx(100 * found.mean / theirs)
    assert found.low_percent < found.percent < found.high_percent < 0


def test_a_workload_with_two_blocks_is_never_decided():
    made = Board(ENTRIES)
    for entry in ENTRIES:
        scores = {name: np.full((2, 4), 2.0 + (entry.name == "hpa")) for name in METRICS}
        made.add("azure_conv", entry.name, scores, (0, 1) * 4)
    assert verdicts(made)["azure_conv", "hpa"] == "undecided"
    assert next(row for row in rows(made) if row.workload == "azure_conv").units == 2


def test_workloads_apart_are_not_part_of_the_mean():
    made = board()
    assert made.averaged == ["spike", "ramp"]
    made.apart = ["ramp"]
    assert made.averaged == ["spike"]
    assert made.mean(ALL, "hpa", "j") == made.mean("spike", "hpa", "j")


def test_an_undefined_score_is_refused_and_an_undefined_latency_is_not():
    made = Board(ENTRIES)
    scores = {name: np.ones((2, 2)) for name in METRICS}
    holed = np.array([[1.0, np.nan], [3.0, 2.0]])
    with pytest.raises(ValueError, match="flat, hpa: J is undefined"):
        made.add("flat", "hpa", scores | {"j": holed})
    made.add("flat", "hpa", scores | {"p95_ms": holed})
    assert made.mean("flat", "hpa", "p95_ms") == 2.0


def test_a_control_that_scores_like_the_policy_fails_the_check():
    assert dependence(board(frozen=2.0))[0].passed
    assert not dependence(board(frozen=0.0))[0].passed
    assert not dependence(board(frozen=-2.0))[0].passed
    assert not dependence(board(frozen=0.1))[0].passed, "2 % is a real difference, but not a visible one"


def test_improvement_may_be_negative_and_is_zero_for_the_baseline_itself():
    made = board(policy=2.0)
    found = improvement(made, "spike", "policy")
    assert found is not None
    assert found["latency"] == pytest.approx(-100)
    assert found["throughput"] == pytest.approx(100)
    assert found["efficiency"] == pytest.approx(-100)
    assert found["weighted"] == pytest.approx(0.4 * -100 + 0.3 * 100 + 0.2 * -100 + 0.1 * -100)
    assert improvement(made, "spike", "hpa")["weighted"] == pytest.approx(0)


def test_the_spread_is_over_runs():
    made = board()
    made.scores["spike", "hpa"]["cost"] = (np.arange(5.0)[:, None] * np.ones((5, 8))).ravel()
    found = next(row for row in rows(made) if (row.workload, row.contender) == ("spike", "hpa")).metrics["cost"]
    assert (found.mean, found.min, found.max) == (2.0, 0.0, 4.0)
    assert found.std == pytest.approx(np.std(np.arange(5), ddof=1))


def test_the_physical_floor_takes_the_cheaper_pool():
    params = make_params(2, requests_per_second=(20.0, 4.0), present=np.array([[True, True], [False, True]]))
    assert physical_floor(params, np.array([60.0, 60.0])) == pytest.approx([3.0, 3.75])
    assert minimum_cost(params) == pytest.approx([1.25, 0.25])
