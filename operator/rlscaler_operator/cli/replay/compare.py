"""Taking recorded decisions and sharings again and saying what came out differently.

Replicas, action, every guard's step, flags, placement and weights have to be the same; probabilities within
`PROBABILITY_TOLERANCE` and observed values within `VALUE_TOLERANCE`, since processors round the last bits differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rlscaler_core.decision.batch import Entry, Outcome, decide_all
from rlscaler_operator.cli.replay.actors import AvailableActors
from rlscaler_operator.cli.replay.sharing import SharedAgain, Sharings
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.log import Line
from rlscaler_operator.records.record import entry_of, observation_record, result
from rlscaler_operator.records.sizing import sized_again

PROBABILITY_TOLERANCE = 1e-5
VALUE_TOLERANCE = 1e-6
"""Largest relative difference of two values that count as the same."""

BATCH = 1024

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Replayed:
    """One line that was decided again, or why it could not be."""

    line: Line
    differences: tuple[str, ...] = ()
    probability_error: float = 0.0
    """Largest difference of a probability."""
    problem: str = ""

    @property
    def decided(self) -> bool:
        return not self.problem


def replay(lines: Iterable[Line], actors: AvailableActors) -> Iterator[Replayed | SharedAgain]:
    """Decide and share every line again; decisions in their order and a batch at a time."""
    sharings, waiting = Sharings(), list[Waiting]()
    for line in lines:
        if line.sharing is not None:
            yield sharings.share(line, line.sharing)
            continue
        entry, problem = _entry(line, actors)
        followed = () if entry is None or line.record is None else sharings.differences(line.record, entry)
        waiting.append(Waiting(line, entry, problem, followed))
        if len(waiting) == BATCH:
            yield from _decide(waiting)
            waiting = []
    yield from _decide(waiting)


class Waiting(NamedTuple):
    """A line that waits for its batch."""

    line: Line
    entry: Entry | None
    problem: str
    followed: tuple[str, ...]
    """Where it does not follow from the sharing that it names."""


def decide_again(record: Json, actors: AvailableActors) -> Outcome:
    """Decide one record by itself. Raises RecordError."""
    return decide_all([entry_of(record, actors.find)])[0]


def _entry(line: Line, actors: AvailableActors) -> tuple[Entry | None, str]:
    if line.record is None:
        return None, line.problem
    try:
        return entry_of(line.record, actors.find), ""
    except RecordError as error:
        return None, str(error)


def _decide(waiting: list[Waiting]) -> Iterator[Replayed]:
    outcomes = iter(decide_all([one.entry for one in waiting if one.entry is not None]))
    for line, entry, problem, followed in waiting:
        if entry is None or line.record is None:
            yield Replayed(line, problem=problem)
            continue
        found = _compared(line, next(outcomes))
        # In a batch the network rounds differently than alone, and of two equally likely actions another may win.
        found = found if not found.differences else _compared(line, decide_all([entry])[0])
        yield replace(found, differences=found.differences + followed)


def _compared(line: Line, outcome: Outcome) -> Replayed:
    assert line.record is not None
    return Replayed(line, *compare(line.record, outcome))


def compare(record: Json, outcome: Outcome) -> tuple[tuple[str, ...], float]:
    """Give what differs between a record and an outcome, and the largest difference of a probability."""
    if outcome.decision is None:
        return (f"the decision failed: {outcome.error!r}",), 0.0
    again = result(outcome, outcome.decision)
    again["observation"] = None if outcome.observation is None else observation_record(outcome.observation)
    comparison = Comparison()
    if (sizing := record.get("sizing")) is not None:
        try:
            again["sizing"] = sized_again(sizing)
        except RecordError as error:
            comparison.differences.append(str(error))
    for name, value in again.items():
        comparison.look(name, record.get(name), value)
    return tuple(comparison.differences), comparison.probability_error


@dataclass(slots=True)
class Comparison:
    """Collects the leaves that differ."""

    differences: list[str] = field(default_factory=list)
    probability_error: float = 0.0

    def look(self, path: str, recorded: Any, again: Any) -> None:
        """Go down to the leaves, which are named by their path."""
        if isinstance(recorded, dict) and isinstance(again, dict):
            for name in {**recorded, **again}:
                self.look(f"{path}.{name}", recorded.get(name), again.get(name))
        elif isinstance(recorded, list) and isinstance(again, list) and len(recorded) == len(again):
            for number, (one, other) in enumerate(zip(recorded, again, strict=True)):
                self.look(f"{path}[{number}]", one, other)
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
