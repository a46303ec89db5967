"""The conditions of a policy follow from what was found about it. Pure.

Messages hold no live figures: a status is written when a condition changes, and a number in a message would change it
at every tick.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from rlscaler_core.api import Condition, remove_condition, set_condition
from rlscaler_core.api import conditions as types
from rlscaler_core.api.promotion import PromotionStatus
from rlscaler_operator.state.ownership import Conflict

OPTIONAL = (types.CAPACITY_UNKNOWN, types.MODEL_OUTDATED)
"""Conditions that are absent where there is nothing to say."""

Mode = Literal["Off", "Shadow", "Auto"]


class Problem(NamedTuple):
    """Something that keeps a policy from being Ready, or its placement from being applied."""

    reason: str
    message: str


@dataclass(slots=True)
class Findings:
    """What one tick found about a policy."""

    mode: Mode = "Shadow"
    problems: list[Problem] = field(default_factory=list)
    """Why the policy cannot decide; the first one names the condition's reason."""
    placement_problem: Problem | None = None
    conflict: Conflict | None = None
    declared: str = ""
    """Which tools own the targets' replicas without having set them back so far."""
    paused: str = ""
    """Which annotations hold the replicas; empty = none."""
    fallback: Problem | None = None
    """Why the fallback acts."""
    holding: bool = False
    """Replicas are held until the fallback acts."""
    limits: list[Problem] = field(default_factory=list)
    """Guards that keep the pools from what was asked for: the budget, pods that do not come up."""
    model: Problem | None = None
    """Why the model that is named is not the one that decides; an older one goes on."""
    promotion: PromotionStatus | None = None
    """Whether a policy in Auto may act."""
    capacity_unknown: tuple[str, ...] = ()
    """Pools whose capacity is not known."""
    warnings: list[Problem] = field(default_factory=list)
    """Problems that are worth an Event each and no condition."""


def update(
    conditions: Sequence[Condition], findings: Findings, generation: int, now: datetime
) -> tuple[list[Condition], list[Condition]]:
    """All conditions, and those whose status or reason changed."""
    result = list(conditions)
    for type_, status, reason, message in _wanted(findings):
        result, _ = set_condition(result, type_, status, reason, message, generation=generation, now=now)
    kept = {type_ for type_, *_ in _wanted(findings)}
    for condition in list(result):
        if condition.type in OPTIONAL and condition.type not in kept:
            result, _ = remove_condition(result, condition.type)
    before = {c.type: (c.status, c.reason) for c in conditions}
    return result, [c for c in result if before.get(c.type) != (c.status, c.reason)]


def _wanted(found: Findings) -> list[tuple[str, bool, str, str]]:
    wanted = [_ready(found), _active(found), _fallback(found), _paused(found), _conflicted(found)]
    if found.capacity_unknown:
        pools = ", ".join(found.capacity_unknown)
        message = (
            f"requestsPerSecond of {pools} is not known: nothing is scaled down and the floor goes by utilization; "
            f"set spec.targets.<pool>.requestsPerSecond"
        )
        wanted.append((types.CAPACITY_UNKNOWN, True, "NotMeasured", message))
    if found.model:
        wanted.append((types.MODEL_OUTDATED, True, *found.model))
    return wanted


def _ready(found: Findings) -> tuple[str, bool, str, str]:
    if found.problems:
        return types.READY, False, found.problems[0].reason, "; ".join(_unique(p.message for p in found.problems))
    return types.READY, True, "Ready", "spec, targets, metrics and model are in order"


def _active(found: Findings) -> tuple[str, bool, str, str]:
    if found.mode != "Auto":
        text = {"Shadow": "decisions are recorded and nothing is changed: set spec.mode Auto to act"}
        return types.ACTIVE, False, f"Mode{found.mode}", text.get(found.mode, "the policy is switched off")
    if found.conflict:
        return types.ACTIVE, False, "Conflicted", found.conflict.message
    if found.paused:
        return types.ACTIVE, False, "Paused", found.paused
    if (waiting := _waiting(found.promotion)) is not None:
        return types.ACTIVE, False, *waiting
    if found.problems:
        return types.ACTIVE, False, found.problems[0].reason, "replicas are held: see the condition Ready"
    if found.placement_problem:
        return types.ACTIVE, True, *found.placement_problem
    if found.limits:
        return types.ACTIVE, True, found.limits[0].reason, "; ".join(_unique(p.message for p in found.limits))
    return types.ACTIVE, True, "Acting", "replicas and traffic weights follow the decisions"


def _waiting(promotion: PromotionStatus | None) -> Problem | None:
    """Why the actor's decisions are not written; None where they are."""
    if promotion is None or promotion.state in ("NotRequired", "Promoted"):
        return None
    why = promotion.message or "see status.promotion"
    if promotion.state == "Demoted":
        remedy = "publish another model, or set spec.mode to Shadow and back to Auto"
        return Problem("Demoted", f"the HPA formula drives the replicas: {why}; {remedy}")
    return Problem(promotion.reason or "CollectingEvidence", f"spec.promotion.require is Evidence: {why}")


def _fallback(found: Findings) -> tuple[str, bool, str, str]:
    if found.fallback:
        return types.FALLBACK, True, *found.fallback
    if found.holding:
        return types.FALLBACK, False, "Holding", "replicas are held until the fallback's failureThreshold is reached"
    return types.FALLBACK, False, "NotNeeded", "the actor decides"


def _paused(found: Findings) -> tuple[str, bool, str, str]:
    if found.paused:
        return types.PAUSED, True, "Annotated", found.paused
    return types.PAUSED, False, "NotPaused", "no pause annotation is set"


def _conflicted(found: Findings) -> tuple[str, bool, str, str]:
    if found.conflict:
        return types.CONFLICTED, True, found.conflict.reason, found.conflict.message
    text = "nobody else scales the targets"
    return types.CONFLICTED, False, "NoConflict", f"{text}; {found.declared}" if found.declared else text


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
