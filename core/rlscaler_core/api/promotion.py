"""Comparison of a policy with the scaling that runs without it: `status.promotion` of RLScalingPolicy v1alpha1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlscaler_core.api.base import Reported, Text, Time, Word

EVIDENCE_DAYS = 91
"""Days kept in `status.promotion.evidence`: the longest `minDays` and today."""


class MeasuredDay(Reported):
    """Measurements of a day beside the model's figures for the replicas that really ran."""

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
    """Date of the day, in UTC."""
    hours: Annotated[float, Field(ge=0)]
    """Hours that were compared."""
    requests: Annotated[float, Field(ge=0)]
    """Requests that arrived."""
    cost: Annotated[float, Field(ge=0)]
    """Cost of the policy's replicas, in currency units."""
    other_cost: Annotated[float, Field(ge=0)]
    """Cost of the other side's replicas."""
    late: Annotated[float, Field(ge=0)]
    """Requests that were late under the policy, by the model."""
    other_late: Annotated[float, Field(ge=0)]
    """Requests that were late on the other side, by the model."""
    measured: MeasuredDay | None = None
    """The model's figures beside measured ones."""
    capacity_factor: Annotated[float, Field(gt=0)] | None = None
    """Load that a replica carries in the model over its stated capacity, as learned by the end of the day; absent =
    1."""


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
    """Comparison of the policy with the scaling that runs without it, and whether the policy may act."""

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
    """Verdict of the evidence."""
    against: Literal["Running", "HPAFormula"] | None = None
    """The other side: the replicas that really run or, while the policy acts, a virtual service under the HPA
    formula."""
    regret: Regret | None = None
    """Regret of the days that count."""
    basis: Word | None = None
    """Basis of the evidence, a digest for each part that decisions read. Another basis begins anew."""
    evidence: list[EvidenceDay] = Field(default_factory=list, max_length=EVIDENCE_DAYS)
    """The comparison day by day, oldest first."""
