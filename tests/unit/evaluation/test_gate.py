"""The gate, the distance closed, and training seeds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlscaler_rl.evaluation.board import ALL, METRICS, Board
from rlscaler_rl.evaluation.gate import FAILS, PASSES, UNDECIDED, closed, gate, judge, like_for_like, training_seeds
from rlscaler_rl.evaluation.schema import Difference
from rlscaler_rl.results.statistics import Interval

ENTRIES = [
    SimpleNamespace(name=name, label=name.upper(), role=role)
    for name, role in (
        ("policy", "policy"),
        ("seed_2", "seed"),
        ("hpa", "contender"),
        ("hpa_tuned", "contender"),
        ("rule_tuned", "contender"),
        ("ppo_tuned", "variant"),
        ("hindsight", "reference"),
    )
]


def board(j: dict[str, float], workloads=("spike", "ramp"), without=(), **noise: float) -> Board:
    entries = [entry for entry in ENTRIES if entry.name not in without]
    made = Board(entries)
    for index, workload in enumerate(workloads):
        common = np.random.default_rng(index).normal(0, 0.2, (5, 8))
        for entry in entries:
            own = np.random.default_rng([index, len(entry.name)]).normal(0, noise.get(entry.name, 0.02), (5, 8))
            score = j.get(f"{entry.name}/{workload}", j.get(entry.name, 5.0)) + common + own
            rest = {name: np.full((5, 8), 4.0) for name in METRICS}
            made.add(workload, entry.name, rest | {"j": score})
    return made


def difference(percent: float, width: float) -> Difference:
    low, high = percent - width, percent + width
    verdict = Interval(percent, low, high).verdict
    return Difference(
        mean=percent, low=low, high=high, percent=percent, low_percent=low, high_percent=high, verdict=verdict.value
    )


@pytest.mark.parametrize(
    ("hpa", "rule", "smooth", "status"),
    [
        ((-5, 1), (-5, 1), False, PASSES),
        ((-5, 1), (-1, 2), False, UNDECIDED),
        ((-5, 1), (5, 1), False, FAILS),
        ((-5, 1), (1, 0.5), False, FAILS),
        ((-5, 1), (1, 0.5), True, PASSES),
        ((2, 1), (-1, 2), True, PASSES),
        ((3, 4), (-5, 1), True, UNDECIDED),
        ((3, 1), (-5, 1), True, FAILS),
    ],
)
def test_the_gate_asks_for_wins_on_bursty_and_for_two_percent_on_smooth_loads(hpa, rule, smooth, status):
    found, reason = judge([("HPA", difference(*hpa)), ("rule", difference(*rule))], smooth=smooth)
    assert found == status, reason
    if status == FAILS:
        assert "%" in reason


def test_the_gate_names_the_rows_that_fail_and_extras_do_not_count():
    made = board({"policy": 4.0, "policy/ramp": 5.5, "policy/flat": 9.0}, ("spike", "ramp", "flat"))
    made.apart = ["flat"]
    found = gate(made)
    assert not found.passed
    assert {row.workload: row.status for row in found.rows} == {"spike": PASSES, "ramp": FAILS}
    assert found.untuned == []
    assert gate(board({"policy": 4.0})).passed


def test_a_default_that_stands_in_is_named():
    found = gate(board({"policy": 4.0}, without=("hpa_tuned", "rule_tuned")))
    assert found.untuned == ["hpa", "rule_tuned"]
    assert [rival.contender for rival in found.rows[0].rivals] == ["hpa"]


def test_the_share_closed_is_that_of_the_mean_distance():
    j = {"hpa_tuned": 6.0, "hindsight": 4.0, "policy/spike": 4.5, "policy/ramp": 6.5}
    found = {item.workload: item for item in closed(board(j))}
    assert found["spike"].percent == pytest.approx(75, abs=2)
    assert found["ramp"].percent == pytest.approx(-25, abs=2)
    assert found[ALL].percent == pytest.approx(25, abs=2)
    assert found[ALL].low < 25 < found[ALL].high


def test_no_share_where_there_is_no_distance():
    found = closed(board({"hpa_tuned": 5.0, "hindsight": 4.95}))[0]
    assert (found.percent, found.low, found.high) == (None, None, None)
    assert closed(board({}, without=("hindsight",))) == []


def test_training_seeds_show_their_spread_and_widen_the_interval():
    agree = training_seeds(board({"policy": 4.0, "seed_2": 4.0}))[0]
    apart = training_seeds(board({"policy": 4.0, "seed_2": 6.0}))[0]
    assert apart.mean == pytest.approx(5.0, abs=0.1)
    assert apart.std == pytest.approx(np.sqrt(2), abs=0.1)
    assert apart.high - apart.low > 5 * (agree.high - agree.low)
    assert agree.rivals[0].difference.verdict == "win"
    assert apart.rivals[0].difference.verdict == "undecided"
    assert training_seeds(board({}, without=("seed_2",))) == []


def test_like_is_held_against_like():
    j = {"policy": 9.0, "ppo_tuned": 4.0, "hpa_tuned": 6.0, "rule_tuned": 5.0, "hindsight": 3.0}
    made = board(j)
    assert not gate(made).passed
    (found,) = like_for_like(made)  # the one for all loads was not played
    assert (found.name, found.label, found.gate.passed) == ("load", "PPO_TUNED", True)
    assert {rival.contender for rival in found.gate.rows[0].rivals} == {"hpa_tuned", "rule_tuned"}
    assert found.gate.rows[0].rivals[1].difference.percent == pytest.approx(-20, abs=2)
    assert found.closed[-1].percent == pytest.approx(100 * 2 / 3, abs=3)


def test_a_load_of_the_users_own_says_that_nobody_was_tuned_for_it():
    row = gate(board({"policy": 4.0}, workloads=("shop.csv",))).rows[0]
    assert "nothing was tuned for this workload" in row.reason
    assert "nothing was tuned" not in gate(board({"policy": 4.0})).rows[0].reason
