"""What an episode of one service is worth: cost and lateness in one number, whatever the service's size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.baselines.contender import cheapest_mix
from rlscaler_rl.evaluation.service_tuning.service import Service
from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.episode import LATE_WEIGHT, Result

NOMINAL_COST = 6.25
"""GPU replica equivalents that carry the demo's peak of 100 requests/s at 80 %: what `LATE_WEIGHT` is relative to."""

NOMINAL_OBJECTIVE = 99.0
UTILIZATION = 0.8


@dataclass(frozen=True, slots=True)
class Score:
    """J of one service: cost in the demo's size + late_weight x percent late."""

    size: float
    """`NOMINAL_COST` over what carries the history's peak here: the same trade-off for a service of any size."""

    late_weight: float
    """Per percent. slo.objective 99 gives the general weight; half the error budget, twice the weight."""

    def j(self, result: Result) -> Float:
        """(N,); lower is better."""
        return np.asarray(self.size * result.cost + self.late_weight * result.late_percent)

    def reward(self, spent: objectives.Counters, norms: objectives.Norms, changed: Float) -> Float:
        """(N,) an `Objective`: minus an interval's share of J, and a small price on changes."""
        size = self.size * LATE_WEIGHT / self.late_weight
        scaled = replace(norms, size=np.full(len(norms.size), size))
        return objectives.slo_cost(spent, scaled, changed) * (self.late_weight / LATE_WEIGHT)


def score_of(service: Service, peak_rps: float) -> Score:
    """`peak_rps`: the load that the service is built for, the 99th percentile of its history."""
    mix = cheapest_mix(service.params, np.array([peak_rps / UTILIZATION]))[0]
    cost = float(mix[0] + service.price_ratio * mix[1])
    weight = LATE_WEIGHT * (100 - NOMINAL_OBJECTIVE) / (100 - service.objective)
    return Score(size=NOMINAL_COST / cost, late_weight=weight)
