"""The pending guard: a pool whose pods do not come up grows no further, and the other pool takes the need."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.capacity import Capacity
from rlscaler_core.decision.pairs import both
from rlscaler_core.decision.reactive import whole_replicas
from rlscaler_core.decision.types import Bool, Int, Params, Samples


def stuck_pools(params: Params, samples: Samples) -> Bool:
    """(N, 2): pods of the pool have been pending for longer than `pending_seconds`."""
    return samples.pending_seconds > params.pending_seconds


def spilled(params: Params, base: Int, allowed: Int, stuck: Bool, capacity: Capacity) -> Int:
    """(N, 2) `allowed`, but the growth of a stuck pool becomes as much capacity in the other one.

    Replica for replica where the capacity of either is not known. Where both are stuck, neither grows. What a stuck
    pool was asked for already and does not serve is the reactive floor's to bridge.
    """
    growth = np.where(stuck, np.maximum(allowed - base, 0), 0)
    if not growth.any():
        return allowed
    unit = capacity.requests_per_second
    known = both(unit > 0)[:, None]
    ratio = np.where(known, unit / np.where(known, unit[:, ::-1], 1.0), 1.0)
    taken = whole_replicas(growth * ratio)[:, ::-1]
    taking = params.present & ~stuck
    return (allowed - growth + np.where(taking, taken, 0)).astype(np.int32)
