"""The ranges and probabilities that training scenarios are drawn with, and the envelope they make a policy fit for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ranges:
    """What training scenarios are drawn from.

    A pair of numbers bounds a uniform draw unless its comment says otherwise.
    """

    intervals: tuple[int, ...] = (10, 15, 30, 60)
    """Action intervals in seconds. Each has its own part of the environments, see `interval_shares`."""
    durations: tuple[int, ...] = (300, 600, 900, 1200)
    """Lengths of the episodes in seconds, each as frequent as the others."""
    wholly_nominal_share: float = 0.35
    """Probability of the nominal service: only the load and the initial replicas are drawn then."""
    nominal_share: float = 0.5
    """Probability with which a single column of the other services keeps its nominal value."""
    trace_share: float = 0.25
    """Probability of a recorded load, where recorded loads are given."""
    trace_scale: tuple[float, float] = (0.3, 1.5)
    """Factor on a recorded load, log-uniform; it is 1 with probability `nominal_load_share`."""
    nominal_load_share: float = 0.5
    """Probability of the demo's own load levels and phases."""
    burst_share: float = 0.1
    """Probability of a load that jumps between a low rate and bursts of random length and height."""
    steady_share: float = 0.15
    """Probability of a load that stays where it is: without it an actor learns that every quiet service is about to
    be busy."""
    idle_share: float = 0.2
    """Share of the steady loads that have no requests at all."""
    steady: tuple[float, float] = (0.0, 0.5)
    """Rate of a steady load over the capacity of all replicas that may exist."""
    one_pool_share: float = 0.15
    """Probability of a service that has only one of the two pools."""
    floor_share: float = 0.5
    """Probability of the default target of the reactive floor; otherwise the target is drawn from `floor`."""
    floor: tuple[float, float] = (0.7, 1.0)
    """Target utilization of the reactive floor."""
    slo_ms: tuple[float, float] = (200.0, 2000.0)
    """Latency objective in milliseconds."""
    gpu_rps: tuple[float, float] = (12.0, 30.0)
    """Requests/s of one GPU replica."""
    rps_ratio: tuple[float, float] = (2.0, 12.0)
    """Requests/s of a GPU replica over those of a CPU replica."""
    price_ratio: tuple[float, float] = (0.1, 0.6)
    """Price of a CPU replica over that of a GPU replica."""
    gpu_cold_start: tuple[float, float] = (10.0, 120.0)
    """Mean cold start of the GPU pool in seconds; each pod's own is drawn within `cold_start_spread` of the mean."""
    cpu_cold_start: tuple[float, float] = (4.0, 60.0)
    """Mean cold start of the CPU pool in seconds."""
    cold_start_spread: float = 0.3
    """Largest difference of a pod's cold start from the mean, relative to the mean."""
    min_replicas: int = 1
    """Least replicas of every pool that the service has; training tells an absent pool by its 0 replicas."""
    max_replicas: tuple[int, int] = (5, 20)
    """Most replicas of a pool."""
    peak: tuple[float, float] = (0.15, 0.85)
    """Highest rate of a load over the capacity of all replicas that may exist."""
    valley: tuple[float, float] = (0.02, 0.6)
    """Lowest rate of a load over its highest."""
    scrape: tuple[int, ...] = (2, 2, 5, 10, 15)
    """Seconds between two scrapes, one of these."""
    delay: tuple[int, int] = (0, 15)
    """Whole seconds until a scraped sample can be queried."""
    believed_error: float = 0.1
    """Largest relative error of the capacity that the operator assumes."""


RANGES = Ranges()

INTERVAL_WEIGHTS = {10: 0.1, 15: 0.25, 30: 0.5, 60: 0.15}
"""Weight of an action interval in seconds when the environments are divided; 30 s is the custom resource's default."""


def interval_shares(ranges: Ranges) -> list[float]:
    """(len(ranges.intervals),) shares of the environments, in proportion to `INTERVAL_WEIGHTS`.

    An interval that is not named there has the weight 0.25.
    """
    weights = [INTERVAL_WEIGHTS.get(interval, 0.25) for interval in ranges.intervals]
    return [weight / sum(weights) for weight in weights]


def envelope(ranges: Ranges = RANGES) -> dict[str, Any]:
    """The trained envelope that the manifest states, [low, high] for each entry; its price ratio is GPU over CPU."""
    return {
        "slo_ms": list(ranges.slo_ms),
        "cold_start_seconds": {"gpu": list(ranges.gpu_cold_start), "cpu": list(ranges.cpu_cold_start)},
        "price_ratio": [1 / ranges.price_ratio[1], 1 / ranges.price_ratio[0]],
        "interval_seconds": [float(min(ranges.intervals)), float(max(ranges.intervals))],
        "rps_ratio": list(ranges.rps_ratio),
        "lag_seconds": [0.0, float(ranges.delay[1] + max(ranges.scrape))],
    }
