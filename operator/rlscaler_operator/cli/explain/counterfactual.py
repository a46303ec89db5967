"""What would have become of the replicas without one of the guards. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlscaler_core.decision.batch import Entry
from rlscaler_core.decision.decide import decide_at
from rlscaler_core.decision.guards import STAGES, without
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.types import POOLS, Decision, Int


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
    for number, guard in enumerate(STAGES):
        after = _by_pool(decision.trail[0, number])
        off = _without(entry, guard) if number and after != before else None
        found.append(Step(guard, before, after, off))
        before = after
    return found


def recorded_steps(record: dict[str, Any]) -> list[Step]:
    """The same from a record that cannot be decided again: nothing is known of what would have been."""
    return [Step(step["guard"], step["before"], step["after"], None) for step in record["guards"]]


def _without(entry: Entry, guard: str) -> dict[str, int]:
    state = sense(entry.params, entry.state, entry.samples)
    decision, _, _ = decide_at(entry.kind, entry.params, state, entry.samples, entry.actor, guards=without(guard))
    return _by_pool(decision.desired[0])


def _by_pool(values: Int) -> dict[str, int]:
    return {pool: int(values[i]) for i, pool in enumerate(POOLS)}
