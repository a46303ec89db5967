"""Making the tables of the decision function: `Params`, `Samples` and `State`, from scalars, rows or columns.

The defaults of `Params` are those of the custom resource. In `Samples` nothing is known unless it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import PREFERENCE
from rlscaler_core.decision.exceptions import ColumnError
from rlscaler_core.decision.forecaster.memory import nothing_learned
from rlscaler_core.decision.types import (
    BEHAVIOR_RULES,
    BELIEF,
    EVENTS,
    HEADROOM,
    OBSERVATIONS,
    PEAKS,
    RATE_HISTORY,
    SIGNALS,
    TRIAL,
    Bool,
    FallbackBehavior,
    Float,
    Params,
    Placement,
    Samples,
    State,
)
from rlscaler_core.decision.units import LatencySignal, LoadUnit


class Column(NamedTuple):
    """Shape after the leading N, dtype and default of one field; a field whose default is None must be given."""

    trailing: tuple[int, ...]
    dtype: type
    default: Any


def fill(table: str, n: int, columns: Mapping[str, Column], given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return every column as a writable array of its own, of shape (n, *trailing).

    `given` is broadcast against that shape: a scalar, one row's shape, or the full column; one number a row
    for a two-column field is (n, 1). Raises ColumnError for an unknown, missing or misshapen column.
    """
    unknown = sorted(set(given) - set(columns))
    if unknown:
        raise ColumnError(f"{table}: no column {', '.join(unknown)}; there are {', '.join(columns)}")
    filled: dict[str, NDArray[Any]] = {}
    for name, (trailing, dtype, default) in columns.items():
        value = given.get(name, default)
        if value is None:
            raise ColumnError(f"{table}.{name}: has no default; pass an array of shape {(n, *trailing)}")
        try:
            column: NDArray[Any] = np.empty((n, *trailing), dtype)
            column[...] = value
            filled[name] = column
        except ValueError as error:
            raise ColumnError(f"{table}.{name}: does not fit the shape {(n, *trailing)}: {error}") from error
    return filled


PENDING_COLD_STARTS = 2.0
"""Cold starts after which a pod that is not ready counts as pending for too long, where the spec does not say."""

DRAIN_SECONDS, PULLS = 30.0, 2.0
"""Seconds until a pod that leaves is gone, Kubernetes' default, and the pull of an image over a cold start after it."""


def start_seconds(cold_start: Float) -> Float:
    """Return the seconds of its price that a start costs beside the time that the pod is there.

    A node pulls the image before the pod is counted, and a pod that leaves is billed while it drains.
    """
    return DRAIN_SECONDS + PULLS * cold_start


_PARAMS = {
    "present": Column((2,), np.bool_, True),
    "min_replicas": Column((2,), np.int32, 1),
    "max_replicas": Column((2,), np.int32, 10),
    "step_size": Column((2,), np.int32, 0),
    "cost_per_hour": Column((2,), np.float64, (2.5, 0.625)),
    "unit": Column((), np.int32, LoadUnit.REQUESTS),
    "stream": Column((), np.bool_, False),
    "requests_per_second": Column((2,), np.float64, np.nan),
    "cold_start_seconds": Column((2,), np.float64, (45.0, 8.0)),
    "start_seconds": Column((2,), np.float64, np.nan),
    "slo_ms": Column((), np.float64, 1000.0),
    "slo_signal": Column((), np.int32, LatencySignal.END_TO_END),
    "objective": Column((), np.float64, 0.99),
    "interval_seconds": Column((), np.float64, 15.0),
    "sense_seconds": Column((), np.float64, 5.0),
    "window_seconds": Column((), np.float64, 0.0),
    "usage_seconds": Column((), np.float64, 0.0),
    "learns_capacity": Column((), np.bool_, False),
    "max_age_seconds": Column((), np.float64, 60.0),
    "target_utilization": Column((2,), np.float64, 0.8),
    "reactive_floor": Column((), np.bool_, True),
    "ceiling": Column((), np.bool_, True),
    "ceiling_seconds": Column((), np.float64, 600.0),
    "pending_seconds": Column((2,), np.float64, np.nan),
    "routed": Column((), np.bool_, False),
    "split_by_load": Column((), np.bool_, True),
    "budget_per_hour": Column((), np.float64, np.inf),
    "fallback": Column((), np.int32, FallbackBehavior.FORECAST_RULE),
    "fallback_replicas": Column((2,), np.int32, -1),
    "failure_threshold": Column((), np.int32, 3),
    "has_behavior": Column((), np.bool_, False),
    "stabilization_seconds": Column((2,), np.float64, 0.0),
    "rules": Column((2, BEHAVIOR_RULES, 3), np.float64, 0.0),
    "select_policy": Column((2,), np.int32, 0),
}


def make_params(n: int, **columns: Any) -> Params:
    """Make N rows of Params; every column may be a scalar, one row, or all rows (see `fill`).

    Defaults: `step_size` is ceil(max_replicas / 10), `fallback_replicas` is `min_replicas`, `pending_seconds` (also
    where it is NaN) is two cold starts, `start_seconds` (likewise) is as the function of that name returns it, and
    `has_behavior` is true where a window, a rule or `select_policy` Disabled is given. A pool that is not `present`
    gets 0..0. Raises ColumnError.
    """
    filled = fill("Params", n, _PARAMS, columns)
    for name in ("min_replicas", "max_replicas"):
        filled[name] *= filled["present"]
    by_default = np.maximum(-(-filled["max_replicas"] // 10), 1)
    pending = filled["pending_seconds"]
    filled["pending_seconds"] = np.where(np.isnan(pending), PENDING_COLD_STARTS * filled["cold_start_seconds"], pending)
    starts = filled["start_seconds"]
    filled["start_seconds"] = np.where(np.isnan(starts), start_seconds(filled["cold_start_seconds"]), starts)
    filled["step_size"] = np.where(filled["step_size"] > 0, filled["step_size"], by_default).astype(np.int32)
    fallback = filled["fallback_replicas"]
    filled["fallback_replicas"] = np.where(fallback >= 0, fallback, filled["min_replicas"]).astype(np.int32)
    if "has_behavior" not in columns:
        windows = (filled["stabilization_seconds"] > 0).any(axis=1)
        rules = (filled["rules"][..., 0] > 0).any(axis=(1, 2))
        filled["has_behavior"] = windows | rules | (filled["select_policy"] == 2).any(axis=1)
    return Params(**filled)


def capacity_unknown(params: Params) -> Bool:
    """Return where (N, 2) a pool is present and the capacity of its replicas is not known yet."""
    return np.isnan(params.requests_per_second) & params.present


_SENSED = {
    "arrival_rate": "arrival_rate",
    "cpu_utilization": "cpu_utilization",
    "memory_utilization": "memory_utilization",
    "gpu_utilization": "gpu_utilization",
    "p95_ms": "p95_latency",
    "spec_replicas": "replicas",
}

_MEASURED = [name for name in _SENSED if name != "spec_replicas"]
"""The measured columns of `Samples`, in the column order of `Samples.age_seconds`."""

_SAMPLES = {
    "time": Column((), np.float64, 0.0),
    **{name: Column((), np.float64, np.nan) for name in _MEASURED},
    "age_seconds": Column((len(SIGNALS),), np.float64, np.inf),
    "spec_replicas": Column((2,), np.int32, None),
    "ready_replicas": Column((2,), np.int32, None),
    "pending_seconds": Column((2,), np.float64, 0.0),
    "stuck_replicas": Column((2,), np.int32, -1),
    "paused": Column((), np.bool_, False),
    "paused_replicas": Column((2,), np.int32, -1),
    "paused_scale_down": Column((), np.bool_, False),
    "granted_replicas": Column((2,), np.int32, -1),
    "counted_requests": Column((), np.float64, np.nan),
    "counted_late": Column((), np.float64, np.nan),
    "lag_messages": Column((), np.float64, np.nan),
    "partitions": Column((), np.int32, 0),
    "settling": Column((), np.bool_, False),
    "processed": Column((), np.float64, np.nan),
}


def make_samples(n: int, **columns: Any) -> Samples:
    """Make N rows of Samples; `spec_replicas` and `ready_replicas` are required.

    Where `age_seconds` is left out, a signal that was given counts as sampled just now (age 0) and one that
    was not as never seen (NaN, age inf). Raises ColumnError.
    """
    filled = fill("Samples", n, _SAMPLES, columns)
    if "age_seconds" not in columns:
        for name, signal in _SENSED.items():
            if name in columns:
                filled["age_seconds"][:, SIGNALS.index(signal)] = 0.0
    return Samples(**filled)


def known(params: Params, samples: Samples) -> Bool:
    """Return where (N, len(SIGNALS)) a signal is a finite number >= 0 and not older than `max_age_seconds`."""
    values = np.array([getattr(samples, name) for name in _MEASURED])
    is_known = samples.age_seconds <= params.max_age_seconds[:, None]
    is_known[:, : len(_MEASURED)] &= ((values >= 0) & (values < np.inf)).T
    return is_known


def arrivals_known(params: Params, samples: Samples) -> Bool:
    """Return where (N,) the arrival rate is known, for a sensing tick that needs no other signal."""
    rate = samples.arrival_rate
    return (rate >= 0) & (rate < np.inf) & (samples.age_seconds[:, 0] <= params.max_age_seconds)


def initial_state(n: int, stack_size: int, history: int = RATE_HISTORY, *, forecaster: bool = True) -> State:
    """Make N rows that remember nothing; `stack_size` is the k of the actor's manifest, `history` the rates kept.

    Without `forecaster` nothing is learned of the load, which is quicker where nothing asks for it.
    """
    none = (n, 2, EVENTS)
    recent, calendar = nothing_learned(n)
    columns = slice(None) if forecaster else slice(0)
    return State(
        rate_time=np.full((n, history), np.nan),
        rate_value=np.full((n, history), np.nan),
        peak_time=np.full((n, PEAKS), np.nan),
        peak_value=np.full((n, PEAKS), np.nan),
        stack=np.zeros((n, stack_size, len(OBSERVATIONS)), np.float32),
        stacked=np.zeros(n, np.int32),
        unknown_intervals=np.zeros(n, np.int32),
        placement=np.full(n, Placement.BALANCED, np.int32),
        preference=np.full(n, PREFERENCE.max()),
        weights=np.full((n, 2), 500, np.int32),
        budget_kept=np.full(n, np.inf),
        floor_hold=np.zeros((n, 2), np.int32),
        event_time=np.full(none, np.nan),
        event_change=np.zeros(none, np.int32),
        recommendation_time=np.full(none, np.nan),
        recommendation=np.zeros(none, np.int32),
        write_time=np.full((n, 2), np.nan),
        write_base=np.zeros((n, 2), np.int32),
        write_desired=np.zeros((n, 2), np.int32),
        load_recent=recent[:, columns],
        load_calendar=calendar[:, columns],
        counted_requests=np.zeros(n),
        counted_late=np.zeros(n),
        counted_time=np.full(n, np.nan),
        counted_slo_ms=np.full(n, np.nan),
        price_factor=np.ones(n),
        belief=np.full((n, BELIEF), np.nan),
        headroom=np.full((n, HEADROOM), np.nan),
        trial=np.full((n, TRIAL), np.nan),
    )
