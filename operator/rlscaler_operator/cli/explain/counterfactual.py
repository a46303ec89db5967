"""What would have become of the replicas without one of the guards. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlscaler_core.decision.batch import Entry, decide_all
from rlscaler_core.decision.types import GUARDS, POOLS, Decision, Int


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of the shield."""

    guard: str
    before: dict[str, int]
    after: dict[str, int]
    without: dict[str, int] | None
    """Replicas that would have been decided upon had only this guard been off; None where it changed nothing."""

    @property
    def changed(self) -> bool:
        return self.before != self.after


def steps(entry: Entry, decision: Decision) -> list[Step]:
    """One a guard, in their order; the first is the actor's own proposal."""
    found, before = [], _by_pool(decision.base[0])
    for number, guard in enumerate(GUARDS):
        after = _by_pool(decision.trail[0, number])
        off = _without(entry, guard) if number and after != before else None
        found.append(Step(guard, before, after, off))
        before = after
    return found


def recorded_steps(record: dict[str, Any]) -> list[Step]:
    """The same from a record that cannot be decided again: nothing is known of what would have been."""
    return [Step(step["guard"], step["before"], step["after"], None) for step in record["guards"]]


def _without(entry: Entry, guard: str) -> dict[str, int] | None:
    outcome = decide_all([entry], without=frozenset({guard}))[0]
    return None if outcome.decision is None else _by_pool(outcome.decision.desired[0])


def _by_pool(values: Int) -> dict[str, int]:
    return {pool: int(values[i]) for i, pool in enumerate(POOLS)}
