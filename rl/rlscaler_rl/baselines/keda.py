"""KEDA with its Prometheus scaler on the request rate, one ScaledObject per pool.

KEDA hands the rate to an HPA as an external metric with an AverageValue target, so tolerance, sync period and
`behavior` (advanced.horizontalPodAutoscalerConfig) are HPA's.
Source: https://keda.sh/docs/latest/concepts/scaling-deployments/.
"""

from __future__ import annotations

from rlscaler_core.decision.types import Int, Samples, State
from rlscaler_rl.baselines.hpa import Hpa, average_value_replicas
from rlscaler_rl.baselines.settings import column


class KedaRequestRate(Hpa):
    """Threshold: `target` of one replica's capacity. Metric: the requests a second that are routed to the pool."""

    def recommend(self, samples: Samples, state: State, current: Int) -> Int:
        pool_rate = samples.arrival_rate[:, None] * state.weights / 1000.0
        threshold = self.target * self.params.requests_per_second
        return average_value_replicas(current, pool_rate, threshold, column(self.settings.tolerance))
