"""The split of traffic between the two pools."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.pairs import either
from rlscaler_core.decision.types import Float, Int

PREFERENCE = np.array([[4.0, 1.0], [1.0, 1.0], [1.0, 4.0]])
"""How much more a pool gets for each unit of its capacity, by Placement: prefer GPU, balanced, prefer CPU."""

WHOLE = 1000


def traffic_weights(ready: Int, rps: Float, placement: Int, last: Int) -> Int:
    """(N, 2) per mille, summing to 1000: weight_p proportional to ready_p * rps_p * k_p.

    A pool with no ready pod gets 0 and one with a ready pod at least 1; with none ready at all, `last` stays.
    Where the capacity of a pool is not known (NaN), every pod counts the same.
    """
    unknown = np.isnan(rps)
    capacity = np.where(either(unknown)[:, None], 1.0, rps) if unknown.any() else rps
    share = np.maximum(ready, 0) * capacity * PREFERENCE[placement]
    total = share[:, 0] + share[:, 1]
    served = total > 0
    gpu = np.rint(WHOLE * share[:, 0] / np.where(served, total, 1.0)).astype(np.int32)
    serving = ready > 0
    weights = np.empty((len(gpu), 2), np.int32)
    np.minimum(np.maximum(gpu, serving[:, 0]), WHOLE - serving[:, 1], out=weights[:, 0])
    np.subtract(WHOLE, weights[:, 0], out=weights[:, 1])
    return weights if served.all() else np.where(served[:, None], weights, last)
