"""The HorizontalPodAutoscaler of Kubernetes: one per pool, on its utilization, with everything its spec can set.

Source: https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#algorithm-details and
kubernetes/pkg/controller/podautoscaler/replica_calculator.go (`GetResourceReplicas`,
`GetExternalPerPodMetricReplicas`).
Not modelled: the `cpu-initialization-period`, during which a pod that just became ready is still counted as unready
until its first full metrics window; it makes the real HPA a little slower on the CPU pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Int, Params, Placement, Samples, State
from rlscaler_rl.baselines.behavior import DEFAULT_SCALE_DOWN, DEFAULT_SCALE_UP, HpaBehavior, HpaRules
from rlscaler_rl.baselines.contender import Pair, PeriodicContender, Value, column, pools

TOLERANCE = 0.1
SYNC_SECONDS = 15.0
DEFAULT_UTILIZATION = 0.8
LAG_THRESHOLD = 10
"""KEDA's own for Kafka: messages that may wait for each consumer."""
DOWN_SECONDS = 300.0
"""Kubernetes' own: how long an HPA keeps the highest number that it needed."""


def utilization_replicas(
    current: Int, ready: Int, utilization: Float, target: Value, tolerance: Value = TOLERANCE
) -> Int:
    """HPA's recommendation from the mean utilization of the ready pods.

    Shapes: all (..., ) alike. `utilization` and `target` in the same unit; NaN utilization (no metric, no ready pod)
    keeps `current`. Pods not ready count as idle when scaling up and are left out when scaling down; a result that
    turns the direction around, or lies within the tolerance of the target, keeps `current`.
    """
    unready = np.maximum(current - ready, 0)
    ratio = utilization / target
    scale_up_with_unready = (unready > 0) & (ratio > 1.0)
    counted = ready + np.where(scale_up_with_unready, unready, 0)
    diluted = np.where(scale_up_with_unready, ratio * ready / np.maximum(counted, 1), ratio)
    # 9 digits: a product such as 2.0000000000000004 must not cost a replica.
    proposal = np.ceil(np.round(diluted * counted, 9))
    # With unready pods counted as idle the direction may turn around; Kubernetes then does nothing.
    keep = _within(tolerance, diluted) | (scale_up_with_unready & (diluted < 1.0))
    keep |= scale_up_with_unready & (proposal < current)
    keep |= ~np.isfinite(ratio) | (ready <= 0)
    return np.where(keep, current, np.nan_to_num(proposal)).astype(np.int32)


def average_value_replicas(current: Int, value: Float, target_per_pod: Value, tolerance: Value = TOLERANCE) -> Int:
    """HPA's recommendation from an external metric with an AverageValue target, as KEDA sets it up.

    `value` is the pool's total; pods not ready are not treated apart. NaN keeps `current`.
    """
    ratio = value / (target_per_pod * np.maximum(current, 1))
    proposal = np.ceil(np.round(value / target_per_pod, 9))
    keep = _within(tolerance, ratio) | ~np.isfinite(ratio)
    return np.where(keep, current, np.nan_to_num(proposal)).astype(np.int32)


def _within(tolerance: Value, ratio: Float) -> Bool:
    return np.asarray(np.abs(1.0 - ratio) <= np.asarray(tolerance) + 1e-9)


@dataclass(frozen=True, slots=True)
class HpaSettings:
    """An HPA per pool: its spec, and how traffic is split between the pools. Defaults are Kubernetes' own."""

    target: Pair = DEFAULT_UTILIZATION
    """Fraction of the pods' requests (or of a replica's capacity, for a request rate)."""

    tolerance: Value = TOLERANCE
    min_replicas: Pair = 0
    """Replicas that raise the policy's own minimum."""

    scaled: Pair = True
    """False: no HPA for this pool, it keeps its replicas."""

    up: HpaRules = DEFAULT_SCALE_UP
    down: HpaRules = DEFAULT_SCALE_DOWN
    placement: Value = Placement.BALANCED


class Hpa(PeriodicContender):
    """One HPA per pool: CPU utilization for the CPU pool, GPU utilization for the GPU pool."""

    period_seconds = SYNC_SECONDS
    own_metrics = True

    def __init__(self, settings: HpaSettings | None = None) -> None:
        self.settings = settings or HpaSettings()
        self.split, self.min_replicas = self.settings.placement, self.settings.min_replicas

    def reset(self, params: Params) -> None:
        super().reset(params)
        self.behavior: HpaBehavior | None = None
        self.target = pools(self.settings.target, len(params))
        self.scaled = pools(self.settings.scaled, len(params)).astype(np.bool_)

    def size(self, samples: Samples, state: State) -> Int:
        current = np.asarray(samples.spec_replicas, dtype=np.int32)
        if self.behavior is None:
            self.behavior = HpaBehavior(current, float(samples.time[0]), self.settings.up, self.settings.down)
        recommended = self.recommend(samples, state, current)
        limited = self.behavior.limit(
            float(samples.time[0]), current, recommended, self.lowest, self.params.max_replicas
        )
        return np.where(self.scaled, limited, current)

    def recommend(self, samples: Samples, state: State, current: Int) -> Int:
        """Replicas per pool before `behavior`, (N, 2)."""
        utilization = np.stack([samples.gpu_utilization, samples.cpu_utilization], axis=1)
        tolerance = column(self.settings.tolerance)
        return utilization_replicas(current, samples.ready_replicas, utilization, 100 * self.target, tolerance)


class KedaRequestRate(Hpa):
    """KEDA with its Prometheus scaler on the request rate, one ScaledObject per pool.

    KEDA hands the rate to an HPA as an external metric with an AverageValue target, so tolerance, sync period and
    `behavior` (advanced.horizontalPodAutoscalerConfig) are the HPA's. The metric is the requests/s that are routed to
    the pool, the threshold is the fraction `target` of one replica's capacity.
    Source: https://keda.sh/docs/latest/concepts/scaling-deployments/.
    """

    own_metrics = False

    def recommend(self, samples: Samples, state: State, current: Int) -> Int:
        # Weights are thousandths.
        pool_rate = samples.arrival_rate[:, None] * state.weights / 1000.0
        threshold = self.target * self.params.requests_per_second
        return average_value_replicas(current, pool_rate, threshold, column(self.settings.tolerance))


class KedaKafkaLag(Hpa):
    """KEDA with its Kafka scaler on a group's lag: ceil(messages that wait / `lagThreshold`), at most the partitions.

    KEDA hands the lag to an HPA as an external metric with an AverageValue target, so tolerance, sync period and
    `behavior` are the HPA's. The HPA has the lag measured at each of its syncs: KEDA's `pollingInterval` counts between
    0 and 1 replica, and for a trigger with `useCachedMetrics`. Consumers are the CPU pool.
    Source: https://keda.sh/docs/latest/scalers/apache-kafka/ and kedacore/keda/pkg/scalers/kafka_scaler.go.
    """

    def __init__(self, lag_threshold: Value = LAG_THRESHOLD, stabilization_seconds: Value = DOWN_SECONDS) -> None:
        """`lag_threshold`: messages that may wait for each consumer; `stabilization_seconds`: how long the number that
        was needed is kept, `behavior.scaleDown.stabilizationWindowSeconds`. One value for all rows, or (N,).
        """
        super().__init__(HpaSettings(down=replace(DEFAULT_SCALE_DOWN, stabilization_seconds=stabilization_seconds)))
        self.lag_threshold = lag_threshold

    def recommend(self, samples: Samples, state: State, current: Int) -> Int:
        # More consumers than partitions would read nothing, so KEDA caps the lag at as many thresholds.
        lag = np.minimum(samples.lag_messages, self.lag_threshold * samples.partitions)
        value = np.stack([np.full(len(lag), np.nan), lag], axis=1)
        return average_value_replicas(current, value, column(self.lag_threshold), column(self.settings.tolerance))
