"""The guard of grants: the replicas that an RLScalingBudget grants a pool."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlscaler_core.decision.situation import Situation
from rlscaler_core.decision.types import Flag, Int, either


def keep_grant(now: Situation, desired: Int) -> Int:
    """The guard: `desired` (N, 2) within the granted replicas.

    It runs before `behavior`, so that replicas beyond a grant are scaled down at the user's rates. The guards further
    down get limits that the grant bounds: none of them grows a pool beyond it, not even for `minReplicas`, and the
    floor holds no replica that has to be given back. Running replicas are given back only on known data and at an
    action.
    """
    granted, params = now.samples.granted_replicas, now.params
    bound = granted >= 0
    if not bound.any():
        return desired
    most = np.maximum(granted, now.base)
    highest = np.where(bound, np.minimum(params.max_replicas, most), params.max_replicas).astype(np.int32, copy=False)
    lowest = np.minimum(params.min_replicas, highest)
    now.params = replace(params, min_replicas=lowest, max_replicas=highest)
    now.limit = np.where(bound, np.minimum(now.limit, granted), now.limit).astype(np.int32, copy=False)
    keeps = np.ones(len(desired), np.bool_) if now.doubt is None else now.doubt.failed
    cap = np.where(keeps[:, None], most, granted)
    return np.where(bound, np.minimum(desired, cap), desired).astype(np.int32, copy=False)


def note_grant(now: Situation, desired: Int) -> None:
    """Set GRANT_LIMITED where (N,) the replicas stand at the grant or beyond it."""
    granted = now.samples.granted_replicas
    bound = granted >= 0
    if bound.any():
        now.set_flag(Flag.GRANT_LIMITED, either(bound & (desired >= granted)))
