"""What the user fixed, as columns; the defaults are those of the custom resource."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlscaler_core.decision.columns import Column, fill
from rlscaler_core.decision.types import BEHAVIOR_RULES, Bool, FallbackBehavior, Params

PENDING_COLD_STARTS = 2.0
"""Cold starts after which a pod that is not ready counts as pending for too long, unless somebody says otherwise."""

_COLUMNS = {
    "present": Column((2,), np.bool_, True),
    "min_replicas": Column((2,), np.int32, 1),
    "max_replicas": Column((2,), np.int32, 10),
    "step_size": Column((2,), np.int32, 0),
    "cost_per_hour": Column((2,), np.float64, (2.5, 0.625)),
    "requests_per_second": Column((2,), np.float64, np.nan),
    "cold_start_seconds": Column((2,), np.float64, (45.0, 8.0)),
    "slo_ms": Column((), np.float64, 1000.0),
    "interval_seconds": Column((), np.float64, 30.0),
    "sense_seconds": Column((), np.float64, 5.0),
    "max_age_seconds": Column((), np.float64, 60.0),
    "target_utilization": Column((2,), np.float64, 0.8),
    "reactive_floor": Column((), np.bool_, True),
    "pending_seconds": Column((2,), np.float64, np.nan),
    "budget_per_hour": Column((), np.float64, np.inf),
    "fallback": Column((), np.int32, FallbackBehavior.CURRENT_REPLICAS),
    "fallback_replicas": Column((2,), np.int32, -1),
    "failure_threshold": Column((), np.int32, 3),
    "has_behavior": Column((), np.bool_, False),
    "stabilization_seconds": Column((2,), np.float64, 0.0),
    "rules": Column((2, BEHAVIOR_RULES, 3), np.float64, 0.0),
    "select_policy": Column((2,), np.int32, 0),
}


def make_params(n: int, **columns: Any) -> Params:
    """N rows of Params; every column may be a scalar, one row, or all rows (see `columns.fill`).

    Left out: `step_size` is ceil(max_replicas / 10), `fallback_replicas` is `min_replicas`, `pending_seconds` (also
    where it is NaN) two cold starts, `has_behavior` is true where a window, a rule or `select_policy` Disabled is
    given. A pool that is not `present` gets 0..0. Raises ColumnError.
    """
    filled = fill("Params", n, _COLUMNS, columns)
    for name in ("min_replicas", "max_replicas"):
        filled[name] *= filled["present"]
    by_default = np.maximum(-(-filled["max_replicas"] // 10), 1)
    pending = filled["pending_seconds"]
    filled["pending_seconds"] = np.where(np.isnan(pending), PENDING_COLD_STARTS * filled["cold_start_seconds"], pending)
    filled["step_size"] = np.where(filled["step_size"] > 0, filled["step_size"], by_default).astype(np.int32)
    asked = filled["fallback_replicas"]
    filled["fallback_replicas"] = np.where(asked >= 0, asked, filled["min_replicas"]).astype(np.int32)
    if "has_behavior" not in columns:
        windows = (filled["stabilization_seconds"] > 0).any(axis=1)
        rules = (filled["rules"][..., 0] > 0).any(axis=(1, 2))
        filled["has_behavior"] = windows | rules | (filled["select_policy"] == 2).any(axis=1)
    return Params(**filled)


def capacity_unknown(params: Params) -> Bool:
    """(N, 2): the pool is there and nobody knows yet what one replica of it carries."""
    return np.isnan(params.requests_per_second) & params.present
