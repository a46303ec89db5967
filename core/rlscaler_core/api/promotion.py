"""How a policy compares with what runs without it, day by day: `status.promotion` of RLScalingPolicy v1alpha1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlscaler_core.api.base import Reported, Text, Time, Word

EVIDENCE_DAYS = 91
"""Days kept in `status.promotion.evidence`: the longest `minDays` and today."""


class MeasuredDay(Reported):
    """What was measured on a day beside what the model made of the replicas that really ran."""

    requests: Annotated[float, Field(ge=0)]
    """Requests received."""
    late: Annotated[float, Field(ge=0)]
    """Of them late, at least: as far as the histogram's bounds tell."""
    late_at_most: Annotated[float, Field(ge=0)]
    """Of them late, at most."""
    modelled_requests: Annotated[float, Field(ge=0)]
    """Requests in the model in the same windows."""
    modelled_late: Annotated[float, Field(ge=0)]
    """Of them late in the model."""
    windows: Annotated[int, Field(ge=0)]
    """Windows in which a latency was measured."""
    agreeing: Annotated[int, Field(ge=0)]
    """Of them windows in which the model's 95th percentile agreed."""


class EvidenceDay(Reported):
    """One day (UTC) of the comparison; today's still grows."""

    date: Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    """Which."""
    hours: Annotated[float, Field(ge=0)]
    """Hours that were compared."""
    requests: Annotated[float, Field(ge=0)]
    """Requests that arrived."""
    cost: Annotated[float, Field(ge=0)]
    """What the policy's replicas cost, in currency units."""
    other_cost: Annotated[float, Field(ge=0)]
    """What the other side's replicas cost."""
    late: Annotated[float, Field(ge=0)]
    """Requests that were late under the policy, by the model."""
    other_late: Annotated[float, Field(ge=0)]
    """Requests that were late on the other side, by the model."""
    measured: MeasuredDay | None = None
    """How the model compares with what was measured."""


class RegretInterval(Reported):
    """Mean over days and its confidence sequence; the bounds are absent until enough days are there."""

    mean: float
    """Below 0 the policy is better."""
    low: float | None = None
    """Lower bound."""
    high: float | None = None
    """Upper bound."""


class Regret(Reported):
    """The policy against the other side, day by day."""

    cost_percent: RegretInterval | None = None
    """Cost, in % of the other side's."""
    late_points: RegretInterval | None = None
    """Share of requests that are late, in percentage points."""


class PromotionStatus(Reported):
    """How the policy compares with what runs without it, and whether it may act."""

    state: Literal["NotRequired", "Collecting", "Ready", "Promoted", "Demoted"]
    """`NotRequired` (acts without evidence), `Collecting` evidence, `Ready` (in Shadow: Auto would act), `Promoted`
    (acts), or `Demoted` (the HPA formula drives the replicas)."""
    since: Time
    """When this state began."""
    days: Annotated[int, Field(ge=0)] | None = None
    """Days that count as evidence."""
    reason: Word | None = None
    """Why, in one CamelCase word."""
    message: Text | None = None
    """What the evidence says."""
    against: Literal["Running", "HPAFormula"] | None = None
    """The other side: what really runs, or, while the policy acts, a virtual service that follows the HPA formula."""
    regret: Regret | None = None
    """Of the days that count."""
    basis: Word | None = None
    """What the evidence was collected for: model, service and SLO. Another one begins anew."""
    evidence: list[EvidenceDay] = Field(default_factory=list, max_length=EVIDENCE_DAYS)
    """The comparison day by day, oldest first."""
