"""Traffic split of the forecast rule: as much to the pool that is quicker with a request as it can bear.

Replicas of two pools that are equally full do not make equally few requests late: where a request takes 50 ms on a GPU
replica and 250 ms on a CPU replica, nearly all that miss an SLO of a second waited in the CPU pool. The quicker pool is
therefore preferred, yet never so much that the load for which capacity is held would overflow it, since a split follows
a jump more slowly than two pools share one.
"""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.action import PREFERENCE
from rlscaler_core.decision.types import Float, Int, Params, Placement, total

# Weights are writes to the API server. On eight tune days these steps, balanced traffic below half of the capacity and
# 4 % of room gained 2.3 % of J; any factor, at any load, gained 1.6 % and moved the weights more often.
STEPS = np.array([1.0, 1.5, 2.0, 3.0, float(PREFERENCE.max())])
"""Factors of the preferred pool for each unit of its capacity: few values, so that traffic seldom moves."""

ROOM = 1.04
"""A step up is taken where it would hold for so many times the load, so that chance does not take it back."""

LEAST_UTILIZATION = 0.5
"""Share of the ready capacity in use below which no request waits in either pool, and no pool is preferred."""


def by_load(
    params: Params, placement: Int, preference: Float, ready: Int, arrivals: Float, load: Float
) -> tuple[Int, Float]:
    """Return the traffic preference (N,) and the factor of the pool that it names (N,), one of `STEPS`.

    `placement` and `preference` (N,) are those in force, `ready` (N, 2) the replicas, `arrivals` (N,) the present load
    and `load` (N,) the load that capacity is held for, both in the unit of the capacity. Balanced where a pool has no
    ready replica, where both are equally quick, and where one of the inputs is not known.
    """
    rps = params.requests_per_second
    quick = np.where(rps[:, 0] > rps[:, 1], 0, 1)
    preferred = np.where(quick == 0, Placement.PREFER_GPU, Placement.PREFER_CPU)
    rows = np.arange(len(quick))
    capacity = np.where(params.present & (ready > 0), ready * rps, 0.0)
    own, rest = capacity[rows, quick], capacity[rows, 1 - quick]
    with np.errstate(invalid="ignore"):
        waits = (own > 0) & (rest > 0) & (rps[:, 0] != rps[:, 1]) & (arrivals >= LEAST_UTILIZATION * total(capacity))
    before = np.where(placement == preferred, preference, 1.0)
    most, sure = _highest_step(own, rest, load), _highest_step(own, rest, ROOM * load)
    chosen = np.where(waits & np.isfinite(load), np.minimum(most, np.maximum(before, sure)), 1.0)
    split = np.where(chosen > 1, preferred, Placement.BALANCED)
    return split.astype(np.int32), np.where(chosen > 1, chosen, STEPS[-1])


def _highest_step(own: Float, rest: Float, load: Float) -> Float:
    """Return the highest of `STEPS` (N,) at which the preferred pool of capacity `own` is not overfull at the load."""
    above = load - own
    with np.errstate(invalid="ignore"):
        bearable = np.where(above > 0, rest / np.where(above > 0, above, 1.0), STEPS[-1])
    return np.asarray(STEPS[np.maximum(np.searchsorted(STEPS, bearable, side="right") - 1, 0)], np.float64)
