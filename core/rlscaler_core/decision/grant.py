"""The grant guard: what a shared budget grants a pool."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlscaler_core.decision.situation import Situation
from rlscaler_core.decision.types import Flag, Int, either


def keep_grant(now: Situation, asked: Int) -> Int:
    """The guard: `asked` (N, 2) within what is granted.

    It runs before `behavior`, so that what runs beyond a grant is scaled down at the user's rates. The guards further
    down get limits that the grant bounds: none of them grows a pool beyond it, not even for `minReplicas`, and the
    floor does not keep what has to be given back. Replicas that run are only given back on known data and at an action.
    """
    granted, params = now.samples.granted_replicas, now.params
    bound = granted >= 0
    if not bound.any():
        return asked
    most = np.maximum(granted, now.base)
    highest = np.where(bound, np.minimum(params.max_replicas, most), params.max_replicas).astype(np.int32, copy=False)
    lowest = np.minimum(params.min_replicas, highest)
    now.params = replace(params, min_replicas=lowest, max_replicas=highest)
    now.limit = np.where(bound, np.minimum(now.limit, granted), now.limit).astype(np.int32, copy=False)
    keeps = np.ones(len(asked), np.bool_) if now.doubt is None else now.doubt.failed
    cap = np.where(keeps[:, None], most, granted)
    return np.where(bound, np.minimum(asked, cap), asked).astype(np.int32, copy=False)


def note_grant(now: Situation, desired: Int) -> None:
    """Say where (N,) the replicas stand at the grant or beyond it."""
    granted = now.samples.granted_replicas
    bound = granted >= 0
    if bound.any():
        now.set_flag(Flag.GRANT_LIMITED, either(bound & (desired >= granted)))
