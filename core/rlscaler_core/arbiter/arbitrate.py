"""One interval of the arbiter: from the requests of members to their grants.

A member's due is the rule's result if nothing ran yet: guarantees first, as far as they are requested, then the rest.
Grants go there from the last grants: a member with more than its due gives it back in equal steps, within
`reclaim_intervals`, and a member with less gets the units that come free. Grants of a budget never exceed its amount of
any resource together. A guarantee and a ceiling are the whole replicas for which they are enough in every resource.

Nothing is killed. Replicas may run beyond a grant until they have been scaled down, and no grant beyond a guarantee
grows into their place. A guarantee does: its pods may be pending until those of the borrower have gone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.arbiter.filling import candidates, hand_out
from rlscaler_core.arbiter.rules import RULES, Claims, Order, RuleName
from rlscaler_core.arbiter.types import (
    NO_MEMBER,
    NO_RESOURCE,
    ROUNDING,
    Budgets,
    Grants,
    Loans,
    Members,
    Reason,
    dominant,
    quotients,
    summed,
)
from rlscaler_core.decision.exceptions import ColumnError
from rlscaler_core.decision.types import Bool, Flag, Float, Int

MOST = np.int32(100_000)
"""Most replicas that are considered for one member."""


class _Sharing:
    """The members and budgets of one call, and the replicas that follow from them alone."""

    def __init__(self, order: Order, budgets: Budgets, members: Members, loans: Loans) -> None:
        self.order, self.budgets, self.members, self.loans = order, budgets, members, loans
        # A member whose request is unknown asks to keep its last grant, or what runs where it has none.
        held = np.where(loans.granted >= 0, loans.granted, members.current)
        asked = np.maximum(np.where(np.isnan(members.asked), held, members.asked), members.minimum)
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
        """Hand out the replicas low + 1 .. high (M,) of the members; return the replicas of each, and the room left."""
        chosen = candidates(low, high)
        order = self.order(self._claims, chosen)
        got, room = hand_out(self.members, chosen, order, room)
        return (low + got).astype(np.int32), room

    def used(self, replicas: Int) -> Float:
        """Return the units (B, R) of so many replicas (M,)."""
        return summed(replicas[:, None] * self.members.units, self.members.budget, len(self.budgets))

    def unlent(self, due: Int) -> Float:
        """Return the units (B, R) that are guaranteed, not `due` (M,) to their members now, and not to be borrowed."""
        if self.budgets.lend.all():
            return np.zeros_like(self.budgets.amount)
        reserved: Float = self.used(self.own) - self.used(due)
        return np.where(self.budgets.lend[:, None], 0.0, reserved)

    def taken(self, where: Bool) -> Bool:
        """Return the resources (B, R) of each budget that the members `where` (M,) take."""
        return summed(where[:, None] & (self.members.units > 0), self.members.budget, len(self.budgets)) > 0

    def anyone(self, where: Bool) -> Bool:
        """Return the budgets (B,) with a member `where` (M,)."""
        return np.bincount(self.members.budget, where, len(self.budgets)) > 0


def arbitrate(rule: RuleName | Order, budgets: Budgets, members: Members, loans: Loans) -> tuple[Grants, Loans]:
    """Grant replicas to M members of B budgets. The arguments are not changed.

    `rule` is a name in `RULES`, or any other order of candidates, as the bids of `learned`.

    A member with an unknown request keeps its last grant if it can, or its current replicas where it has no grant.
    Where the amount is smaller than the requested guarantees, `rule` shares it among these, and no member gets more
    than its guarantee. The same rows give the same grants, and ties go to the member whose row comes first. Raises
    ColumnError where a member's budget does not exist, or where the tables have different resources.
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
    """Return the replicas (M,) that the rule grants each member where nothing runs yet."""
    members, budgets = sharing.members, sharing.budgets
    due, room = sharing.give(np.zeros(len(members), np.int32), sharing.guaranteed, budgets.amount)
    # Where even guarantees are short, what is left of what they take is too small for a replica of them, and not for
    # others to take.
    if (short := due < sharing.promised).any():
        room = np.where(sharing.taken(short), 0.0, room)
    due, _ = sharing.give(due, sharing.wanted, np.maximum(room - sharing.unlent(due), 0.0))
    return due


def _granted(sharing: _Sharing, due: Int) -> Int:
    """Return the grants (M,) of this interval, on the way to the replicas that are `due` (M,)."""
    members, budgets, loans = sharing.members, sharing.budgets, sharing.loans
    before = np.minimum(np.maximum(loans.granted, 0), sharing.wanted)
    # Intervals left for giving back: the longer some member lacks its due, the fewer.
    left = np.maximum(budgets.reclaim_intervals[members.budget] - loans.short_intervals, 1)
    # A member beyond its due gives back an equal part of the excess in each interval that is left.
    reduced = due + (before - due) * (left - 1) // left
    retained = np.where(before > due, reduced, np.minimum(before, due)).astype(np.int32)
    # From the strongest claim to the weakest: kept guarantees, kept loans, new guarantees, running replicas, growth.
    nothing = np.zeros_like(due)
    granted, room = sharing.give(nothing, np.minimum(retained, np.minimum(sharing.guaranteed, due)), budgets.amount)
    granted, room = sharing.give(granted, np.maximum(retained, granted), room)
    granted, room = sharing.give(granted, np.maximum(np.minimum(sharing.guaranteed, due), granted), room)
    granted, room = sharing.give(granted, np.maximum(np.minimum(members.current, due), granted), room)
    # Replicas beyond a grant still run: no growth beyond guarantees takes their place before they have gone.
    elsewhere = sharing.used(np.maximum(members.current - granted, 0))
    granted, _ = sharing.give(granted, np.maximum(due, granted), np.maximum(room - elsewhere, 0.0))
    return granted


def _reasons(sharing: _Sharing, due: Int, granted: Int) -> tuple[Int, Int, Int]:
    """Return the reason (M,), the member whose guarantee it is (M,), and the resource that stands in the way (M,)."""
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
    """Return for each member (M,) the row of the member with the most for its weight within its guarantee, or
    NO_MEMBER.

    The row is of the same budget and has some of the `resource` (M,).
    """
    members = sharing.members
    rows = np.flatnonzero((granted > 0) & (granted <= sharing.own))
    rows = rows[np.lexsort((-rows, level[rows]))]
    best = np.full(sharing.budgets.amount.shape, NO_MEMBER, np.int32)
    for column in range(members.units.shape[-1]):
        having = rows[members.units[rows, column] > 0]
        best[members.budget[having], column] = having
    row = best[members.budget, resource]
    return np.where(row == np.arange(len(members)), NO_MEMBER, row).astype(np.int32)


def _counted(intervals: Int, where: Bool) -> Int:
    return np.where(where, intervals + 1, 0).astype(np.int32)


def _whole(replicas: Float) -> Int:
    """Return the whole replicas (M,) for which every resource suffices, by the `replicas` (M, R) of each resource."""
    fewest: Float = replicas.min(axis=1) * (1 + ROUNDING) + ROUNDING
    return np.minimum(np.floor(fewest), MOST).astype(np.int32)


def _scarcest(replicas: Float) -> Int:
    """Return the resource (M,) that suffices for the fewest `replicas` (M, R)."""
    return np.asarray(replicas.argmin(axis=1), np.int32)


def jain(used: Float, share: Float) -> float:
    """Return Jain's index of fairness of `used` (M,) over the `share` (M,) of each: 1 is even, 1/M is all for one
    member.

    NaN where no member uses anything.
    """
    # Jain's index: (sum x)^2 / (n * sum x^2).
    each = used / share
    squares = float((each**2).sum()) * len(each)
    return float(each.sum()) ** 2 / squares if squares > 0 else float("nan")


def requested(before: Float, action: Bool, desired: Int, flags: Int) -> Float:
    """Return the replicas (M,) that members request, NaN where unknown.

    `desired` and `flags` (M,) are of decisions without a grant, `action` (M,) is True for actions, and `before` (M,)
    has the replicas requested until now, NaN = unknown.
    """
    # An action replaces the request; a raise by the floor counts until the next action.
    unknown = (flags & Flag.HELD_UNKNOWN) != 0
    return np.where(action, np.where(unknown, np.nan, desired), np.fmax(desired, before))


def is_bound(desired: Int, base: Int, granted: Int, acts: Bool) -> Bool:
    """Return where (M,) a decision is made again with the grant: the member acts, and wants or runs more than that."""
    return np.asarray(acts & (np.maximum(desired, base) > granted))
