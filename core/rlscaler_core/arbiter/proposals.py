"""What the members of a budget ask the arbiter for, and which of them are decided for again with their grant.

Every policy is decided for as if it were alone; that decision is its proposal. A policy whose grant is smaller than
its proposal, or than what runs, is decided for again with the grant. The operator and the simulator share this.
"""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.types import Bool, Flag, Float, Int


def asked_for(before: Float, action: Bool, desired: Int, flags: Int) -> Float:
    """Give the replicas (M,) that members ask for, NaN where that is not known.

    Of an action that is what it decides without a grant; what the floor raises it to counts until the next one.
    `before` (M,) is what each asked for until now, NaN for nothing known; `desired` and `flags` (M,) are of decisions
    without a grant, and `action` (M,) says which of them are actions.
    """
    unknown = (flags & Flag.HELD_UNKNOWN) != 0
    return np.where(action, np.where(unknown, np.nan, desired), np.fmax(desired, before))


def is_bound(desired: Int, base: Int, granted: Int, acts: Bool) -> Bool:
    """Say which members (M,) are decided for again with their grant: those that act and want or run more than it."""
    return np.asarray(acts & (np.maximum(desired, base) > granted))
