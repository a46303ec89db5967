"""The traffic split, by table."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.action import traffic_weights
from rlscaler_core.decision.types import Placement

GPU, EVEN, CPU = Placement.PREFER_GPU, Placement.BALANCED, Placement.PREFER_CPU


@pytest.mark.parametrize(
    ("ready", "rps", "placement", "expected"),
    [
        pytest.param((1, 1), (10, 10), EVEN, [500, 500], id="even"),
        pytest.param((1, 1), (20, 4), EVEN, [833, 167], id="by capacity"),
        pytest.param((2, 5), (20, 4), EVEN, [667, 333], id="by ready capacity"),
        pytest.param((1, 1), (10, 10), GPU, [800, 200], id="prefer GPU is 4:1"),
        pytest.param((1, 1), (10, 10), CPU, [200, 800], id="prefer CPU is 1:4"),
        pytest.param((0, 3), (20, 4), GPU, [0, 1000], id="no GPU pod ready"),
        pytest.param((3, 0), (20, 4), CPU, [1000, 0], id="no CPU pod ready"),
        pytest.param((0, 0), (20, 4), EVEN, [123, 877], id="none ready: the last split stays"),
        pytest.param((1, 1), (1e9, 1), GPU, [999, 1], id="a ready pool gets something"),
        pytest.param((1, 3), (20, np.nan), EVEN, [250, 750], id="capacity unknown: by pods"),
    ],
)
def test_weights(ready: tuple, rps: tuple, placement: int, expected: list[int]) -> None:
    last = np.array([[123, 877]], np.int32)
    weights = traffic_weights(np.array([ready], np.int32), np.array([rps], float), np.array([placement]), last)
    assert weights.tolist() == [expected]
    assert weights.dtype == np.int32
