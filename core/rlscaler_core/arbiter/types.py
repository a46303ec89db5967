"""What the arbiter is asked, what it remembers, and what it answers: tables of arrays.

A budget is an amount of one resource, such as 16 GPUs. A member is what scales on it. B is the number of budgets, M the
number of members of all of them together; a member's row says which budget it is of. The amounts are in units of the
resource, grants are in whole replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from rlscaler_core.decision.exceptions import ColumnError
from rlscaler_core.decision.tables import Column, fill
from rlscaler_core.decision.types import Bool, Float, Int, Rows

NO_MEMBER = -1
"""What `Grants.because` holds where no single member is the reason."""


class Reason(IntEnum):
    """Why a member got what it got; the first that holds."""

    ALL = 0
    """It got all that it asked for."""
    CEILING = 1
    """Its own ceiling."""
    TOO_FEW = 2
    """The amount is smaller than what is guaranteed and asked for, so that even guarantees are shared."""
    AMOUNT = 3
    """It has as much as the whole budget holds."""
    RETURNING = 4
    """It is its due, and is still being returned by those that borrowed it, or still runs elsewhere."""
    GUARANTEE = 5
    """Another member's guarantee, which `Grants.because` names."""
    SHARE = 6
    """The others' shares by weight, priority or turn."""


@dataclass(slots=True)
class Budgets(Rows):
    """The pools that are shared."""

    amount: Float  # (B,) units of the resource
    lend: Bool  # (B,) a guaranteed share that its member does not ask for may be borrowed
    reclaim_intervals: Int  # (B,) what was borrowed is given back within so many intervals; 1 = at once


@dataclass(slots=True)
class Members(Rows):
    """What each member asks for, and what its budget says of it."""

    budget: Int  # (M,) row of its budget
    asked: Float  # (M,) replicas; NaN = not known
    current: Int  # (M,) replicas that run or were ordered
    minimum: Int  # (M,) replicas that it asks for at least
    units: Float  # (M,) of the resource for one replica, above 0
    guaranteed: Float  # (M,) units that it gets whenever it asks for them
    ceiling: Float  # (M,) units that it gets at most; inf = any
    weight: Float  # (M,) its share of what is not guaranteed, above 0
    priority: Int  # (M,) higher goes first, for `Priority`


@dataclass(slots=True)
class Loans(Rows):
    """What the arbiter remembers of each member from one interval to the next."""

    granted: Int  # (M,) replicas, its last grant; -1 = it has none yet
    borrowed_intervals: Int  # (M,) for which it has had more than its guarantee without a break
    waited_intervals: Int  # (M,) for which it has been granted less than it asked for
    short_intervals: Int  # (M,) for which some member of its budget has had less than its due


@dataclass(slots=True)
class Grants(Rows):
    """What the members may have."""

    granted: Int  # (M,) replicas
    borrowed: Int  # (M,) those of them that are beyond the guarantee
    due: Int  # (M,) replicas that it will have once everything borrowed has been given back
    promised: Int  # (M,) replicas of its guarantee that it asks for, whether there are so many or not
    reason: Int  # (M,) Reason
    because: Int  # (M,) row of the member whose guarantee it is, or NO_MEMBER


_BUDGETS = {
    "amount": Column((), np.float64, None),
    "lend": Column((), np.bool_, True),
    "reclaim_intervals": Column((), np.int32, 1),
}

_MEMBERS = {
    "budget": Column((), np.int32, 0),
    "asked": Column((), np.float64, np.nan),
    "current": Column((), np.int32, 0),
    "minimum": Column((), np.int32, 0),
    "units": Column((), np.float64, 1.0),
    "guaranteed": Column((), np.float64, 0.0),
    "ceiling": Column((), np.float64, np.inf),
    "weight": Column((), np.float64, 1.0),
    "priority": Column((), np.int32, 0),
}


def make_budgets(b: int, **columns: Any) -> Budgets:
    """Make B rows; a column is a scalar or an array (B,). Raises ColumnError, also for values that make no sense."""
    budgets = Budgets(**fill("Budgets", b, _BUDGETS, columns))
    _refuse("Budgets.amount", ~(budgets.amount >= 0) | np.isinf(budgets.amount), "a finite number of at least 0")
    _refuse("Budgets.reclaim_intervals", budgets.reclaim_intervals < 1, "at least 1")
    return budgets


def make_members(m: int, **columns: Any) -> Members:
    """Make M rows; a column is a scalar or an array (M,). Raises ColumnError, also for values that make no sense."""
    members = Members(**fill("Members", m, _MEMBERS, columns))
    _refuse("Members.budget", members.budget < 0, "the row of a budget")
    _refuse("Members.units", ~((members.units > 0) & np.isfinite(members.units)), "a finite number above 0")
    _refuse("Members.weight", ~((members.weight > 0) & np.isfinite(members.weight)), "a finite number above 0")
    _refuse("Members.guaranteed", ~((members.guaranteed >= 0) & np.isfinite(members.guaranteed)), "0 or more")
    _refuse("Members.ceiling", ~(members.ceiling >= 0), "0 or more")
    _refuse("Members.current", members.current < 0, "0 or more")
    _refuse("Members.minimum", members.minimum < 0, "0 or more")
    return members


def no_loans(m: int) -> Loans:
    """Make M rows of members that nothing was granted to yet."""
    none = np.zeros(m, np.int32)
    return Loans(np.full(m, -1, np.int32), none, none.copy(), none.copy())


def follow(loans: Loans, before: Sequence[object], now: Sequence[object]) -> Loans:
    """Give the loans of the members named `now`, in their order, from those of the members named `before`.

    A member that left is forgotten, and one that joined has no grant yet.
    """
    row = {name: number for number, name in enumerate(before)}
    known = [row.get(name, len(loans)) for name in now]
    return Loans.concat([loans, no_loans(1)]).take(np.array(known, np.intp))


def _refuse(column: str, where: Bool, wanted: str) -> None:
    if where.any():
        raise ColumnError(f"{column}[{int(np.argmax(where))}]: has to be {wanted}")
