"""From need to grant: which needs count, and how long each part of the wait is."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.need_to_grant import Wait, waits

TICKS = 6


def case(asked=(1, 1, 2, 2, 2, 2), granted=(1, 1, 1, 2, 2, 2), free=5, begins=7, ends=30):
    """A need of two GPUs from second 7 on: the next tick is at 10 s, asked for at 10 and granted at 15."""
    need = np.ones(5 * TICKS)
    need[begins:ends] = 2
    return waits(need, np.array(asked, float), np.array(granted, float), np.full(TICKS, float(free)))


def test_each_part_of_a_wait():
    assert case() == [Wait(tick=3.0, asked=3.0, granted=8.0)]
    assert case(asked=[1, 1, 1, 1, 2, 2], granted=[1, 1, 1, 1, 2, 2]) == [Wait(tick=3.0, asked=13.0, granted=13.0)]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"free": 0}, id="no GPU is idle"),
        pytest.param({"ends": 14}, id="the load went before the grant"),
        pytest.param({"granted": [1] * TICKS}, id="never granted"),
        pytest.param({"granted": [2] * TICKS}, id="granted before it was needed"),
        pytest.param({"begins": 0}, id="short from the begin on"),
    ],
)
def test_what_is_no_need(changed):
    assert case(**changed) == []
