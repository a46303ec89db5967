"""KEDA with its Prometheus scaler on the request rate, one ScaledObject per pool.

KEDA hands the rate to an HPA as an external metric with an AverageValue target, so the tolerance, the sync period
and the default `behavior` are HPA's. Source: https://keda.sh/docs/latest/concepts/scaling-deployments/.
"""

from __future__ import annotations

from rlscaler_rl.baselines.hpa import DEFAULT_UTILIZATION, Hpa, average_value_replicas
from rlscaler_rl.decision.types import Int, Samples, State


class KedaRequestRate(Hpa):
    """Threshold: `target` of one replica's capacity. Metric: the requests a second that are routed to the pool."""

    def __init__(self, target: float = DEFAULT_UTILIZATION) -> None:
        super().__init__(target)

    def recommend(self, samples: Samples, state: State, current: Int) -> Int:
        pool_rate = samples.arrival_rate[:, None] * state.weights / 1000.0
        threshold = self.target * self.params.requests_per_second
        return average_value_replicas(current, pool_rate, threshold)
