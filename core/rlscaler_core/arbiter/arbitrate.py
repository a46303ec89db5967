"""One interval of the arbiter: from what the members ask for to what they may have.

What is due is what the rule would hand out if nothing ran yet: first of each guarantee what is asked for, then the
rest. What is granted goes there from the last grants: a member with more than its due gives it back in equal steps,
within `reclaim_intervals`, and one with less gets what comes free. Grants of a budget never exceed its amount of any
resource together. A guarantee and a ceiling are the whole replicas for which they are enough in every resource.

Nothing is killed. Replicas may run beyond a grant until they have been scaled down, and what is beyond guarantees does
not grow into their place. A guarantee does: its pods may be pending until those of the borrower have gone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.arbiter.filling import candidates, hand_out
from rlscaler_core.arbiter.resources import ROUNDING, dominant, quotients, summed
from rlscaler_core.arbiter.rules import RULES, Claims, Order, RuleName
from rlscaler_core.arbiter.types import NO_MEMBER, NO_RESOURCE, Budgets, Grants, Loans, Members, Reason
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
        self.of_ceiling = quotients(members.ceiling, members.units)
        self.of_amount = quotients(budgets.amount[members.budget], members.units)
        self.wanted: Int = np.minimum(self.asked, _whole(np.minimum(self.of_ceiling, self.of_amount)))
        self.own = _whole(quotients(members.guaranteed, members.units))
        self.guaranteed: Int = np.minimum(self.wanted, self.own)
        self.promised: Int = np.minimum(np.minimum(self.asked, self.own), _whole(self.of_ceiling))
        self.dominant = dominant(budgets, members)
        self._claims = Claims(members, loans, self.asked, self.dominant)

    def give(self, low: Int, high: Int, room: Float) -> tuple[Int, Float]:
        """Hand out the replicas low + 1 .. high (M,) of the members; gives what each has then, and the room left."""
        chosen = candidates(low, high)
        if not chosen.member.size:
            return low.astype(np.int32), np.maximum(room, 0.0)
        order = self.order(self._claims, chosen)
        got, room = hand_out(self.members, chosen, order, room)
        return (low + got).astype(np.int32), room

    def used(self, replicas: Int) -> Float:
        """Give the units (B, R) of so many replicas (M,)."""
        return summed(replicas[:, None] * self.members.units, self.members.budget, len(self.budgets))

    def unlent(self, due: Int) -> Float:
        """Give the units (B, R) that are guaranteed, not `due` (M,) to their members now, and not to be borrowed."""
        if self.budgets.lend.all():
            return np.zeros_like(self.budgets.amount)
        kept: Float = self.used(self.own) - self.used(due)
        return np.where(self.budgets.lend[:, None], 0.0, kept)

    def taken(self, where: Bool) -> Bool:
        """Say which resources (B, R) of each budget the members `where` (M,) take."""
        return summed(where[:, None] & (self.members.units > 0), self.members.budget, len(self.budgets)) > 0

    def anyone(self, where: Bool) -> Bool:
        """Say in which budgets (B,) there is a member `where` (M,)."""
        return np.bincount(self.members.budget, where, len(self.budgets)) > 0


def arbitrate(rule: RuleName | Order, budgets: Budgets, members: Members, loans: Loans) -> tuple[Grants, Loans]:
    """Grant replicas to M members of B budgets. Nothing that is passed in is changed.

    `rule` is one of `RULES` by its name, or any other order of candidates, as the bids of `learned`.

    Where it is not known what a member asks for, it keeps its last grant if it can, or what it has where it has none.
    Where the amount is smaller than the guarantees that are asked for, `rule` shares it among these, and no member gets
    more than its guarantee. The same rows give the same grants, and ties go to the member whose row comes first.
    Raises ColumnError where a member's budget is not there, or where the tables are of different resources.
    """
    if len(members) and int(members.budget.max()) >= len(budgets):
        raise ColumnError(f"Members.budget: there are {len(budgets)} budgets, counted from 0")
    if members.units.shape[1:] != budgets.amount.shape[1:]:
        wide, amounts = members.units.shape[1], budgets.amount.shape[1]
        raise ColumnError(f"Members.units: there are {amounts} resources in Budgets.amount, and {wide} here")
    sharing = _Sharing(RULES[rule] if isinstance(rule, str) else rule, budgets, members, loans)
    due = _due(sharing)
    granted = _granted(sharing, due)
    reason, because, resource = _reasons(sharing, due, granted)
    borrowed = np.maximum(granted - sharing.own, 0).astype(np.int32)
    grants = Grants(granted, borrowed, due, sharing.promised, reason, because, resource)
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
    # Where even guarantees are short, what is left of what they take is too small for a replica of them, and not for
    # others to take.
    if (short := due < sharing.promised).any():
        room = np.where(sharing.taken(short), 0.0, room)
    due, _ = sharing.give(due, sharing.wanted, np.maximum(room - sharing.unlent(due), 0.0))
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


def _reasons(sharing: _Sharing, due: Int, granted: Int) -> tuple[Int, Int, Int]:
    """Give the reason (M,), the member whose guarantee it is (M,), and the resource that stands in the way (M,)."""
    members, budgets = sharing.members, sharing.budgets
    left = budgets.amount - sharing.used(np.maximum(members.current, granted)) - sharing.unlent(due)
    scarce = missing = _scarcest(quotients(left[members.budget], members.units))
    if (short := due < sharing.promised).any():
        lacking = budgets.amount - sharing.used(sharing.promised)
        missing = _scarcest(quotients(lacking[members.budget], members.units))
    level = granted * sharing.dominant / members.weight
    because = _largest_guarantee(sharing, granted, level, scarce)
    next_level = (granted + 1) * sharing.dominant / members.weight
    theirs = (because != NO_MEMBER) & (level[because] > next_level)
    nothing = np.full(len(members), NO_RESOURCE)
    reasons: list[tuple[NDArray[np.bool_], Reason, NDArray[Any]]] = [
        (granted >= sharing.asked, Reason.ALL, nothing),
        (granted >= _whole(sharing.of_ceiling), Reason.CEILING, _scarcest(sharing.of_ceiling)),
        (short, Reason.TOO_FEW, missing),
        (granted >= _whole(sharing.of_amount), Reason.AMOUNT, _scarcest(sharing.of_amount)),
        (granted < due, Reason.RETURNING, scarce),
        (theirs, Reason.GUARANTEE, scarce),
    ]
    holds = [where for where, _, _ in reasons]
    reason = np.select(holds, [int(code) for _, code, _ in reasons], int(Reason.SHARE)).astype(np.int32)
    resource = np.select(holds, [which for _, _, which in reasons], scarce).astype(np.int32)
    return reason, np.where(reason == Reason.GUARANTEE, because, NO_MEMBER).astype(np.int32), resource


def _largest_guarantee(sharing: _Sharing, granted: Int, level: Float, resource: Int) -> Int:
    """Give each member (M,) the one with the most for its weight within its guarantee, or NO_MEMBER.

    It is of the same budget and has some of the `resource` (M,).
    """
    members = sharing.members
    rows = np.flatnonzero((granted > 0) & (granted <= sharing.own))
    rows = rows[np.lexsort((-rows, level[rows]))]
    best = np.full(sharing.budgets.amount.shape, NO_MEMBER, np.int32)
    for column in range(members.units.shape[-1]):
        having = rows[members.units[rows, column] > 0]
        best[members.budget[having], column] = having
    found = best[members.budget, resource]
    return np.where(found == np.arange(len(members)), NO_MEMBER, found).astype(np.int32)


def _counted(intervals: Int, where: Bool) -> Int:
    return np.where(where, intervals + 1, 0).astype(np.int32)


def _whole(replicas: Float) -> Int:
    """Give the whole replicas (M,) for which there is enough of every resource, by the `replicas` (M, R) of each."""
    fewest: Float = replicas.min(axis=1) * (1 + ROUNDING) + ROUNDING
    return np.minimum(np.floor(fewest), MOST).astype(np.int32)


def _scarcest(replicas: Float) -> Int:
    """Give the resource (M,) that is enough for the fewest `replicas` (M, R)."""
    return np.asarray(replicas.argmin(axis=1), np.int32)


def jain(used: Float, share: Float) -> float:
    """Give Jain's index of fairness of `used` (M,) over the `share` (M,) each is due: 1 is even, 1/M is all for one.

    NaN where no member uses anything.
    """
    each = used / share
    squares = float((each**2).sum()) * len(each)
    return float(each.sum()) ** 2 / squares if squares > 0 else float("nan")
