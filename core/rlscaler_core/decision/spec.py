"""The part of a policy's spec that can be tuned for a load, whichever actor it is around."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Int, Params


@dataclass(frozen=True, slots=True)
class SpecSettings:
    """Every field is one value for all rows, or one a row; None leaves the spec as it is."""

    interval_seconds: Float | float | None = None
    """Seconds between two actions; the driver of the episodes keeps to it, `with_spec` only writes it down."""
    min_replicas: Int | tuple[int, int] | None = None
    """The fewest replicas, (N, 2) or a pair, where they are more than the spec's."""
    reactive_floor: Bool | bool | None = None
    target_utilization: Float | float | None = None
    """Utilization of both pools that the floor keeps, as a fraction."""
    scale_up_window_seconds: Float | float | None = None
    scale_down_window_seconds: Float | float | None = None
    objective: Float | float | None = None
    """Share of the requests to be in time, which steers the price of lateness."""


UNCHANGED = SpecSettings()


def spec_of(controller: object) -> SpecSettings:
    """Return the fields of the spec that a controller sets: its `spec`, nothing where it has none."""
    spec: SpecSettings = getattr(controller, "spec", UNCHANGED)
    return spec


def with_spec(params: Params, chosen: SpecSettings) -> Params:
    """Return the policy's spec (N rows) with the changes of the settings; `params` itself stays as it is."""
    changed = params.copy()
    if chosen.interval_seconds is not None:
        changed.interval_seconds[:] = chosen.interval_seconds
    if chosen.reactive_floor is not None:
        changed.reactive_floor[:] = chosen.reactive_floor
    if chosen.target_utilization is not None:
        target = np.asarray(chosen.target_utilization, np.float64)
        changed.target_utilization[:] = target[:, None] if target.ndim else target
    if chosen.min_replicas is not None:
        raised = np.maximum(params.min_replicas, np.asarray(chosen.min_replicas, np.int32))
        changed.min_replicas[:] = np.minimum(raised, params.max_replicas)
    if chosen.objective is not None:
        changed.objective[:] = chosen.objective
    for direction, window in enumerate((chosen.scale_up_window_seconds, chosen.scale_down_window_seconds)):
        if window is not None:
            changed.stabilization_seconds[:, direction] = window
    changed.has_behavior |= (changed.stabilization_seconds > 0).any(axis=1)
    return changed
