"""The ranges and probabilities that training scenarios are drawn with, and the envelope they make a policy fit for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ranges:
    """Distributions of training scenarios.

    A pair of numbers bounds a uniform draw unless its comment says otherwise.
    """

    intervals: tuple[int, ...] = (10, 15, 30, 60)
    """Action intervals in seconds. Each has its own part of the environments, see `interval_shares`."""
    durations: tuple[int, ...] = (3600, 7200)
    """Lengths of the episodes in seconds, each as frequent as the others."""
    wholly_nominal_share: float = 0.3
    """Probability of the nominal service: only the load and the initial replicas are drawn then."""
    nominal_share: float = 0.3
    """Probability with which a single column of the other services keeps its nominal value."""
    busy_share: tuple[float, float] = (0.06, 0.9)
    """Log: share of the capacity of all replicas that the busy level of a load's day needs."""
    unknown_past_share: float = 0.1
    """Probability that the operator knows nothing of the time before the episode, as after an installation."""
    one_pool_share: float = 0.2
    """Probability of a service that has only one of the two pools."""
    floor_share: float = 0.5
    """Probability of the default target of the reactive floor; otherwise the target is drawn from `floor`."""
    floor: tuple[float, float] = (0.7, 1.0)
    """Target utilization of the reactive floor."""
    slo_ms: tuple[float, float] = (50.0, 10_000.0)
    """Log: latency objective in milliseconds; the histogram of the simulator ends at 10 s."""
    gpu_rps: tuple[float, float] = (1.0, 200.0)
    """Log: requests/s of one GPU replica."""
    rps_ratio: tuple[float, float] = (1.5, 16.0)
    """Log: requests/s of a GPU replica over those of a CPU replica."""
    price_ratio: tuple[float, float] = (0.05, 1.0)
    """Log: price of a CPU replica over that of a GPU replica."""
    gpu_cold_start: tuple[float, float] = (5.0, 900.0)
    """Log: mean cold start of the GPU pool in seconds; a pod's own is drawn within `cold_start_spread` of the mean."""
    cpu_cold_start: tuple[float, float] = (4.0, 300.0)
    """Log: mean cold start of the CPU pool in seconds."""
    cold_start_spread: float = 0.3
    """Largest difference of a pod's cold start from the mean, relative to the mean."""
    min_replicas: int = 1
    """Least replicas of every pool that the service has; training tells an absent pool by its 0 replicas."""
    max_replicas: tuple[int, int] = (2, 64)
    """Log: most replicas of a pool."""
    default_step_share: float = 0.7
    """Probability of the default step size, a tenth of `max_replicas`."""
    step_part: tuple[float, float] = (0.03, 0.25)
    """Another step size over `max_replicas`."""
    scrape: tuple[int, ...] = (2, 2, 5, 10, 15, 30)
    """Seconds between two scrapes, one of these."""
    delay: tuple[int, int] = (0, 15)
    """Whole seconds until a scraped sample can be queried."""
    believed_error: float = 0.4
    """Largest difference of the true capacity of a replica from the declared one, relative to the latter."""
    exact_share: float = 0.3
    """Probability that the capacity is as declared."""
    drift: tuple[float, float] = (0.0, 0.25)
    """Relative amplitude by which the capacity swings within a day, in `drift_share` of the services."""
    drift_share: float = 0.5
    fall: tuple[float, float] = (0.1, 0.4)
    """Part of the capacity that is lost in the middle of an episode, in `fall_share` of the services."""
    fall_share: float = 0.1
    priced_share: float = 0.7
    """Probability that a start costs as much as an image pull and a drain; otherwise it is free."""


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
        "max_replicas": {pool: list(map(float, ranges.max_replicas)) for pool in ("gpu", "cpu")},
        "price_ratio": [1 / ranges.price_ratio[1], 1 / ranges.price_ratio[0]],
        "interval_seconds": [float(min(ranges.intervals)), float(max(ranges.intervals))],
        "rps_ratio": list(ranges.rps_ratio),
        "lag_seconds": [0.0, float(ranges.delay[1] + max(ranges.scrape))],
        "units": {"requests": None},
        "signals": ["endToEnd"],
    }
