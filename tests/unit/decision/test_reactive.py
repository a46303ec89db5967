"""The reactive floor and the HPA formula, by table."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.floor import MANY, floor_replicas, hpa_formula
from rlscaler_core.decision.situation import capacity_of
from rlscaler_core.decision.tables import make_params


def floor(
    arrivals: float,
    desired: tuple[int, int],
    *,
    rps: tuple[float, float] = (20, 4),
    cold: tuple[float, float] = (45, 8),
    cost: tuple[float, float] = (2.5, 0.625),
    limit: tuple[int, int] = (10, 10),
    target: float = 1.0,
    running: tuple[int, int] | None = None,
) -> list[int]:
    params = make_params(
        1, requests_per_second=rps, target_utilization=target, cold_start_seconds=cold, cost_per_hour=cost
    )
    raised = floor_replicas(
        np.array([arrivals]),
        np.array([desired], np.int32),
        capacity_of(params),
        np.array([limit], np.int32),
        None if running is None else np.array([running], np.int32),
    )
    return raised[0].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param({"arrivals": 24, "desired": (1, 1)}, [1, 1], id="just enough"),
        pytest.param({"arrivals": 24.1, "desired": (1, 1)}, [1, 2], id="one more, where it is ready soonest"),
        pytest.param({"arrivals": 24, "desired": (1, 1), "target": 0.8}, [1, 3], id="target utilization"),
        pytest.param({"arrivals": 100, "desired": (1, 1)}, [3, 10], id="the rest to the other pool"),
        pytest.param({"arrivals": 1000, "desired": (1, 1)}, [10, 10], id="all there is"),
        pytest.param({"arrivals": 1000, "desired": (12, 1)}, [12, 10], id="never lowers what is above the limit"),
        pytest.param({"arrivals": 44, "desired": (1, 1), "cold": (8, 8)}, [2, 1], id="equally quick: cheaper capacity"),
        pytest.param(
            {"arrivals": 44, "desired": (1, 1), "cold": (8, 8), "cost": (5.0, 0.625)},
            [1, 6],
            id="CPU cheaper",
        ),
        pytest.param({"arrivals": 60, "desired": (1, 1), "running": (2, 3)}, [2, 5], id="keep what runs first"),
        pytest.param({"arrivals": 40, "desired": (1, 1), "running": (3, 9)}, [2, 1], id="keep no more than needed"),
        pytest.param({"arrivals": 30, "desired": (1, 0), "rps": (20, 0)}, [2, 0], id="pool that is not there"),
        pytest.param({"arrivals": 30, "desired": (1, 0), "rps": (20, np.nan)}, [2, 0], id="capacity unknown"),
        pytest.param({"arrivals": np.nan, "desired": (1, 1)}, [1, 1], id="load unknown"),
        pytest.param({"arrivals": 1e15, "desired": (0, 0), "limit": (MANY, MANY)}, [MANY, MANY], id="no overflow"),
    ],
)
def test_floor(case: dict, expected: list[int]) -> None:
    assert floor(**case) == expected


@pytest.mark.parametrize(
    ("ready", "current", "utilization", "expected"),
    [
        pytest.param(4, 4, 80.0, 4, id="on target"),
        pytest.param(4, 4, 88.0, 4, id="within the tolerance above"),
        pytest.param(4, 4, 72.0, 4, id="within the tolerance below"),
        pytest.param(4, 4, 90.0, 5, id="above"),
        pytest.param(4, 4, 40.0, 2, id="half"),
        pytest.param(4, 4, 160.0, 8, id="twice, documentation: 200m over 100m doubles"),
        pytest.param(4, 4, 0.0, 0, id="idle"),
        pytest.param(4, 4, np.nan, 4, id="unknown"),
        pytest.param(0, 4, 90.0, 4, id="none ready"),
        pytest.param(2, 8, 120.0, 8, id="most are starting: no fall on a high ratio"),
        pytest.param(8, 2, 40.0, 2, id="most are ending: no rise on a low ratio"),
        pytest.param(4, 4, 1e30, MANY, id="absurd"),
    ],
)
def test_hpa_formula(ready: int, current: int, utilization: float, expected: int) -> None:
    def both(value: float, kind: type) -> np.ndarray:
        return np.full((1, 2), value, kind)

    wanted = hpa_formula(both(ready, np.int32), both(current, np.int32), both(utilization, float), both(0.8, float))
    assert wanted.tolist() == [[expected, expected]]
