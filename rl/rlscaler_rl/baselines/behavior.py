"""Kubernetes' default HPA v2 `behavior`, for N autoscalers at once.

Source: kubernetes/pkg/controller/podautoscaler/horizontal.go (`stabilizeRecommendationWithBehaviors`,
`convertDesiredReplicasWithBehaviorRate`, `calculateScaleUpLimitWithScalingRules`, `calculateScaleDownLimit...`)
and pkg/apis/autoscaling/v2/defaults.go. Written apart from the operator's own `behavior` guard, so that the
two check each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rlscaler_rl.decision.types import Float, Int


@dataclass(frozen=True, slots=True)
class Rule:
    """One HPA scaling policy."""

    kind: str  # "Pods" or "Percent"
    value: float
    period_seconds: float


@dataclass(frozen=True, slots=True)
class Rules:
    """`scaleUp` or `scaleDown`; `selectPolicy` is Max, HPA's default."""

    stabilization_seconds: float
    policies: tuple[Rule, ...]


DEFAULT_SCALE_UP = Rules(0.0, (Rule("Pods", 4, 15.0), Rule("Percent", 100, 15.0)))
DEFAULT_SCALE_DOWN = Rules(300.0, (Rule("Percent", 100, 15.0),))


@dataclass(slots=True)
class Log:
    """Time-stamped rows kept for `horizon_seconds`."""

    horizon_seconds: float
    times: list[float] = field(default_factory=list)
    rows: list[Int] = field(default_factory=list)

    def add(self, now: float, row: Int) -> None:
        keep = next((i for i, t in enumerate(self.times) if t > now - self.horizon_seconds), len(self.times))
        self.times, self.rows = [*self.times[keep:], now], [*self.rows[keep:], row]

    def since(self, cutoff: float) -> list[Int]:
        """Rows written strictly after `cutoff`."""
        return [row for t, row in zip(self.times, self.rows, strict=True) if t > cutoff]


class Behavior:
    """Recommendations and scale events of N x pools autoscalers, and what may be done with them.

    `limit` takes and returns arrays of one shape, here (N, 2).
    """

    def __init__(
        self, initial: Int, now: float = 0.0, up: Rules = DEFAULT_SCALE_UP, down: Rules = DEFAULT_SCALE_DOWN
    ) -> None:
        self.up, self.down = up, down
        window = max(up.stabilization_seconds, down.stabilization_seconds, 1.0)
        period = max(rule.period_seconds for rule in (*up.policies, *down.policies))
        self.recommendations = Log(window)
        self.recommendations.add(now, np.array(initial))
        self.changes = Log(period)

    def limit(self, now: float, current: Int, recommended: Int, minimum: Int, maximum: Int) -> Int:
        """The replicas that HPA would write now: stabilised, rate-limited, within [minimum, maximum]."""
        desired = self._rate_limit(now, current, self._stabilize(now, current, recommended))
        desired = np.clip(desired, minimum, maximum).astype(np.int32)
        self.changes.add(now, desired - current)
        return desired

    def _stabilize(self, now: float, current: Int, recommended: Int) -> Int:
        """Never above the lowest recommendation of the up window, never below the highest of the down window."""
        up_window = self.recommendations.since(now - self.up.stabilization_seconds)
        down_window = self.recommendations.since(now - self.down.stabilization_seconds)
        lowest = np.minimum.reduce([*up_window, recommended])
        highest = np.maximum.reduce([*down_window, recommended])
        self.recommendations.add(now, np.array(recommended))
        return np.minimum(np.maximum(current, lowest), highest).astype(np.int32)

    def _rate_limit(self, now: float, current: Int, desired: Int) -> Int:
        ceiling = np.maximum.reduce([self._up_limit(now, current, rule) for rule in self.up.policies])
        floor = np.minimum.reduce([self._down_limit(now, current, rule) for rule in self.down.policies])
        ceiling, floor = np.maximum(ceiling, current), np.minimum(floor, current)
        return np.clip(desired, floor, ceiling).astype(np.int32)

    def _up_limit(self, now: float, current: Int, rule: Rule) -> Float:
        start = self._replicas_at_period_start(now, current, rule)
        limit = start + rule.value if rule.kind == "Pods" else np.ceil(start * (1 + rule.value / 100))
        return np.asarray(limit, dtype=np.float64)

    def _down_limit(self, now: float, current: Int, rule: Rule) -> Float:
        start = self._replicas_at_period_start(now, current, rule)
        limit = start - rule.value if rule.kind == "Pods" else np.trunc(start * (1 - rule.value / 100))
        return np.asarray(limit, dtype=np.float64)

    def _replicas_at_period_start(self, now: float, current: Int, rule: Rule) -> Int:
        changes = self.changes.since(now - rule.period_seconds)
        return np.asarray(current - np.sum(changes, axis=0) if changes else current, dtype=np.int32)
