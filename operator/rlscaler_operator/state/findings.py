"""Findings of a tick about a policy, and the conditions that follow from them. Pure.

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
from rlscaler_core.decision.units import LOADS, UnitName
from rlscaler_operator.state.keda import REASON as KEDA_FALLBACK
from rlscaler_operator.state.ownership import Conflict

OPTIONAL = (types.CAPACITY_UNKNOWN, types.CAPACITY_BELOW_DECLARED, types.MODEL_OUTDATED)
"""Conditions that are absent where there is nothing to say."""

NOT_ACTING = "NotActing"
"""Reason of `Conflicted` False where something else scales the targets and the policy does not act."""

Mode = Literal["Off", "Shadow", "Auto"]


class Problem(NamedTuple):
    """Something that keeps a policy from being Ready, or its traffic weights from being written."""

    reason: str
    message: str


@dataclass(slots=True)
class Findings:
    """The findings of one tick about a policy."""

    mode: Mode = "Shadow"
    problems: list[Problem] = field(default_factory=list)
    """Why the policy cannot decide; the first one names the condition's reason."""
    weights_problem: Problem | None = None
    acts: bool = False
    """Whether decisions are to be written by mode and promotion."""
    other: Conflict | None = None
    """The other scaler of the targets: a policy that does not act is compared with it."""
    by_cpu: str = ""
    """The HorizontalPodAutoscaler of KEDA that goes by CPU in place of this policy's recommendation."""
    sized_by: dict[str, Conflict] = field(default_factory=dict)
    """By pool, the other sizer of pods that the policy should size: they are left alone."""
    waiting: str = ""
    """The newer policies that name a target of this one."""
    operator: str = ""
    """Lease of another operator that looks at the policy and holds."""
    declared: str = ""
    """The tools that own the targets' replicas without having set them back so far."""
    paused: str = ""
    """The annotations that hold the replicas; empty = none."""
    fallback: Problem | None = None
    """Why the fallback acts."""

    outside: str = ""
    """Number of the service that is outside the envelope of the model; empty where none is."""
    holding: bool = False
    """Replicas are held until the fallback acts."""
    limits: list[Problem] = field(default_factory=list)
    """Guards that keep the pools from the requested replicas: the cost per hour, pods that do not come up."""
    off: list[Problem] = field(default_factory=list)
    """Pools that another writer has turned off by 0 replicas."""
    all_off: bool = False
    """There is no pool left to scale."""
    model: Problem | None = None
    """Why the model that is named is not the one that decides; an older one goes on."""
    promotion: PromotionStatus | None = None
    """Whether a policy in Auto may act."""
    capacity_unknown: tuple[str, ...] = ()
    """Pools whose capacity is not known."""
    capacity_fields: tuple[str, ...] = ()
    """The fields of the spec that say it, for each of them."""
    capacity_below: Problem | None = None
    """The capacity that was measured and is below the declared one."""
    unit: UnitName = "requests"
    """The unit of the load."""
    warnings: list[Problem] = field(default_factory=list)
    """Problems that are worth an Event each and no condition."""

    @property
    def conflict(self) -> Conflict | None:
        """The conflict that keeps a policy that should act from writing."""
        return self.other if self.acts else None


def update(
    conditions: Sequence[Condition], findings: Findings, generation: int, now: datetime
) -> tuple[list[Condition], list[Condition]]:
    """Return all conditions, and those whose status or reason changed."""
    result = list(conditions)
    for type_, status, reason, message in _wanted(findings):
        result, _ = set_condition(result, type_, status, reason, message, generation=generation, now=now)
    wanted = {type_ for type_, *_ in _wanted(findings)}
    for condition in list(result):
        if condition.type in OPTIONAL and condition.type not in wanted:
            result, _ = remove_condition(result, condition.type)
    # A new message alone is no change.
    before = {c.type: (c.status, c.reason) for c in conditions}
    return result, [c for c in result if before.get(c.type) != (c.status, c.reason)]


def _wanted(findings: Findings) -> list[tuple[str, bool, str, str]]:
    wanted = [_ready(findings), _active(findings), _fallback(findings), _paused(findings), _conflicted(findings)]
    if findings.capacity_unknown:
        pools = ", ".join(findings.capacity_unknown)
        fields = " and ".join(f"spec.{name}" for name in findings.capacity_fields)
        message = (
            f"how many {LOADS[findings.unit]} a replica of {pools} carries is not known yet: it is measured under "
            "load, and until then nothing is scaled down and the floor goes by utilization; to begin sooner set "
            f"{fields}"
        )
        wanted.append((types.CAPACITY_UNKNOWN, True, "NotMeasured", message))
    if findings.capacity_below:
        wanted.append((types.CAPACITY_BELOW_DECLARED, True, *findings.capacity_below))
    if findings.model:
        wanted.append((types.MODEL_OUTDATED, True, *findings.model))
    return wanted


def _ready(findings: Findings) -> tuple[str, bool, str, str]:
    if findings.problems:
        return types.READY, False, findings.problems[0].reason, "; ".join(_unique(p.message for p in findings.problems))
    return types.READY, True, "Ready", "spec, targets, metrics and model are in order"


def _active(findings: Findings) -> tuple[str, bool, str, str]:
    if findings.mode != "Auto":
        text = {"Shadow": "decisions are recorded and nothing is changed: set spec.mode Auto to act"}
        return types.ACTIVE, False, f"Mode{findings.mode}", text.get(findings.mode, "the policy is switched off")
    if findings.conflict:
        return types.ACTIVE, False, "Conflicted", findings.conflict.message
    if findings.paused:
        return types.ACTIVE, False, "Paused", findings.paused
    if findings.all_off:
        return types.ACTIVE, False, "ScalingDisabled", "; ".join(problem.message for problem in findings.off)
    if (waiting := _waiting(findings)) is not None:
        return types.ACTIVE, False, *waiting
    if findings.problems:
        return types.ACTIVE, False, findings.problems[0].reason, "replicas are held: see the condition Ready"
    if findings.weights_problem:
        return types.ACTIVE, True, *findings.weights_problem
    if limits := findings.off + findings.limits:
        return types.ACTIVE, True, limits[0].reason, "; ".join(_unique(p.message for p in limits))
    return types.ACTIVE, True, "Acting", "replicas and traffic weights follow the decisions"


def _waiting(findings: Findings) -> Problem | None:
    """Return why the actor's decisions are not written; None where they are."""
    promotion = findings.promotion
    if promotion is None or promotion.state in ("NotRequired", "Promoted"):
        return None
    why = promotion.message or "see status.promotion"
    if promotion.state == "Demoted":
        remedy = "publish another model, or set spec.mode to Shadow and back to Auto"
        return Problem("Demoted", f"the HPA formula drives the replicas: {why}; {remedy}")
    meanwhile = "until then the replicas stay as they are: no other autoscaler of the targets is seen"
    if findings.other:
        meanwhile = f"{findings.other.fact} and is compared with: keep it until then"
    return Problem(promotion.reason or "CollectingEvidence", f"spec.promotion.require is Evidence: {why}; {meanwhile}")


def _fallback(findings: Findings) -> tuple[str, bool, str, str]:
    if findings.fallback:
        return types.FALLBACK, True, *findings.fallback
    if findings.holding:
        return types.FALLBACK, False, "Holding", "replicas are held until the fallback's failureThreshold is reached"
    if findings.outside:
        return types.FALLBACK, False, "OutOfEnvelope", f"{findings.outside}: the forecast rule alone decides"
    return types.FALLBACK, False, "NotNeeded", "the actor decides"


def _paused(findings: Findings) -> tuple[str, bool, str, str]:
    if findings.paused:
        return types.PAUSED, True, "Annotated", findings.paused
    return types.PAUSED, False, "NotPaused", "no pause annotation is set"


def _conflicted(findings: Findings) -> tuple[str, bool, str, str]:
    if findings.conflict:
        message = findings.conflict.message
        if findings.promotion is not None and findings.promotion.state == "Promoted":
            message = f"{findings.conflict.fact}, and the evidence for this policy is there: {findings.conflict.remedy}"
        return types.CONFLICTED, True, findings.conflict.reason, message
    if findings.by_cpu:
        return types.CONFLICTED, True, KEDA_FALLBACK, findings.by_cpu
    reason, text = "NoConflict", "nothing else scales the targets"
    if findings.waiting:
        reason = "NewerPolicyExists"
        text = f"RLScalingPolicy {findings.waiting} names a target of this policy and waits: delete one of them"
    if findings.operator:
        reason = "OtherOperatorHolds"
        text = (
            f"the operator of Lease {findings.operator} looks at this policy too and changes nothing: take the "
            "namespace out of watchNamespaces of one of the two, or uninstall it"
        )
    if findings.other:
        reason, text = NOT_ACTING, f"{findings.other.fact}: this policy patches nothing and is compared with it"
    return types.CONFLICTED, False, reason, f"{text}; {findings.declared}" if findings.declared else text


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
