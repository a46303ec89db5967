"""Conditions with the semantics of apimachinery's `meta.SetStatusCondition`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from rlscaler_core.api.status import Condition

READY = "Ready"
ACTIVE = "Active"
FALLBACK = "Fallback"
PAUSED = "Paused"
CONFLICTED = "Conflicted"
CAPACITY_UNKNOWN = "CapacityUnknown"
CAPACITY_BELOW_DECLARED = "CapacityBelowDeclared"
MODEL_OUTDATED = "ModelOutdated"

MEANING = {
    READY: "the policy is valid, its Deployments and metrics are there, and it can decide",
    ACTIVE: "decisions change the Deployments: Auto, not paused, conflicted, demoted or short of evidence",
    FALLBACK: "the fallback acts instead of the actor",
    PAUSED: "an annotation holds the replicas",
    CONFLICTED: "another autoscaler or person scales a target, so it is not touched",
    CAPACITY_UNKNOWN: "what one replica can answer is unknown: nothing is scaled down, the floor goes by utilization",
    CAPACITY_BELOW_DECLARED: "a replica carries less than the spec says, as measured: decisions go by the measurement",
    MODEL_OUTDATED: "the model that the spec names cannot be used, and the one that was loaded before goes on",
}
"""Meaning of each type of condition when it is True."""


def find_condition(conditions: Iterable[Condition], type: str) -> Condition | None:
    """Find the condition of this type; None where there is none."""
    return next((condition for condition in conditions if condition.type == type), None)


def is_true(conditions: Iterable[Condition], type: str) -> bool:
    """Return whether the condition exists and holds."""
    condition = find_condition(conditions, type)
    return condition is not None and condition.status == "True"


def set_condition(
    conditions: Iterable[Condition],
    type: str,
    status: bool | Literal["True", "False", "Unknown"],
    reason: str,
    message: str = "",
    *,
    generation: int | None = None,
    now: datetime | None = None,
) -> tuple[list[Condition], bool]:
    """Return the conditions with this one added or replaced in place, and whether anything changed.

    `lastTransitionTime` moves to `now` only when `status` changes.
    """
    result = list(conditions)
    old = find_condition(result, type)
    if isinstance(status, bool):
        status = "True" if status else "False"
    since = (now or datetime.now(UTC)).replace(microsecond=0)
    if old is not None and old.status == status:
        since = old.last_transition_time
    new = Condition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
    if old is None:
        return [*result, new], True
    result[result.index(old)] = new
    return result, new != old


def remove_condition(conditions: Iterable[Condition], type: str) -> tuple[list[Condition], bool]:
    """Return the conditions without this one, and whether it was there."""
    before = list(conditions)
    after = [condition for condition in before if condition.type != type]
    return after, len(after) != len(before)
