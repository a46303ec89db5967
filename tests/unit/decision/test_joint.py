"""The worst of several latencies with an objective."""

import numpy as np
import pytest

from rlscaler_core.decision.joint import worst_latency


@pytest.mark.parametrize(
    ("shares", "ages", "worst"),
    [
        ((0.5, 0.9), 0.0, 1),
        ((0.5, np.nan), 0.0, -1),
        ((1.0, np.nan), 0.0, -1),
        ((np.nan, 1.1), 0.0, 1),
        ((np.nan, np.nan), 0.0, -1),
        ((1.2, 1.5), 0.0, 1),
        ((1.2, 1.5), (2.0, 300.0), 0),
        ((0.9, 1.5), (2.0, 300.0), 1),
        ((0.1, 0.2, 0.3), 0.0, 2),
    ],
)
def test_one_latency_stands_for_all_where_all_are_known_or_where_it_is_late(shares, ages, worst):
    assert worst_latency(np.array([shares]), np.array(ages)).tolist() == [worst]
    two = worst_latency(np.array([[0.1] * len(shares), shares]), np.broadcast_to(ages, (2, len(shares))))
    assert two.tolist() == [0, worst], "row by row"
