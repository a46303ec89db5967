"""What one sensing tick measured, as columns; nothing is known unless it was given."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlscaler_core.decision.columns import Column, fill
from rlscaler_core.decision.types import SIGNALS, Bool, Params, Samples

_SENSED = {
    "arrival_rate": "arrival_rate",
    "cpu_utilization": "cpu_utilization",
    "memory_utilization": "memory_utilization",
    "gpu_utilization": "gpu_utilization",
    "p95_ms": "p95_latency",
    "spec_replicas": "replicas",
}

_MEASURED = [name for name in _SENSED if name != "spec_replicas"]
"""In the column order of `Samples.age_seconds`."""

_COLUMNS = {
    "time": Column((), np.float64, 0.0),
    **{name: Column((), np.float64, np.nan) for name in _MEASURED},
    "age_seconds": Column((len(SIGNALS),), np.float64, np.inf),
    "spec_replicas": Column((2,), np.int32, None),
    "ready_replicas": Column((2,), np.int32, None),
    "pending_seconds": Column((2,), np.float64, 0.0),
    "time_in_episode": Column((), np.float64, 0.0),
    "paused": Column((), np.bool_, False),
    "paused_replicas": Column((2,), np.int32, -1),
    "paused_scale_down": Column((), np.bool_, False),
}


def make_samples(n: int, **columns: Any) -> Samples:
    """N rows of Samples; `spec_replicas` and `ready_replicas` are required.

    Where `age_seconds` is left out, a signal that was given counts as sampled just now (age 0) and one that
    was not as never seen (NaN, age inf). Raises ColumnError.
    """
    filled = fill("Samples", n, _COLUMNS, columns)
    if "age_seconds" not in columns:
        for name, signal in _SENSED.items():
            if name in columns:
                filled["age_seconds"][:, SIGNALS.index(signal)] = 0.0
    return Samples(**filled)


def known(params: Params, samples: Samples) -> Bool:
    """(N, len(SIGNALS)): the signal is a finite number >= 0 and not older than `max_age_seconds`."""
    values = np.array([getattr(samples, name) for name in _MEASURED])
    is_known = samples.age_seconds <= params.max_age_seconds[:, None]
    is_known[:, : len(_MEASURED)] &= ((values >= 0) & (values < np.inf)).T
    return is_known


def arrivals_known(params: Params, samples: Samples) -> Bool:
    """(N,): the arrival rate alone, for the sensing tick."""
    rate = samples.arrival_rate
    return (rate >= 0) & (rate < np.inf) & (samples.age_seconds[:, 0] <= params.max_age_seconds)
