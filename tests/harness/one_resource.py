"""The arbiter of budgets of one resource, stated once more in plain Python: one budget and one replica at a time.

It shares nothing with `rlscaler_core.arbiter` but the names of rules and reasons, and knows of no second resource. What
several resources brought must not change anything that comes out of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

NOBODY = -1


class Member(NamedTuple):
    """One member, and what is remembered of it; `asked` NaN = not known, `granted` -1 = nothing yet."""

    asked: float
    current: int
    minimum: int
    units: float
    guaranteed: float
    ceiling: float
    weight: float
    priority: int
    granted: int
    waited: int
    short: int


class Answer(NamedTuple):
    """What came out, by member."""

    granted: list[int]
    due: list[int]
    promised: list[int]
    reason: list[str]
    because: list[int]


def whole(units: float, each: float) -> int:
    """Whole replicas of `each` units in `units`."""
    found = units / each * (1 + 1e-9) + 1e-9
    return 100_000 if found > 100_000 else math.floor(found)


def share(rule: str, amount: float, lends: bool, reclaim: int, members: Sequence[Member]) -> Answer:
    """Share one budget."""
    rows = range(len(members))
    held = [one.granted if one.granted >= 0 else one.current for one in members]
    wish = [held[i] if math.isnan(one.asked) else one.asked for i, one in enumerate(members)]
    asked = [int(min(max(wish[i], one.minimum, 0), 100_000)) for i, one in enumerate(members)]
    ceiling = [whole(one.ceiling, one.units) for one in members]
    own = [whole(one.guaranteed, one.units) for one in members]
    wanted = [min(asked[i], whole(min(one.ceiling, amount), one.units)) for i, one in enumerate(members)]
    secured = [min(wanted[i], own[i]) for i in rows]
    promised = [min(asked[i], own[i], ceiling[i]) for i in rows]
    order = _orders(members, asked)[rule]

    def fill(low: Sequence[int], high: Sequence[int], room: float) -> tuple[list[int], float]:
        got, out = list(low), [low[i] >= high[i] for i in rows]
        while not all(out):
            i = min((i for i in rows if not out[i]), key=lambda i: (*order(i, got[i] + 1), i))
            if members[i].units <= room * (1 + 1e-9) + 1e-9:
                got[i], room = got[i] + 1, room - members[i].units
                out[i] = got[i] >= high[i]
            else:
                out[i] = True
        return got, max(room, 0.0)

    nothing = [0 for _ in rows]
    due, room = fill(nothing, secured, amount)
    if any(due[i] < promised[i] for i in rows):
        room = 0.0
    reserved = 0.0 if lends else sum((own[i] - due[i]) * members[i].units for i in rows)
    due, _ = fill(due, wanted, max(room - reserved, 0.0))

    kept = []
    for i, one in enumerate(members):
        before, left = min(max(one.granted, 0), wanted[i]), max(reclaim - one.short, 1)
        kept.append(due[i] + (before - due[i]) * (left - 1) // left if before > due[i] else before)
    sure = [min(secured[i], due[i]) for i in rows]
    granted, room = fill(nothing, [min(kept[i], sure[i]) for i in rows], amount)
    for goal in (kept, sure, [min(one.current, due[i]) for i, one in enumerate(members)]):
        granted, room = fill(granted, [max(goal[i], granted[i]) for i in rows], room)
    elsewhere = sum(max(one.current - granted[i], 0) * one.units for i, one in enumerate(members))
    granted, _ = fill(granted, [max(due[i], granted[i]) for i in rows], max(room - elsewhere, 0.0))

    level = [granted[i] * one.units / one.weight for i, one in enumerate(members)]
    within = [i for i in rows if 0 < granted[i] <= own[i]]
    largest = max(within, key=lambda i: (level[i], -i), default=NOBODY)
    reasons, because = [], []
    for i, one in enumerate(members):
        other = NOBODY if largest == i else largest
        theirs = other != NOBODY and level[other] > (granted[i] + 1) * one.units / one.weight
        holds = (
            ("ALL", granted[i] >= asked[i]),
            ("CEILING", granted[i] >= ceiling[i]),
            ("TOO_FEW", due[i] < promised[i]),
            ("AMOUNT", granted[i] >= whole(amount, one.units)),
            ("RETURNING", granted[i] < due[i]),
            ("GUARANTEE", theirs),
            ("SHARE", True),
        )
        reasons.append(next(name for name, where in holds if where))
        because.append(other if reasons[-1] == "GUARANTEE" else NOBODY)
    return Answer(granted, due, promised, reasons, because)


def _orders(members: Sequence[Member], asked: Sequence[int]) -> dict[str, Callable[[int, int], tuple[float, ...]]]:
    """What a member's k-th replica is handed out by, the lowest first."""

    def fair(i: int, k: int) -> tuple[float, ...]:
        return (k * members[i].units / members[i].weight,)

    def first_come(i: int, k: int) -> tuple[float, ...]:
        grows = k > members[i].current
        return (1.0, -members[i].waited, i) if grows else (0.0, 0.0, 0.0)

    return {
        "MaxMinFair": fair,
        "Priority": lambda i, k: (-members[i].priority, *fair(i, k)),
        "Proportional": lambda i, k: (k / (max(asked[i], 1) * members[i].weight),),
        "FirstCome": first_come,
    }
