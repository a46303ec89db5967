"""Replay of recorded decisions and sharings, and the differences between record and replay.

Replicas, action, every guard's step, flags, placement and weights have to be the same; probabilities within
`PROBABILITY_TOLERANCE` and observed values within `VALUE_TOLERANCE`, since processors round the last bits differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rlscaler_core.decision.batch import Entry, Outcome, decide_all
from rlscaler_core.decision.observation import CONTRACT_VERSION
from rlscaler_operator.cli.replay.actors import AvailableActors
from rlscaler_operator.cli.replay.sharings import ReplayedSharing, Sharings
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.log import Line
from rlscaler_operator.records.record import entry_of, observed, result
from rlscaler_operator.records.sizing import sized_again

PROBABILITY_TOLERANCE = 1e-5
VALUE_TOLERANCE = 1e-6
"""Largest relative difference of two values that count as the same."""

BATCH = 1024

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayedDecision:
    """Result of deciding one line again, or the problem that prevented it."""

    line: Line
    differences: tuple[str, ...] = ()
    probability_error: float = 0.0
    """Largest difference of a probability."""
    problem: str = ""


def replay(lines: Iterable[Line], actors: AvailableActors) -> Iterator[ReplayedDecision | ReplayedSharing]:
    """Decide or share every line again; decisions in their order and a batch at a time."""
    sharings, waiting = Sharings(), list[Waiting]()
    for line in lines:
        if line.sharing is not None:
            yield sharings.share(line, line.sharing)
            continue
        entry, problem = _entry(line, actors)
        grants = () if entry is None or line.record is None else sharings.differences(line.record, entry)
        waiting.append(Waiting(line, entry, problem, grants))
        if len(waiting) == BATCH:
            yield from _decide(waiting)
            waiting = []
    yield from _decide(waiting)


class Waiting(NamedTuple):
    """A line that waits for its batch."""

    line: Line
    entry: Entry | None
    problem: str
    grants: tuple[str, ...]
    """Differences between the decision and the sharing that it names."""


def decide_again(record: Json, actors: AvailableActors) -> Outcome:
    """Decide one record, in a batch of its own. Raises RecordError."""
    return decide_all([entry_of(record, actors.find)])[0]


def _entry(line: Line, actors: AvailableActors) -> tuple[Entry | None, str]:
    if line.record is None:
        return None, line.problem
    try:
        return entry_of(line.record, actors.find), ""
    except RecordError as error:
        return None, str(error)


def _decide(waiting: list[Waiting]) -> Iterator[ReplayedDecision]:
    outcomes = iter(decide_all([entry for _, entry, _, _ in waiting if entry is not None]))
    for line, entry, problem, grants in waiting:
        if entry is None or line.record is None:
            yield ReplayedDecision(line, problem=problem)
            continue
        replayed = _compared(line, next(outcomes))
        if replayed.differences:
            # In a batch the network rounds differently than alone, and of two equally likely actions another may win.
            replayed = _compared(line, decide_all([entry])[0])
        yield replace(replayed, differences=replayed.differences + grants)


def _compared(line: Line, outcome: Outcome) -> ReplayedDecision:
    assert line.record is not None
    return ReplayedDecision(line, *compare(line.record, outcome))


def compare(record: Json, outcome: Outcome) -> tuple[tuple[str, ...], float]:
    """Return the differences between a record and an outcome, and the largest difference of a probability."""
    if outcome.decision is None:
        return (f"the decision failed: {outcome.error!r}",), 0.0
    again = result(outcome, outcome.decision)
    again["observation"] = _as_then(record, observed(outcome))
    comparison = Comparison()
    if (sizing := record.get("sizing")) is not None:
        try:
            again["sizing"] = sized_again(sizing)
        except RecordError as error:
            comparison.differences.append(str(error))
    for name, value in again.items():
        comparison.add(name, record.get(name), value)
    return tuple(comparison.differences), comparison.probability_error


def _as_then(record: Json, observation: Json | None) -> Json | None:
    """Return the observed numbers of the contract that the record was made under; others are taken as recorded.

    A rule's decisions follow from the samples, so that those of an earlier release can be taken again.
    """
    before = record.get("observation")
    if observation is None or not before or (record.get("actor") or {}).get("contract") in (None, CONTRACT_VERSION):
        return observation
    return {name: observation.get(name, value) for name, value in before.items()}


@dataclass(slots=True)
class Comparison:
    """Collects the differing leaves of two JSON values."""

    differences: list[str] = field(default_factory=list)
    probability_error: float = 0.0

    def add(self, path: str, recorded: Any, again: Any) -> None:
        """Compare two values down to their leaves, which are named by their path."""
        if isinstance(recorded, dict) and isinstance(again, dict):
            for name in {**recorded, **again}:
                self.add(f"{path}.{name}", recorded.get(name), again.get(name))
        elif isinstance(recorded, list) and isinstance(again, list) and len(recorded) == len(again):
            for number, (before, after) in enumerate(zip(recorded, again, strict=True)):
                self.add(f"{path}[{number}]", before, after)
        elif not self._same(path, recorded, again):
            self.differences.append(f"{path}: {recorded!r} was recorded, {again!r} comes out")

    def _same(self, path: str, recorded: Any, again: Any) -> bool:
        if not (isinstance(recorded, float) and isinstance(again, float)):
            return bool(recorded == again)
        if path.startswith("probabilities"):
            error = abs(recorded - again)
            self.probability_error = max(self.probability_error, error)
            return error <= PROBABILITY_TOLERANCE
        return math.isclose(recorded, again, rel_tol=VALUE_TOLERANCE, abs_tol=VALUE_TOLERANCE)
