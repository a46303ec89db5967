"""Settings of KEDA's Kafka scaler that suit a load, by playing all of a grid on groups that are not shown."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.baselines.hpa import KedaKafkaLag
from rlscaler_rl.simulation.streams.episode import StreamResult, run
from rlscaler_rl.simulation.streams.groups import Groups

WORK_SECONDS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
"""What may be searched of `lagThreshold`, as the seconds that a consumer works on so many messages."""

DOWN_SECONDS = (0.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""And of the HPA's `scaleDown.stabilizationWindowSeconds`. `cooldownPeriod` counts between no and one consumer only."""

LATE_PERCENT = 5.0
"""Of the messages, so many may be late: then 95 % wait no longer than the objective."""


class KedaSettings(NamedTuple):
    """What a user of KEDA sets."""

    lag_threshold: int
    down_seconds: float

    def contender(self) -> KedaKafkaLag:
        return KedaKafkaLag(self.lag_threshold, self.down_seconds)


def grid_of(messages_per_second: float) -> list[KedaSettings]:
    """All settings that are played where a consumer processes so many messages a second; KEDA refuses 0."""
    thresholds = dict.fromkeys(max(1, round(seconds * messages_per_second)) for seconds in WORK_SECONDS)
    return [KedaSettings(*both) for both in product(thresholds, DOWN_SECONDS)]


def searched(groups: Groups) -> KedaSettings:
    """The settings with the fewest consumer-seconds of those under which `LATE_PERCENT` at most are late.

    Means over the groups, whose consumers are equally fast. Where none keeps to that, those with the fewest late.
    """
    grid = grid_of(float(groups.rate[0]))
    rows = np.repeat(np.arange(len(groups)), len(grid))
    settings = np.tile(np.array(grid), (len(groups), 1))
    result = run(groups.take(rows), KedaKafkaLag(settings[:, 0], settings[:, 1])).result
    return grid[best(*(_means(result, name, len(grid)) for name in ("late_percent", "consumer_seconds")))]


def best(late: Float, seconds: Float) -> int:
    """Which of the settings, (K,) each, is the cheapest that keeps to the objective, or else the least late."""
    kept = late <= LATE_PERCENT
    return int(np.argmin(np.where(kept, seconds, np.inf)) if kept.any() else np.argmin(late))


def _means(result: StreamResult, name: str, settings: int) -> Float:
    return np.asarray(getattr(result, name).reshape(-1, settings).mean(axis=0))
