"""Working out what a record does not say by itself: the decision is taken again, and variants of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlscaler_operator.cli.explain.counterfactual import Step, recorded_steps, steps
from rlscaler_operator.cli.explain.flips import Flip, find_flips
from rlscaler_operator.cli.replay.actors import Shelf
from rlscaler_operator.cli.replay.compare import compare, decide_again
from rlscaler_operator.exceptions import RecordError


@dataclass(frozen=True, slots=True)
class Explained:
    """What is known besides the record."""

    guards: list[Step]
    flips: list[Flip] | None
    """None where they could not be looked for."""
    note: str
    """What taking the decision again comes to."""


def work_out(record: dict[str, Any], shelf: Shelf) -> Explained:
    """Variants are worth something only where the decision itself comes out again."""
    try:
        outcome = decide_again(record, shelf)
    except RecordError as error:
        return Explained(recorded_steps(record), None, f"It cannot be decided again: {error}.")
    differences, _ = compare(record, outcome)
    if differences or outcome.decision is None:
        text = "Decided again, something else comes out, so nothing is said about variants: " + "; ".join(differences)
        return Explained(recorded_steps(record), None, text)
    guards = steps(outcome.entry, outcome.decision)
    return Explained(guards, find_flips(outcome.entry), "Decided again, the same comes out.")
