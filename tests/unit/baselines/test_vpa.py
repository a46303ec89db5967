"""The VPA's algorithm does what its documentation says."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_rl.baselines.vpa import LIFETIME_SECONDS, MARGIN, OOM_BYTES, RATIO, Histogram, Vpa

GI = float(1 << 30)
LEAST, MOST = (0.01, 1e8), (64.0, 1e12)


def seen(vpa, cores, memory, days, begin=0.0):
    """Show constant use for so many days; gives the time at the end."""
    time = begin
    for _ in range(int(days * 1440)):
        time += 60.0
        vpa.observe(time, np.array([cores]), np.array([memory]))
    return time


def test_a_percentile_is_the_upper_edge_of_its_bin():
    histogram = Histogram(0.01, 200)
    for value in np.linspace(0.1, 1.0, 100):
        histogram.add(float(value), 1.0, 0.0)
    for share in (0.5, 0.9):
        value = histogram.percentile(share)
        exact = float(np.quantile(np.linspace(0.1, 1.0, 100), share, method="lower"))
        assert exact <= value <= exact * RATIO + 0.01
    assert Histogram(0.01, 200).percentile(0.9) == 0.0


def test_what_is_old_weighs_less():
    histogram = Histogram(0.01, 200)
    for _ in range(100):
        histogram.add(4.0, 1.0, 0.0)
        histogram.add(1.0, 1.0, 5 * 86400.0)
    assert histogram.percentile(0.9) < 1.1, "a thirty-second part is left of what is five days old"


def test_the_target_is_a_percentile_and_a_margin_and_bounds_grow_narrower():
    vpa = Vpa((1.0, GI))
    time = seen(vpa, 0.5, 2 * GI, 1)
    cpu, memory = vpa.bounds(time)
    assert MARGIN * 0.5 <= cpu.target <= MARGIN * 0.5 * RATIO + 0.02
    assert MARGIN * 2 * GI <= memory.target <= MARGIN * 2 * GI * RATIO
    later, _ = vpa.bounds(seen(vpa, 0.5, 2 * GI, 3, time))
    assert later.upper < cpu.upper
    assert later.lower > cpu.lower
    assert later.lower <= later.target <= later.upper


def test_a_request_within_the_bounds_is_left_alone_until_it_is_old():
    vpa = Vpa((0.7, 2.6 * GI))
    time = seen(vpa, 0.5, 2 * GI, 0.25)
    assert vpa.update(time, LEAST, MOST) == (0.7, 2.6 * GI)
    time = seen(vpa, 0.5, 2 * GI, LIFETIME_SECONDS / 86400, time)
    assert vpa.update(time, LEAST, MOST)[0] < 0.65, "it differs by a tenth, and half a day is over"


def test_a_request_outside_of_the_bounds_is_changed_at_once_and_kept_within_the_policys():
    vpa = Vpa((8.0, 64 * GI))
    time = seen(vpa, 0.5, 2 * GI, 1)
    assert vpa.update(time, (1.0, 1e8), MOST)[0] == 1.0


def test_a_container_that_was_killed_would_have_used_more():
    vpa = Vpa((1.0, GI))
    time = seen(vpa, 0.5, GI, 0.5)
    before = vpa.bounds(time)[1].target
    vpa.killed(time, GI)
    assert vpa.bounds(time)[1].target >= before + OOM_BYTES
    assert vpa.bounds(time)[1].target == pytest.approx(MARGIN * 1.2 * GI, rel=RATIO - 1)
