"""Requests, memory and grants of the arbiter as tables of arrays, and arithmetic over their resources.

A budget is an amount of one resource or of several, such as 16 GPUs and 128 CPUs. A member is a policy that scales on
it. B is the number of budgets, M the number of members of all of them together; a member's row names its budget. R is
the number of resources of the budget that has most; the column of a resource that a budget does not have is 0 in
`amount` and `units`. Amounts are in units of each resource, grants are in whole replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.exceptions import ColumnError
from rlscaler_core.decision.tables import Column, fill
from rlscaler_core.decision.types import Bool, Float, Int, Rows

NO_MEMBER = -1
"""`Grants.because` where no single member is the reason."""

NO_RESOURCE = -1
"""`Grants.resource` where no resource stands in the way."""

ROUNDING = 1e-9
"""Share of a unit by which a replica may be too large and still fit, which keeps 3 * 0.1 from being more than 0.3."""

Table = TypeVar("Table", "Budgets", "Members")


class Reason(IntEnum):
    """Why a member is granted no more; the first reason that holds."""

    ALL = 0
    """It is granted its whole request."""
    CEILING = 1
    """Its own ceiling."""
    TOO_FEW = 2
    """The amount is smaller than the requested guarantees, so that even guarantees are shared."""
    AMOUNT = 3
    """It has as much as the whole budget holds of a resource."""
    RETURNING = 4
    """Its due is still being returned by members that borrowed it, or still runs elsewhere."""
    GUARANTEE = 5
    """Another member's guarantee, which `Grants.because` names."""
    SHARE = 6
    """The others' shares by weight, priority or turn."""


@dataclass(slots=True)
class Budgets(Rows):
    """The pools that are shared."""

    amount: Float  # (B, R) units of each resource
    lend: Bool  # (B,) a guaranteed share that its member does not ask for may be borrowed
    reclaim_intervals: Int  # (B,) what was borrowed is given back within so many intervals; 1 = at once


@dataclass(slots=True)
class Members(Rows):
    """Requests of the members, and their terms in the budget."""

    budget: Int  # (M,) row of its budget
    asked: Float  # (M,) replicas; NaN = not known
    current: Int  # (M,) replicas that run or were ordered
    minimum: Int  # (M,) replicas that it asks for at least
    units: Float  # (M, R) of each resource for one replica, of one at least above 0
    guaranteed: Float  # (M, R) units that it gets whenever it asks for them
    ceiling: Float  # (M, R) units that it gets at most; inf = any
    weight: Float  # (M,) its share of what is not guaranteed, above 0
    priority: Int  # (M,) higher goes first, for `Priority`


@dataclass(slots=True)
class Loans(Rows):
    """The arbiter's memory of each member from one interval to the next."""

    granted: Int  # (M,) replicas, its last grant; -1 = it has none yet
    borrowed_intervals: Int  # (M,) for which it has had more than its guarantee without a break
    waited_intervals: Int  # (M,) for which it has been granted less than it asked for
    short_intervals: Int  # (M,) for which some member of its budget has had less than its due


@dataclass(slots=True)
class Grants(Rows):
    """Grants of the members."""

    granted: Int  # (M,) replicas
    borrowed: Int  # (M,) those of them that are beyond the guarantee
    due: Int  # (M,) replicas that it will have once everything borrowed has been given back
    promised: Int  # (M,) replicas of its guarantee that it asks for, whether there are so many or not
    reason: Int  # (M,) Reason
    because: Int  # (M,) row of the member whose guarantee it is, or NO_MEMBER
    resource: Int  # (M,) the resource that stands in the way of one more replica, or NO_RESOURCE


_BUDGETS = {"lend": Column((), np.bool_, True), "reclaim_intervals": Column((), np.int32, 1)}

_MEMBERS = {
    "budget": Column((), np.int32, 0),
    "asked": Column((), np.float64, np.nan),
    "current": Column((), np.int32, 0),
    "minimum": Column((), np.int32, 0),
    "weight": Column((), np.float64, 1.0),
    "priority": Column((), np.int32, 0),
}


_AMOUNTS = {"amount": None}
_UNITS = {"units": 1.0, "guaranteed": 0.0, "ceiling": np.inf}
"""The columns (N, R) of both tables, with their defaults."""

_OF_RESOURCES = (*_AMOUNTS, *_UNITS)


def make_budgets(b: int, **columns: Any) -> Budgets:
    """Return B rows; a column is a scalar or an array (B,), and `amount` may be (B, R).

    Raises ColumnError, also for values out of range.
    """
    budgets = Budgets(**_filled("Budgets", b, _BUDGETS, _AMOUNTS, columns))
    _refuse("Budgets.amount", ~(budgets.amount >= 0) | np.isinf(budgets.amount), "a finite number of at least 0")
    _refuse("Budgets.reclaim_intervals", budgets.reclaim_intervals < 1, "at least 1")
    return budgets


def make_members(m: int, **columns: Any) -> Members:
    """Return M rows; a column is a scalar or an array (M,), and a column of resources may be (M, R).

    Raises ColumnError, also for values out of range.
    """
    members = Members(**_filled("Members", m, _MEMBERS, _UNITS, columns))
    _refuse("Members.budget", members.budget < 0, "the row of a budget")
    _refuse("Members.units", ~((members.units >= 0) & np.isfinite(members.units)), "a finite number of at least 0")
    _refuse("Members.units", np.asarray(~(members.units > 0).any(axis=1)), "above 0 for one resource at least")
    _refuse("Members.weight", ~((members.weight > 0) & np.isfinite(members.weight)), "a finite number above 0")
    _refuse("Members.guaranteed", ~((members.guaranteed >= 0) & np.isfinite(members.guaranteed)), "0 or more")
    _refuse("Members.ceiling", ~(members.ceiling >= 0), "0 or more")
    _refuse("Members.current", members.current < 0, "0 or more")
    _refuse("Members.minimum", members.minimum < 0, "0 or more")
    return members


def of_resources(table: Table, resources: int) -> Table:
    """Return a table of its first `resources` alone."""
    narrow = {name: getattr(table, name)[:, :resources] for name in _OF_RESOURCES if hasattr(table, name)}
    return replace(table, **narrow)


def no_loans(m: int) -> Loans:
    """Return M rows of members without any grant yet."""
    none = np.zeros(m, np.int32)
    return Loans(np.full(m, -1, np.int32), none, none.copy(), none.copy())


def follow(loans: Loans, before: Sequence[object], now: Sequence[object]) -> Loans:
    """Return the loans of the members named `now`, in their order, from those of the members named `before`.

    A member that left is forgotten, and a new member has no grant yet.
    """
    row, joined = {name: number for number, name in enumerate(before)}, len(loans)
    # A new member takes the extra last row, which has no grant.
    known = [row.get(name, joined) for name in now]
    return Loans.concat([loans, no_loans(1)]).take(np.array(known, np.intp))


def _filled(
    table: str, n: int, plain: Mapping[str, Column], by_resource: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    """Fill the `plain` columns and those `by_resource`, which are (N, R) for the R of the widest that was given.

    One that was given as (N,) holds for each resource.
    """
    try:
        wide = {name: np.asarray(given[name], np.float64) for name in by_resource.keys() & given.keys()}
    except ValueError as error:
        raise ColumnError(f"{table}: {', '.join(by_resource)} have to be numbers (N, R): {error}") from error
    resources = max([1, *(column.shape[1] for column in wide.values() if column.ndim == 2)])
    columns = {name: Column((resources,), np.float64, default) for name, default in by_resource.items()}
    shaped = {name: column[:, None] if column.ndim == 1 else column for name, column in wide.items()}
    return fill(table, n, {**plain, **columns}, {**given, **shaped})


def _refuse(column: str, where: Bool, wanted: str) -> None:
    rows = where.any(axis=tuple(range(1, where.ndim)))
    if rows.any():
        raise ColumnError(f"{column}[{int(np.argmax(rows))}]: has to be {wanted}")


def same_rows(table: Rows, other: Rows) -> bool:
    """Return whether two tables have the same rows; NaN equals NaN."""
    pairs = [(getattr(table, field.name), getattr(other, field.name)) for field in fields(table)]
    return all(np.array_equal(first, second, equal_nan=first.dtype.kind == "f") for first, second in pairs)


def summed(units: Float | Bool, budget: Int, b: int) -> Float:
    """Return the sums (B, R) of the `units` (K, R) of each `budget` (K,)."""
    r = units.shape[1]
    # One bincount over (budget, resource) pairs is faster than np.add.at.
    places = (budget[:, None] * r + np.arange(r)).ravel()
    return np.asarray(np.bincount(places, units.ravel(), b * r), np.float64).reshape(b, r)


def fits(units: Float, room: Float) -> Bool:
    """Return where (K,) the `units` (K, R) are no more than the `room` (K, R) in any resource."""
    return np.asarray((units <= room * (1 + ROUNDING) + ROUNDING).all(axis=1))


def quotients(units: Float, each: Float) -> Float:
    """Return the replicas of `each` (M, R) that the `units` (M, R) suffice for, inf where a replica takes none."""
    return np.asarray(np.divide(units, each, out=np.full(each.shape, np.inf), where=each > 0))


def dominant(budgets: Budgets, members: Members) -> Float:
    """Return the growth (M,) of each member's dominant share by one replica, up to a factor common to each budget.

    The dominant share is the largest part of any resource's amount that a member has. The factor is the amount of the
    first resource with any: with one resource the result is the units of a replica, to the last bit. A resource without
    any amount is granted to no member, and does not count.
    """
    there = budgets.amount > 0
    first = np.take_along_axis(budgets.amount, there.argmax(axis=1)[:, None], axis=1)
    scale = np.where(there, first, 1.0) / np.where(there, budgets.amount, 1.0)
    return np.asarray((members.units * scale[members.budget]).max(axis=1))
