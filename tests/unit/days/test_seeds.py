"""Several seeds of one training beside a rival: the interval is over seeds and origins."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_rl.evaluation.days.seeds import seeds_difference, seeds_markdown
from rlscaler_rl.evaluation.days.table import DayTable
from tests.unit.days.made_up import day_table


def table(rule: tuple[float, ...], *networks: tuple[float, ...]) -> DayTable:
    return day_table({"rule": rule} | {f"network_{number}": j for number, j in enumerate(networks, 1)})


def test_the_mean_is_over_seeds_and_origins_and_both_make_the_interval_wider():
    rule = (2.0, 4.0, 8.0)
    alike = seeds_difference(table(rule, (2.2, 4.4, 8.8), (2.2, 4.4, 8.8)), "rule")
    assert alike is not None
    assert (alike.mean, alike.low, alike.high) == pytest.approx((10.0, 10.0, 10.0))
    seeds = seeds_difference(table(rule, (2.2, 4.4, 8.8), (2.6, 5.2, 10.4)), "rule")
    origins = seeds_difference(table(rule, (2.2, 4.8, 10.4), (2.2, 4.8, 10.4)), "rule")
    for one in (seeds, origins):
        assert one is not None
        assert one.mean == pytest.approx(20.0)
        assert one.low < 15 < 25 < one.high


def test_two_origins_decide_nothing():
    found = seeds_difference(table((2.0, 4.0), (2.2, 4.4), (2.2, 4.4)), "rule")
    assert found is not None
    assert np.isinf([found.low, found.high]).all()


def test_the_report_compares_networks_together_where_there_are_several():
    lines = list(seeds_markdown(table((2.0, 4.0, 8.0), (1.8, 3.6, 7.2), (1.8, 3.6, 7.2))))
    assert lines[-1] == "| rule | -10.0 | -10.0 to -10.0 | win |"
    assert "2 networks together" in lines[0]
    assert not list(seeds_markdown(table((2.0, 4.0, 8.0), (1.8, 3.6, 7.2))))
