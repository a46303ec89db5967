"""The rules: the order in which replicas are handed out. A rule returns a number per candidate; the lowest goes first.

Where a budget has several resources, members are compared by their dominant shares: the largest part of the amount of
any resource that a member has (A. Ghodsi et al., Dominant Resource Fairness, NSDI 2011). With one resource that is its
part of the amount, and the order is that of its units.

A budget may name `MaxMinFair` and `Priority`. `Proportional` and `FirstCome` are compared with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from rlscaler_core.arbiter.filling import Candidates
from rlscaler_core.arbiter.types import Loans, Members
from rlscaler_core.decision.types import Float, Int

RuleName = Literal["MaxMinFair", "Priority", "Proportional", "FirstCome"]


class Claims(NamedTuple):
    """The requests of M members, and the quantities by which they are compared."""

    members: Members
    loans: Loans
    asked: Int
    """(M,) replicas"""
    dominant: Float
    """(M,) growth of the member's dominant share by one replica, as in `types.dominant`"""


Order = Callable[[Claims, Candidates], tuple[Float, ...]]
"""Sort order: returns the sort keys (C,) of C candidates from the claims of all members; the first key counts most."""


def max_min_fair(claims: Claims, chosen: Candidates) -> tuple[Float, ...]:
    """Weighted max-min: the member with the smallest dominant share for its weight gets the next replica."""
    who = chosen.member
    return (chosen.number * claims.dominant[who] / claims.members.weight[who],)


def by_priority(claims: Claims, chosen: Candidates) -> tuple[Float, ...]:
    """All that a higher priority asks for goes first; equal ones share by weighted max-min."""
    return (-claims.members.priority[chosen.member].astype(np.float64), *max_min_fair(claims, chosen))


def proportional(claims: Claims, chosen: Candidates) -> tuple[Float, ...]:
    """Every member gets the same part of its request, times its weight: a member that requests more gets more."""
    who = chosen.member
    return (chosen.number / (np.maximum(claims.asked[who], 1) * claims.members.weight[who]),)


def first_come(claims: Claims, chosen: Candidates) -> tuple[Float, ...]:
    """Running replicas stay, and free units go to the member that has waited longest."""
    who = chosen.member
    growth = chosen.number > claims.members.current[who]
    waited = np.where(growth, -claims.loans.waited_intervals[who], 0)
    return growth.astype(np.float64), waited.astype(np.float64), np.where(growth, who, 0).astype(np.float64)


RULES: dict[RuleName, Order] = {
    "MaxMinFair": max_min_fair,
    "Priority": by_priority,
    "Proportional": proportional,
    "FirstCome": first_come,
}
"""All rules by name."""
