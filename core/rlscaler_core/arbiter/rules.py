"""The rules: in which order replicas are handed out. Each gives one number for each candidate; the lowest goes first.

`MaxMinFair` and `Priority` are what a budget may name. `Proportional` and `FirstCome` are what they are compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from rlscaler_core.arbiter.filling import Candidates
from rlscaler_core.arbiter.types import Loans, Members
from rlscaler_core.decision.types import Float, Int

RuleName = Literal["MaxMinFair", "Priority", "Proportional", "FirstCome"]
Order = Callable[[Members, Loans, Int, Candidates], tuple[Float, ...]]
"""Takes members, loans, the replicas asked for (M,) and C candidates; gives columns (C,), the first counts most."""


def max_min_fair(members: Members, loans: Loans, asked: Int, chosen: Candidates) -> tuple[Float, ...]:
    """Weighted max-min: the member with the fewest units for its weight gets the next replica (water filling)."""
    who = chosen.member
    return (chosen.number * members.units[who] / members.weight[who],)


def by_priority(members: Members, loans: Loans, asked: Int, chosen: Candidates) -> tuple[Float, ...]:
    """All that a higher priority asks for goes first; equal ones share by weighted max-min."""
    return (-members.priority[chosen.member].astype(np.float64), *max_min_fair(members, loans, asked, chosen))


def proportional(members: Members, loans: Loans, asked: Int, chosen: Candidates) -> tuple[Float, ...]:
    """Everyone gets the same part of what it asks for, times its weight: who asks for more gets more."""
    who = chosen.member
    return (chosen.number / (np.maximum(asked[who], 1) * members.weight[who]),)


def first_come(members: Members, loans: Loans, asked: Int, chosen: Candidates) -> tuple[Float, ...]:
    """What is there stays, and what is free goes to the member that has waited longest."""
    who = chosen.member
    growth = chosen.number > members.current[who]
    waited = np.where(growth, -loans.waited_intervals[who], 0)
    return growth.astype(np.float64), waited.astype(np.float64), np.where(growth, who, 0).astype(np.float64)


RULES: dict[RuleName, Order] = {
    "MaxMinFair": max_min_fair,
    "Priority": by_priority,
    "Proportional": proportional,
    "FirstCome": first_come,
}
"""All rules by name."""
