"""Kubernetes' HPA v2 `behavior`, for N autoscalers at once, each with rules of its own.

Source: kubernetes/pkg/controller/podautoscaler/horizontal.go (`stabilizeRecommendationWithBehaviors`,
`convertDesiredReplicasWithBehaviorRate`, `calculateScaleUpLimitWithScalingRules`, `calculateScaleDownLimit...`)
and pkg/apis/autoscaling/v2/defaults.go. It was written apart from the operator's own `behavior` guard, so that the
two check each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float, Int
from rlscaler_rl.baselines.contender import Value, column

MAX, MIN, DISABLED = 0, 1, 2
"""`selectPolicy`: the rule that allows the most change, the one that allows the least, no change at all."""

_NONE = 1_000_000_000


@dataclass(frozen=True, slots=True)
class HpaPolicy:
    """One HPAScalingPolicy of Kubernetes; values are scalars or (N,)."""

    kind: str  # "Pods" or "Percent"
    value: Value
    period_seconds: Value


@dataclass(frozen=True, slots=True)
class HpaRules:
    """The HPAScalingRules of one direction, `scaleUp` or `scaleDown`; values are scalars or (N,)."""

    stabilization_seconds: Value
    policies: tuple[HpaPolicy, ...]
    select: Value = MAX


DEFAULT_SCALE_UP = HpaRules(0.0, (HpaPolicy("Pods", 4, 15.0), HpaPolicy("Percent", 100, 15.0)))
DEFAULT_SCALE_DOWN = HpaRules(300.0, (HpaPolicy("Percent", 100, 15.0),))


@dataclass(slots=True)
class SlidingWindow:
    """Time-stamped rows of the last `horizon_seconds`."""

    horizon_seconds: float
    times: list[float] = field(default_factory=list)
    rows: list[NDArray[Any]] = field(default_factory=list)

    def add(self, now: float, row: NDArray[Any]) -> None:
        keep = next((i for i, t in enumerate(self.times) if t > now - self.horizon_seconds), len(self.times))
        self.times, self.rows = [*self.times[keep:], now], [*self.rows[keep:], row]

    def since(self, cutoff: Value, otherwise: float) -> list[NDArray[Any]]:
        """Rows as far as they were written strictly after `cutoff` (per row), `otherwise` elsewhere."""
        return [np.where(t > column(cutoff, row), row, otherwise) for t, row in zip(self.times, self.rows, strict=True)]


class HpaBehavior:
    """Recommendations and scale events of N x pools autoscalers, and the limits on them.

    `limit` takes and returns arrays of one shape with N rows, here (N, 2).
    """

    def __init__(
        self,
        initial: Int,
        now: float = 0.0,
        up: HpaRules = DEFAULT_SCALE_UP,
        down: HpaRules = DEFAULT_SCALE_DOWN,
    ) -> None:
        self.up, self.down = up, down
        # One window for both directions, at least a second long, so that the last recommendation is in it.
        window = max(np.max(up.stabilization_seconds), np.max(down.stabilization_seconds), 1.0)
        period = max(np.max(rule.period_seconds) for rule in (*up.policies, *down.policies))
        self.recommendations = SlidingWindow(float(window))
        self.recommendations.add(now, np.array(initial))
        self.changes = SlidingWindow(float(period))

    def limit(self, now: float, current: Int, recommended: Int, minimum: Int, maximum: Int) -> Int:
        """The replicas that HPA would write now: stabilised, rate-limited, within [minimum, maximum]."""
        desired = self._rate_limit(now, current, self._stabilize(now, current, recommended))
        desired = np.clip(desired, minimum, maximum).astype(np.int32)
        self.changes.add(now, desired - current)
        return desired

    def _stabilize(self, now: float, current: Int, recommended: Int) -> Int:
        """Never above the lowest recommendation of the up window, never below the highest of the down window."""
        up_window = self.recommendations.since(now - np.asarray(self.up.stabilization_seconds), _NONE)
        down_window = self.recommendations.since(now - np.asarray(self.down.stabilization_seconds), -_NONE)
        lowest = np.minimum.reduce([*up_window, recommended])
        highest = np.maximum.reduce([*down_window, recommended])
        self.recommendations.add(now, np.array(recommended))
        return np.minimum(np.maximum(current, lowest), highest).astype(np.int32)

    def _rate_limit(self, now: float, current: Int, desired: Int) -> Int:
        ceiling = self._selected([self._up_limit(now, current, rule) for rule in self.up.policies], current, self.up)
        floors = [-self._down_limit(now, current, rule) for rule in self.down.policies]
        floor = -self._selected(floors, -current, self.down)
        # Rules limit changes; they never force one.
        ceiling, floor = np.maximum(ceiling, current), np.minimum(floor, current)
        return np.clip(desired, floor, ceiling).astype(np.int32)

    def _selected(self, limits: list[Float], current: Int, rules: HpaRules) -> Float:
        """The one of the limits that `selectPolicy` names; a larger limit allows more change."""
        select = column(rules.select, current)
        allowed = np.where(select == MIN, np.minimum.reduce(limits), np.maximum.reduce(limits))
        return np.where(select == DISABLED, current, allowed)

    def _up_limit(self, now: float, current: Int, rule: HpaPolicy) -> Float:
        start, value = self._replicas_at_period_start(now, current, rule), column(rule.value, current)
        # Kubernetes rounds percentages up for more replicas, and truncates for fewer.
        limit = start + value if rule.kind == "Pods" else np.ceil(np.round(start * (1 + value / 100), 9))
        return np.asarray(limit, dtype=np.float64)

    def _down_limit(self, now: float, current: Int, rule: HpaPolicy) -> Float:
        start, value = self._replicas_at_period_start(now, current, rule), column(rule.value, current)
        limit = start - value if rule.kind == "Pods" else np.trunc(np.round(start * (1 - value / 100), 9))
        return np.asarray(limit, dtype=np.float64)

    def _replicas_at_period_start(self, now: float, current: Int, rule: HpaPolicy) -> Int:
        changes = self.changes.since(now - np.asarray(rule.period_seconds), 0)
        return np.asarray(current - np.sum(changes, axis=0) if changes else current, dtype=np.int32)
