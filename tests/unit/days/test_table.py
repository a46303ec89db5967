"""Differences between contenders on days: over origins of loads, and over seeds of one training."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_rl.evaluation.days.table import DayTable, difference, report, seeds_difference
from rlscaler_rl.results.statistics import Verdict
from tests.unit.days.made_up import day_table

ROLES = {"hpa": "untuned", "keda": "untuned"}


def table(**j: tuple[float, ...]) -> DayTable:
    return day_table(j, ROLES)


def test_a_difference_has_the_mean_over_loads_and_the_worst_load():
    won = difference(table(rule=(0.9, 1.8, 2.7), hpa=(1.0, 2.0, 3.0)), "rule", "hpa")
    assert won is not None
    assert won.interval.mean == pytest.approx(-10.0)
    assert won.verdict is Verdict.WIN
    lost = difference(table(rule=(0.9, 1.8, 6.0), hpa=(1.0, 2.0, 3.0)), "rule", "hpa")
    assert lost is not None
    assert (lost.worst_load, lost.worst) == ("load2", pytest.approx(100.0))
    assert lost.verdict is Verdict.UNDECIDED


def test_loads_of_one_origin_are_one_observation_and_two_origins_decide_nothing():
    apart = table(rule=(0.9, 0.9, 0.9), hpa=(1.0, 1.0, 1.0))
    loads = [load.model_copy(update={"group": "same" if load.name != "load2" else "c"}) for load in apart.loads]
    joined = difference(apart.model_copy(update={"loads": loads}), "rule", "hpa")
    assert joined is not None
    assert joined.origins == 2
    assert joined.verdict is Verdict.UNDECIDED


def test_the_report_begins_with_the_losses_of_the_policy():
    lines = report(table(rule=(2.0, 4.0, 6.0), hpa=(1.0, 2.0, 3.0), keda=(4.0, 8.0, 12.0)))
    first = next(line for line in lines if line.startswith("| RULE against"))
    assert "HPA" in first
    assert "loss" in first
    assert "**1.00 (1.00)**" in "\n".join(lines)


def seeds(rule: tuple[float, ...], *networks: tuple[float, ...]) -> DayTable:
    return table(rule=rule, **{f"network_{number}": j for number, j in enumerate(networks, 1)})


def test_the_mean_is_over_seeds_and_origins_and_both_make_the_interval_wider():
    rule = (2.0, 4.0, 8.0)
    alike = seeds_difference(seeds(rule, (2.2, 4.4, 8.8), (2.2, 4.4, 8.8)), "rule")
    assert alike is not None
    assert (alike.mean, alike.low, alike.high) == pytest.approx((10.0, 10.0, 10.0))
    by_seed = seeds_difference(seeds(rule, (2.2, 4.4, 8.8), (2.6, 5.2, 10.4)), "rule")
    by_origin = seeds_difference(seeds(rule, (2.2, 4.8, 10.4), (2.2, 4.8, 10.4)), "rule")
    for wide in (by_seed, by_origin):
        assert wide is not None
        assert wide.mean == pytest.approx(20.0)
        assert wide.low < 15 < 25 < wide.high


def test_two_origins_of_several_seeds_decide_nothing():
    few = seeds_difference(seeds((2.0, 4.0), (2.2, 4.4), (2.2, 4.4)), "rule")
    assert few is not None
    assert np.isinf([few.low, few.high]).all()


def test_the_report_compares_networks_together_where_there_are_several():
    several = report(seeds((2.0, 4.0, 8.0), (1.8, 3.6, 7.2), (1.8, 3.6, 7.2)))
    assert several[-1] == "| RULE | -10.0 [-10.0, -10.0] | win |"
    assert any("2 networks together" in line for line in several)
    assert "### Seeds" not in report(seeds((2.0, 4.0, 8.0), (1.8, 3.6, 7.2)))


def test_a_single_load_is_shown_contender_by_contender():
    lines = report(day_table({"rule": [3.0], "hindsight": [2.0]}, {"hindsight": "reference"}))
    assert lines[-2:] == [
        "| RULE | 3.00 | +50.0 | 1.0 | 1.0 | 2 | 3 | 2.50 | 1.00 | 1.00 |",
        "| HINDSIGHT | 2.00 | - | 1.0 | 1.0 | 2 | 3 | 1.50 | 1.00 | 1.00 |",
    ]
