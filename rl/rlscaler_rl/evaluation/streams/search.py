"""Search of the settings of KEDA's Kafka scaler: a grid, played on groups that are not in the table."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.baselines.hpa import KedaKafkaLag
from rlscaler_rl.simulation.streams.episode import run
from rlscaler_rl.simulation.streams.groups import Groups

WORK_SECONDS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
"""Searched values of `lagThreshold`, as the seconds that a consumer takes for that many messages."""

DOWN_SECONDS = (0.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""Searched values of the HPA's `scaleDown.stabilizationWindowSeconds`. KEDA's `cooldownPeriod` is not searched: it
matters between no and one consumer only."""

LATE_PERCENT = 5.0
"""Share of the messages that may be late: then 95 % wait no longer than the objective."""


class KedaSettings(NamedTuple):
    """Settings of a user of KEDA."""

    lag_threshold: int
    down_seconds: float

    def contender(self) -> KedaKafkaLag:
        return KedaKafkaLag(self.lag_threshold, self.down_seconds)


def grid_of(messages_per_second: float) -> list[KedaSettings]:
    """Return all settings to play for consumers of this speed. KEDA refuses a threshold of 0."""
    thresholds = dict.fromkeys(max(1, round(seconds * messages_per_second)) for seconds in WORK_SECONDS)
    return [KedaSettings(*both) for both in product(thresholds, DOWN_SECONDS)]


def searched(groups: Groups) -> KedaSettings:
    """Return the settings with the fewest consumer-seconds among those with at most `LATE_PERCENT` late.

    Figures are means over the groups, whose consumers are equally fast. Where no setting has so few late, return the
    one with the fewest.
    """
    grid = grid_of(float(groups.rate[0]))
    rows = np.repeat(np.arange(len(groups)), len(grid))
    settings = np.tile(np.array(grid), (len(groups), 1))
    result = run(groups.take(rows), KedaKafkaLag(settings[:, 0], settings[:, 1])).result
    figures = (getattr(result, name).reshape(-1, len(grid)) for name in ("late_percent", "consumer_seconds"))
    return grid[best(*(figure.mean(axis=0) for figure in figures))]


def best(late: Float, seconds: Float) -> int:
    """Return the index of the cheapest of K settings within the objective, else of the one with the fewest late."""
    in_time = late <= LATE_PERCENT
    return int(np.argmin(np.where(in_time, seconds, np.inf)) if in_time.any() else np.argmin(late))
