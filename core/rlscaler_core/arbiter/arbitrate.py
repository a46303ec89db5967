"""One interval of the arbiter: from what the members ask for to what they may have.

What is due is what the rule would hand out if nothing ran yet: first of each guarantee what is asked for, then the
rest. What is granted goes there from the last grants: a member with more than its due gives it back in equal steps,
within `reclaim_intervals`, and one with less gets what comes free. Grants of a budget never exceed its amount
together.

Nothing is killed. Replicas may run beyond a grant until they have been scaled down, and what is beyond guarantees does
not grow into their place. A guarantee does: its pods may be pending until those of the borrower have gone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.arbiter.filling import ROUNDING, candidates, hand_out
from rlscaler_core.arbiter.rules import RULES, Order, RuleName
from rlscaler_core.arbiter.types import NO_MEMBER, Budgets, Grants, Loans, Members, Reason
from rlscaler_core.decision.exceptions import ColumnError
from rlscaler_core.decision.types import Bool, Float, Int

MOST = np.int32(100_000)
"""Replicas that are looked at for one member at most."""


class _Sharing:
    """The members and budgets of one call, and what follows from them alone."""

    def __init__(self, order: Order, budgets: Budgets, members: Members, loans: Loans) -> None:
        self.order, self.budgets, self.members, self.loans = order, budgets, members, loans
        held = np.where(loans.granted >= 0, loans.granted, members.current)
        asked = np.where(np.isnan(members.asked), held, members.asked)
        asked = np.maximum(asked, members.minimum)
        self.asked: Int = np.clip(asked, 0, MOST).astype(np.int32)
        allowed = np.minimum(members.ceiling, budgets.amount[members.budget])
        self.wanted: Int = np.minimum(self.asked, _whole(allowed, members.units))
        self.own = _whole(members.guaranteed, members.units)
        self.guaranteed: Int = np.minimum(self.wanted, self.own)
        self.promised: Int = np.minimum(np.minimum(self.asked, self.own), _whole(members.ceiling, members.units))

    def give(self, low: Int, high: Int, room: Float) -> tuple[Int, Float]:
        """Hand out the replicas low + 1 .. high (M,) of the members; gives what each has then, and the room left."""
        chosen = candidates(low, high)
        order = self.order(self.members, self.loans, self.asked, chosen)
        got, room = hand_out(self.members, chosen, order, room)
        return (low + got).astype(np.int32), room

    def used(self, replicas: Int) -> Float:
        """Give the units (B,) of so many replicas (M,)."""
        units: Float = replicas * self.members.units
        return np.asarray(np.bincount(self.members.budget, units, len(self.budgets)), np.float64)

    def anyone(self, where: Bool) -> Bool:
        """Say in which budgets (B,) there is a member `where` (M,)."""
        return np.bincount(self.members.budget, where, len(self.budgets)) > 0


def arbitrate(rule: RuleName | Order, budgets: Budgets, members: Members, loans: Loans) -> tuple[Grants, Loans]:
    """Grant replicas to M members of B budgets. Nothing that is passed in is changed.

    `rule` is one of `RULES` by its name, or any other order of candidates, as the bids of `learned`.

    Where it is not known what a member asks for, it keeps its last grant if it can, or what it has where it has none.
    Where the amount is smaller than the guarantees that are asked for, `rule` shares it among these, and no member gets
    more than its guarantee. The same rows give the same grants, and ties go to the member whose row comes first.
    Raises ColumnError where a member's budget is not there.
    """
    if len(members) and int(members.budget.max()) >= len(budgets):
        raise ColumnError(f"Members.budget: there are {len(budgets)} budgets, counted from 0")
    sharing = _Sharing(RULES[rule] if isinstance(rule, str) else rule, budgets, members, loans)
    due = _due(sharing)
    granted = _granted(sharing, due)
    reason, because = _reasons(sharing, due, granted)
    borrowed = np.maximum(granted - sharing.own, 0).astype(np.int32)
    grants = Grants(granted, borrowed, due, sharing.promised, reason, because)
    short = sharing.anyone(granted < due)[members.budget]
    return grants, Loans(
        granted=granted,
        borrowed_intervals=_counted(loans.borrowed_intervals, borrowed > 0),
        waited_intervals=_counted(loans.waited_intervals, granted < sharing.asked),
        short_intervals=_counted(loans.short_intervals, short),
    )


def _due(sharing: _Sharing) -> Int:
    """What (M,) the rule gives each member where nothing runs yet."""
    members, budgets = sharing.members, sharing.budgets
    nothing = np.zeros(len(members), np.int32)
    due, room = sharing.give(nothing, sharing.guaranteed, budgets.amount)
    # Where even guarantees are short, what is left is too small for a replica of them, and not for others to take.
    room = np.where(sharing.anyone(due < sharing.promised), 0.0, room)
    unlent = np.where(budgets.lend, 0.0, sharing.used(sharing.own) - sharing.used(due))
    due, _ = sharing.give(due, sharing.wanted, np.maximum(room - unlent, 0.0))
    return due


def _granted(sharing: _Sharing, due: Int) -> Int:
    """How far (M,) the grants get towards what is `due` (M,) in this interval."""
    members, budgets, loans = sharing.members, sharing.budgets, sharing.loans
    before = np.minimum(np.maximum(loans.granted, 0), sharing.wanted)
    left = np.maximum(budgets.reclaim_intervals[members.budget] - loans.short_intervals, 1)
    kept = np.where(before > due, due + (before - due) * (left - 1) // left, np.minimum(before, due)).astype(np.int32)
    nothing = np.zeros_like(due)
    granted, room = sharing.give(nothing, np.minimum(kept, np.minimum(sharing.guaranteed, due)), budgets.amount)
    granted, room = sharing.give(granted, np.maximum(kept, granted), room)
    granted, room = sharing.give(granted, np.maximum(np.minimum(sharing.guaranteed, due), granted), room)
    granted, room = sharing.give(granted, np.maximum(np.minimum(members.current, due), granted), room)
    elsewhere = sharing.used(np.maximum(members.current - granted, 0))
    granted, _ = sharing.give(granted, np.maximum(due, granted), np.maximum(room - elsewhere, 0.0))
    return granted


def _reasons(sharing: _Sharing, due: Int, granted: Int) -> tuple[Int, Int]:
    """Give the reason (M,) and the member whose guarantee it is (M,)."""
    members = sharing.members
    level = granted * members.units / members.weight
    because = _largest_guarantee(sharing, granted, level)
    next_level = (granted + 1) * members.units / members.weight
    theirs = (because != NO_MEMBER) & (level[because] > next_level)
    full = sharing.budgets.amount[members.budget]
    reasons: list[tuple[NDArray[np.bool_], Reason]] = [
        (granted >= sharing.asked, Reason.ALL),
        (granted >= _whole(members.ceiling, members.units), Reason.CEILING),
        (due < sharing.promised, Reason.TOO_FEW),
        (granted >= _whole(full, members.units), Reason.AMOUNT),
        (granted < due, Reason.RETURNING),
        (theirs, Reason.GUARANTEE),
    ]
    reason = np.select([where for where, _ in reasons], [int(code) for _, code in reasons], int(Reason.SHARE))
    because = np.where(reason == Reason.GUARANTEE, because, NO_MEMBER)
    return reason.astype(np.int32), because.astype(np.int32)


def _largest_guarantee(sharing: _Sharing, granted: Int, level: Float) -> Int:
    """Give each member (M,) the one of its budget with the most for its weight within its guarantee, or NO_MEMBER."""
    members = sharing.members
    within = (granted > 0) & (granted <= sharing.own)
    rows = np.flatnonzero(within)
    best = np.full(len(sharing.budgets), NO_MEMBER, np.int32)
    order = np.lexsort((-rows, level[rows]))
    best[members.budget[rows[order]]] = rows[order]
    found = best[members.budget]
    return np.where(found == np.arange(len(members)), NO_MEMBER, found).astype(np.int32)


def _counted(intervals: Int, where: Bool) -> Int:
    return np.where(where, intervals + 1, 0).astype(np.int32)


def _whole(units: Float, each: Float) -> Int:
    """Give the whole replicas (M,) of `each` units that fit in `units`, at most MOST."""
    return np.minimum(np.floor(units / each * (1 + ROUNDING) + ROUNDING), MOST).astype(np.int32)


def jain(used: Float, share: Float) -> float:
    """Give Jain's index of fairness of `used` (M,) over the `share` (M,) each is due: 1 is even, 1/M is all for one.

    NaN where no member uses anything.
    """
    each = used / share
    squares = float((each**2).sum()) * len(each)
    return float(each.sum()) ** 2 / squares if squares > 0 else float("nan")
