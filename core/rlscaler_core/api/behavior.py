"""Limits on how fast replicas may change: `spec.behavior`, in the names and shapes of HorizontalPodAutoscaler v2."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlscaler_core.api.base import Model
from rlscaler_core.decision.types import BEHAVIOR_RULES


class ScalingPolicy(Model):
    """One limit on how far replicas may move within a period."""

    type: Literal["Pods", "Percent"]
    """Unit of `value`: `Pods` = replicas, `Percent` = % of the replicas at the start of the period."""
    value: Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"format": "int32"})]
    """The most replicas (`Pods`) or % (`Percent`) by which a Deployment may move within the period."""
    period_seconds: Annotated[int, Field(ge=1, le=1800)]
    """Length of the period in seconds."""


class ScalingRules(Model):
    """Limits in one direction. A field that is left out sets no limit (HPA would put its own defaults there)."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] = 0
    """Seconds of past recommendations that are looked at: scaling down goes to their highest, scaling up to their
    lowest. 0 = act on the newest (HPA's default of 300 s downwards does not apply here)."""
    select_policy: Literal["Max", "Min", "Disabled"] = "Max"
    """Choice among several policies: the one that allows the most change (`Max`), the least (`Min`), or no scaling in
    this direction at all (`Disabled`)."""
    policies: Annotated[list[ScalingPolicy], Field(min_length=1, max_length=BEHAVIOR_RULES)] | None = None
    """Limits on the rate of change; default: none beyond the action's own of two steps an interval."""


class Behavior(Model):
    """Limits on how fast replicas may change, applied to the actor's proposals and to the reactive floor."""

    scale_up: ScalingRules | None = None
    """Limits on scaling up; default: none."""
    scale_down: ScalingRules | None = None
    """Limits on scaling down; default: none."""
