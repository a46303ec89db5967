"""The operator's audit log, as far as the demo shows and counts it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

PLACEMENT_WORDS = ("prefer GPU", "balanced", "prefer CPU")
PLACEMENT_NAMES = ("PreferGPU", "Balanced", "PreferCPU")


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """One line of the audit log."""

    time: float
    """Unix seconds."""
    kind: str
    """`action`: the actor decided; `floor`: between two actions, only the floor and the weights may move."""
    action: tuple[int, int, int] | None
    """GPU steps, CPU steps, placement; None when no actor ran."""
    placement: str
    """In force after the decision: PreferGPU, Balanced or PreferCPU."""
    guards: tuple[str, ...]
    """What the shield changed, as `floor gpu 1→3`."""
    unknown_required: int
    """Required observations that were unknown."""

    @property
    def action_text(self) -> str:
        if self.action is None:
            return "no actor"
        gpu, cpu, placement = self.action
        return f"gpu {gpu:+d} cpu {cpu:+d} {PLACEMENT_WORDS[placement]}"


def read_decision(line: str) -> DecisionLine:
    """Raises ValueError or KeyError for a line that is not a decision."""
    record = json.loads(line)
    action = record.get("action")
    return DecisionLine(
        time=float(record["time"]),
        kind=record["kind"],
        action=None if action is None else (int(action[0]), int(action[1]), int(action[2])),
        placement=record["placement"],
        guards=tuple(guard_texts(record["guards"])),
        unknown_required=len(record["unknown_required"]),
    )


def guard_texts(guards: list[dict[str, Any]]) -> list[str]:
    """The guards that changed something; the actor's own proposal is none."""
    return [
        f"{guard['guard']} {pool} {guard['before'][pool]}→{guard['after'][pool]}"
        for guard in guards
        if guard["guard"] != "proposal"
        for pool in ("gpu", "cpu")
        if guard["before"][pool] != guard["after"][pool]
    ]
