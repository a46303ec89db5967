"""A live episode in figures, under the names of simulated results."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlscaler_core.decision.types import Float
from rlscaler_live.environment.config import EnvironmentConfig
from rlscaler_live.environment.meter import Spent


@dataclass(slots=True)
class Counts:
    """What was done in the episode."""

    scale_ups: int = 0
    scale_downs: int = 0
    placement_changes: int = 0
    floor_raises: int = 0
    lost_ticks: int = 0
    """Sensing ticks at which the cluster or Prometheus did not answer."""


def figures(total: Spent, counts: Counts, config: EnvironmentConfig, cost_per_hour: Float) -> dict[str, float]:
    """What the cluster's own counters say (`total`) and what was done; `cost_per_hour` (2,) of a GPU and a CPU replica.

    Late, dropped and queued requests are told apart. NaN where nothing was received.
    """
    in_time = total.within(config.slo_ms / 1000)
    late, dropped = max(0.0, total.timed - in_time), total.dropped
    queued = max(0.0, total.received - total.ended)
    seconds, received = max(total.seconds, 1e-9), max(total.received, 1.0)
    percentiles = {f"p{q}_ms": total.percentile_ms(q / 100, config.client_timeout_ms) for q in (50, 95, 99)}
    return {
        "cost": float((total.billed[0] + total.billed[1] * cost_per_hour[1] / cost_per_hour[0]) / seconds),
        "late_percent": 100 * (late + dropped + queued) / received if total.received else math.nan,
        "requests": total.received,
        "in_time": in_time,
        "late": late,
        "dropped": dropped,
        "queued": queued,
        "gpu_replica_seconds": float(total.billed[0]),
        "cpu_replica_seconds": float(total.billed[1]),
        "goodput_rps": in_time / seconds,
        **percentiles,
        "scale_ups": float(counts.scale_ups),
        "scale_downs": float(counts.scale_downs),
        "placement_changes": float(counts.placement_changes),
        "floor_raises": float(counts.floor_raises),
        "lost_ticks": float(counts.lost_ticks),
        "seconds": total.seconds,
    }
