"""Handing out whole replicas one after another, in the order of a rule, as long as they fit; for all budgets at once.

A replica fits where there is room for it in every resource that it takes. A candidate is one replica that a member
could get: its k-th, counted from 1. A member's candidates are handed out in the order of k, and once one does not fit,
none of its later ones does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlscaler_core.arbiter.types import Members, fits, summed
from rlscaler_core.decision.types import Bool, Float, Int


class Candidates(NamedTuple):
    """C replicas that may be handed out."""

    member: Int  # (C,) row of the member
    number: Int  # (C,) the k: it would be the member's k-th replica


def candidates(low: Int, high: Int) -> Candidates:
    """Return the candidates low + 1 .. high of each member, both (M,), in the order of the members."""
    count = np.maximum(high - low, 0)
    member = np.repeat(np.arange(len(count), dtype=np.int32), count)
    begin = np.cumsum(count) - count
    number = np.arange(len(member)) - begin[member] + low[member] + 1
    return Candidates(member, number.astype(np.int32))


def hand_out(members: Members, chosen: Candidates, order: tuple[Float, ...], room: Float) -> tuple[Int, Float]:
    """Hand out candidates while they fit in the `room` (B, R) of their budgets.

    They go by `order`, columns (C,) of which the first counts most and the lowest goes first; ties go to the member
    whose row comes first. Return the number of replicas of each member (M,), and the room (B, R) that is left.
    """
    got = np.zeros(len(members), np.int32)
    room = room.copy()
    # np.lexsort sorts by its last key first: budget, the rule's columns, member, and number of the replica.
    keys: tuple[Float | Int, ...] = (chosen.number, chosen.member, *order[::-1], members.budget[chosen.member])
    member = chosen.member[np.lexsort(keys)]
    while member.size:
        budget, units = members.budget[member], members.units[member]
        first_of = _first_of_its_budget(budget)
        # All candidates of a budget up to the first that does not fit are handed out in one step.
        taken = _before(units, first_of) + units
        first = _until_one_fails(fits(taken, room[budget]), first_of)
        np.add.at(got, member[first], 1)
        room -= summed(units[first], budget[first], len(room))
        member = member[~first]
        # A candidate at least as large as the one that did not fit does not fit either.
        small = fits(members.units[member], room[members.budget[member]])
        stopped = np.zeros(len(members), np.bool_)
        stopped[member[~small]] = True
        member = member[small & ~stopped[member]]
    return got, np.maximum(room, 0.0)


def _first_of_its_budget(budget: Int) -> Int:
    """Return the row (C,) of the first candidate of each candidate's budget; `budget` (C,) is sorted."""
    new = np.empty(len(budget), np.bool_)
    new[0], new[1:] = True, budget[1:] != budget[:-1]
    return np.asarray(np.flatnonzero(new)[np.cumsum(new) - 1], np.int32)


def _before(units: Float, first_of: Int) -> Float:
    """Return the sum (C, R) of the units that go before each candidate in its own budget."""
    # The running sum over all budgets, less its value at the first candidate of the budget.
    total = np.cumsum(units, axis=0) - units
    return np.asarray(total - total[first_of])


def _until_one_fails(fitting: Bool, first_of: Int) -> Bool:
    """Return the candidates (C,) before the first of their budget that does not fit."""
    failures = np.cumsum(~fitting)
    earlier: Int = (failures - ~fitting)[first_of]
    return np.asarray(failures == earlier)
