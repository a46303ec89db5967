"""Intervals: coverage, pairing, degenerate inputs."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_rl.evaluation.statistics import Interval, Verdict, interval, paired_difference


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-2.0, -0.1, Verdict.WIN),
        (0.1, 2.0, Verdict.LOSS),
        (-0.1, 0.1, Verdict.UNDECIDED),
        (0.0, 0.0, Verdict.UNDECIDED),
    ],
)
def test_an_interval_that_touches_zero_decides_nothing(low, high, verdict):
    assert Interval((low + high) / 2, low, high).verdict is verdict


def test_pairing_finds_a_small_difference_under_large_common_noise():
    generator = np.random.default_rng(1)
    common = generator.normal(10, 5, (5, 16))
    policy, contender = common + generator.normal(0, 0.1, common.shape), common + 0.3
    assert paired_difference(policy, contender).verdict is Verdict.WIN
    shuffled = generator.permuted(contender.ravel()).reshape(contender.shape)
    assert paired_difference(policy, shuffled).verdict is Verdict.UNDECIDED


def test_runs_that_disagree_widen_the_interval():
    within = np.random.default_rng(2).normal(-1, 0.2, (5, 40))
    between = within + np.array([-3, -1.5, 0, 1.5, 3])[:, None]
    agreed, disagreed = interval(within), interval(between)
    assert agreed.verdict is Verdict.WIN
    assert disagreed.high - disagreed.low > 5 * (agreed.high - agreed.low)
    assert disagreed.verdict is Verdict.UNDECIDED


def test_coverage_is_near_the_nominal_level():
    generator = np.random.default_rng(3)
    trials = [interval(generator.normal(1, 1, (8, 10)), seed) for seed in range(30)]
    covered = sum(found.low <= 1 <= found.high for found in trials)
    assert covered >= 25


def test_one_run_uses_its_episodes():
    scores = np.random.default_rng(4).normal(2, 1, (1, 50))
    found = interval(scores)
    assert found.low < found.mean < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 / np.sqrt(50), rel=0.3)


def test_workloads_have_equal_weight():
    easy, hard = np.full((2, 3), 1.0), np.array([[4.0, 5.0, 6.0], [4.0, 5.0, 6.0]])
    assert interval(np.stack([easy, hard])).mean == pytest.approx(3.0)


def test_equal_scores_and_single_episodes_give_a_point():
    for scores in (np.full((5, 4), 2.5), np.full((1, 1), 2.5)):
        assert interval(scores) == Interval(2.5, 2.5, 2.5)


def test_the_same_seed_gives_the_same_interval():
    scores = np.random.default_rng(5).normal(0, 1, (3, 7))
    assert interval(scores, 9) == interval(scores, 9)


def test_missing_scores_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        interval(np.array([[1.0, np.nan]]))
    with pytest.raises(ValueError, match="one shape"):
        paired_difference(np.zeros((2, 3)), np.zeros((3, 2)))


def test_many_episodes_stay_affordable():
    scores = np.random.default_rng(6).normal(1, 1, (5, 1000))
    found = interval(scores)
    assert found.low < 1.05
    assert found.high > 0.95
    assert found.high - found.low < 0.2
