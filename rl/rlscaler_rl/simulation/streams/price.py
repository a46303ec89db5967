"""What consumers and late messages cost: the J of a service, for a group that is its only pool."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.objectives import NOMINAL_SIZE
from rlscaler_rl.simulation.streams.groups import Groups


def consumer_price(groups: Groups) -> Float:
    """(N,) of J that a consumer costs while it exists for the whole load; all that there may be cost `NOMINAL_SIZE`."""
    return np.asarray(NOMINAL_SIZE / groups.max_replicas, np.float64)


def j_of(groups: Groups, consumer_seconds: Float, left: Float, late_percent: Float) -> Float:
    """(N,) cost + `LATE_WEIGHT` * late percent, as of a service.

    The messages that are `left` (N,) at the load's end cost the consumer-seconds that they will take.
    """
    consumers = (consumer_seconds + left / groups.rate) / groups.seconds
    return np.asarray(consumer_price(groups) * consumers + LATE_WEIGHT * late_percent, np.float64)
