"""The rules: in which order replicas are handed out. Each gives one number for each candidate; the lowest goes first.

Where a budget has several resources, members are compared by their dominant shares: the largest part of the amount of
any resource that a member has (A. Ghodsi et al., Dominant Resource Fairness, NSDI 2011). With one resource that is its
part of the amount, and the order is that of its units.

`MaxMinFair` and `Priority` are what a budget may name. `Proportional` and `FirstCome` are what they are compared with.
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
    """What M members claim, and what their claims are compared by."""

    members: Members
    loans: Loans
    asked: Int
    """(M,) replicas"""
    dominant: Float
    """(M,) what one replica adds to the member's dominant share, as `resources.dominant` gives it"""


Order = Callable[[Claims, Candidates], tuple[Float, ...]]
"""Takes what the members claim and C candidates; gives columns (C,), the first counts most."""


def max_min_fair(claims: Claims, chosen: Candidates) -> tuple[Float, ...]:
    """Weighted max-min: the member with the smallest dominant share for its weight gets the next replica."""
    who = chosen.member
    return (chosen.number * claims.dominant[who] / claims.members.weight[who],)


def by_priority(claims: Claims, chosen: Candidates) -> tuple[Float, ...]:
    """All that a higher priority asks for goes first; equal ones share by weighted max-min."""
    return (-claims.members.priority[chosen.member].astype(np.float64), *max_min_fair(claims, chosen))


def proportional(claims: Claims, chosen: Candidates) -> tuple[Float, ...]:
    """Everyone gets the same part of what it asks for, times its weight: who asks for more gets more."""
    who = chosen.member
    return (chosen.number / (np.maximum(claims.asked[who], 1) * claims.members.weight[who]),)


def first_come(claims: Claims, chosen: Candidates) -> tuple[Float, ...]:
    """What is there stays, and what is free goes to the member that has waited longest."""
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
