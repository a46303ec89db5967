"""Arithmetic over the resources of budgets: what fits, what limits, and how large a share is. Columns are resources."""

from __future__ import annotations

import numpy as np

from rlscaler_core.arbiter.types import Budgets, Members
from rlscaler_core.decision.types import Bool, Float, Int

ROUNDING = 1e-9
"""Share of a unit by which a replica may be too large and still fit, which keeps 3 * 0.1 from being more than 0.3."""


def summed(units: Float | Bool, budget: Int, b: int) -> Float:
    """Give the sums (B, R) of the `units` (K, R) that are of each `budget` (K,)."""
    r = units.shape[1]
    places = (budget[:, None] * r + np.arange(r)).ravel()
    return np.asarray(np.bincount(places, units.ravel(), b * r), np.float64).reshape(b, r)


def fits(units: Float, room: Float) -> Bool:
    """Say where (K,) the `units` (K, R) are no more than the `room` (K, R) in any resource."""
    return np.asarray((units <= room * (1 + ROUNDING) + ROUNDING).all(axis=1))


def quotients(units: Float, each: Float) -> Float:
    """Give how many replicas of `each` (M, R) the `units` (M, R) are worth, inf where a replica takes none."""
    return np.asarray(np.divide(units, each, out=np.full(each.shape, np.inf), where=each > 0))


def dominant(budgets: Budgets, members: Members) -> Float:
    """Give what one replica adds to each member's dominant share (M,), up to a factor that is one for each budget.

    The dominant share is the largest part of any resource's amount that a member has. The factor is the amount of the
    first resource of which there is any: with one resource the units of a replica come out, to the last bit. Where
    there is nothing of a resource, nobody is granted any of it, and it does not count.
    """
    there = budgets.amount > 0
    first = np.take_along_axis(budgets.amount, there.argmax(axis=1)[:, None], axis=1)
    scale = np.where(there, first, 1.0) / np.where(there, budgets.amount, 1.0)
    return np.asarray((members.units * scale[members.budget]).max(axis=1))
