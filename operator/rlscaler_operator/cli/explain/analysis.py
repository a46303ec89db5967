"""Analysis of a recorded decision: it is taken again, and once more without each guard."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from rlscaler_core.decision.batch import Entry
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.guards import STAGES, without
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.types import POOLS, Decision, Int
from rlscaler_operator.cli.explain.flips import Flip, find_flips
from rlscaler_operator.cli.replay.actors import AvailableActors
from rlscaler_operator.cli.replay.compare import compare, decide_again
from rlscaler_operator.exceptions import RecordError

Json = dict[str, Any]

log = logging.getLogger("rlscaler.explain")


@dataclass(frozen=True, slots=True)
class Step:
    """Replicas before and after one stage of the shield."""

    guard: str
    before: dict[str, int]
    after: dict[str, int]
    without: dict[str, int] | None
    """Decided replicas with only this guard off; None where it changed nothing."""

    @property
    def changed(self) -> bool:
        return self.before != self.after


def steps(entry: Entry, decision: Decision) -> list[Step]:
    """Return a step for each stage of the shield, in their order; the first is the actor's own proposal."""
    rows, before = [], _by_pool(decision.base[0])
    for number, guard in enumerate(STAGES):
        after = _by_pool(decision.trail[0, number])
        off = _without(entry, guard) if number and after != before else None
        rows.append(Step(guard, before, after, off))
        before = after
    return rows


def recorded_steps(record: Json) -> list[Step]:
    """Return the steps of a record that cannot be decided again: the replicas without each guard are unknown."""
    return [Step(step["guard"], step["before"], step["after"], None) for step in record["guards"]]


def _without(entry: Entry, guard: str) -> dict[str, int] | None:
    """Return the decided replicas without a guard; None where nothing can be decided without it."""
    try:
        state = sense(entry.params, entry.state, entry.samples)
        decision, _, _ = decide(entry.params, state, entry.samples, entry.actor, kind=entry.kind, guards=without(guard))
    except Exception:
        log.debug("no decision without the guard %s", guard, exc_info=True)
        return None
    return _by_pool(decision.desired[0])


def _by_pool(values: Int) -> dict[str, int]:
    return {pool: int(values[i]) for i, pool in enumerate(POOLS)}


@dataclass(frozen=True, slots=True)
class Analysis:
    """Results beyond the record itself."""

    guards: list[Step]
    flips: list[Flip] | None
    """Values of a signal that would have changed the action; None where the search was not possible."""
    note: str
    """Sentence on whether the replay gives the same decision."""


def analyse(record: Json, actors: AvailableActors) -> Analysis:
    """Decide again, and compute the variants where the replay gives the same decision."""
    try:
        outcome = decide_again(record, actors)
    except RecordError as error:
        return Analysis(recorded_steps(record), None, f"It cannot be decided again: {error}.")
    differences, _ = compare(record, outcome)
    if differences or outcome.decision is None:
        text = "Decided again, something else comes out, so nothing is said about variants: " + "; ".join(differences)
        return Analysis(recorded_steps(record), None, text)
    guards = steps(outcome.entry, outcome.decision)
    return Analysis(guards, find_flips(outcome.entry), "Decided again, the same comes out.")
