"""Percentiles of histograms: linear within a bucket, infinite beyond the last bound."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.queueing.histogram import quantile

BOUNDS = np.array([1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("shares", "level", "expected"),
    [
        ((0.5, 0.75, 1.0), 0.25, 0.5),
        ((0.5, 0.75, 1.0), 0.5, 1.0),
        ((0.5, 0.75, 1.0), 0.875, 3.0),
        ((0.0, 0.0, 1.0), 0.5, 3.0),
        ((0.5, 0.5, 1.0), 0.5, 1.0),
        ((0.5, 0.6, 0.9), 0.95, np.inf),
        ((np.nan, np.nan, np.nan), 0.5, np.inf),
    ],
)
def test_a_quantile(shares: tuple[float, ...], level: float, expected: float) -> None:
    assert quantile(np.array([shares]), BOUNDS, level).tolist() == pytest.approx([expected])


def test_without_buckets_no_level_is_reached() -> None:
    assert quantile(np.zeros((2, 0)), np.zeros(0), 0.95).tolist() == [np.inf, np.inf]
