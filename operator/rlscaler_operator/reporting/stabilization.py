"""Memory of `behavior`, floor and forecaster across restarts: from the decision state to the status, and back. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np

from rlscaler_core.api.headroom import HeadroomStatus
from rlscaler_core.api.status import CapacityStatus, PlacementStatus
from rlscaler_core.api.status_memory import EXPIRIES, Expiry, Stabilization, StabilizationPool
from rlscaler_core.decision import headroom as headrooms
from rlscaler_core.decision.belief import resume
from rlscaler_core.decision.forecaster.memory import sound
from rlscaler_core.decision.forecaster.storage import from_text
from rlscaler_core.decision.types import EVENTS, POOLS, Float, Int, Params, State
from rlscaler_core.decision.units import UNITS
from rlscaler_operator.state.status import PLACEMENTS


def to_status(state: State, params: Params, now: float, replicas: Mapping[str, int]) -> Stabilization | None:
    """Return the first row of the state; None where there is no `behavior`, no cost per hour and no floor in force.

    `replicas` are the present ones by pool.
    """
    pools = {}
    keep = float(params.stabilization_seconds[0].max())
    period = float(params.rules[0, :, :, 2].max())
    for i, pool in enumerate(POOLS):
        recommendations = changes = []
        if params.has_behavior[0]:
            recommendations = _expiries(state.recommendation_time[0, i], state.recommendation[0, i], keep, now)
            times, values = state.event_time[0, i], state.event_change[0, i]
            base, desired = int(state.write_base[0, i]), int(state.write_desired[0, i])
            # A write that the replicas show is a change already; the decision state counts it only at the next tick.
            if np.isfinite(state.write_time[0, i]) and base != desired == replicas.get(pool):
                times, values = np.append(times, state.write_time[0, i]), np.append(values, desired - base)
            changes = _expiries(times, values, period, now)
        floor = int(state.floor_hold[0, i]) or None
        if recommendations or changes or floor:
            pools[pool] = StabilizationPool(recommendations=recommendations, changes=changes, floor=floor)
    cost = float(state.budget_kept[0])
    per_hour = cost if math.isfinite(cost) else None
    return Stabilization(**pools, budget_per_hour=per_hour) if pools or per_hour is not None else None


def restore(state: State, params: Params, remembered: Stabilization | None, now: float) -> State:
    """Fill `state` in place with the memory of a former process, and return it; expired entries are left out.

    An entry that would last for longer than a whole window comes from a clock that was ahead: it counts as made `now`.
    """
    keep = float(params.stabilization_seconds[0].max())
    period = float(params.rules[0, :, :, 2].max())
    if remembered is not None and remembered.budget_per_hour is not None:
        state.budget_kept[0] = remembered.budget_per_hour
    for i, pool in enumerate(POOLS):
        entry = getattr(remembered, pool, None)
        if entry is None:
            continue
        # Behind the recommendations of this process, which are newer.
        free = int(np.isnan(state.recommendation_time[0, i]).argmax())
        _fill(
            state.recommendation_time[0, i, free:], state.recommendation[0, i, free:], entry.recommendations, keep, now
        )
        _fill(state.event_time[0, i], state.event_change[0, i], entry.changes, period, now)
        state.floor_hold[0, i] = entry.floor or 0
    return state


def restore_placement(state: State, placement: PlacementStatus | None) -> None:
    """Restore the traffic preference and the weights in place: a restart moves no traffic."""
    if placement is not None:
        state.placement[0] = PLACEMENTS.index(placement.preference)
        if placement.factor is not None:
            state.preference[0] = placement.factor
        state.weights[0] = placement.weights.gpu, placement.weights.cpu


def restore_capacity(state: State, params: Params, status: CapacityStatus | None, now: float) -> None:
    """Restore the belief about a replica's capacity in place, unless the spec declares another one since."""
    if status is None or status.unit != UNITS[params.unit[0]]:
        return
    columns = [
        [math.nan if value is None else value for value in (getattr(part, "gpu", None), getattr(part, "cpu", None))]
        for part in (status, status.declared, status.uncertain_percent)
    ]
    if status.uncertain_percent is not None:
        value, declared, percent = np.array(columns, np.float64)[:, None, :]
        resume(params, state, value, declared, percent, now)


def restore_headroom(state: State, status: HeadroomStatus | None, digest: str | None) -> None:
    """Restore the headroom in place that the network of this sha256 had made."""
    if status is None:
        return
    pools = [getattr(status, pool) for pool in POOLS]
    percent = np.array([math.nan if pool is None else pool.percent for pool in pools])
    since = np.array([math.nan if pool is None or pool.since is None else pool.since.timestamp() for pool in pools])
    headrooms.resume(state, percent, since, headrooms.model_number(digest or ""))


def restore_forecaster(state: State, text: str | None) -> None:
    """Restore the forecaster of a former process in place. Raises ForecasterStateError where it cannot be read."""
    if text:
        state.load_recent, state.load_calendar = sound(*from_text(text))


def _expiries(times: Float, values: Int, keep_seconds: float, now: float) -> list[Expiry]:
    alive = np.flatnonzero(times + keep_seconds > now)
    newest = alive[np.argsort(-times[alive])][:EXPIRIES]
    return [
        Expiry(value=int(values[i]), expires=datetime.fromtimestamp(float(times[i]) + keep_seconds, UTC))
        for i in newest
    ]


def _fill(times: Float, values: Int, entries: list[Expiry], keep_seconds: float, now: float) -> None:
    alive = [e for e in entries if now < e.expires.timestamp()] if keep_seconds > 0 else []
    for i, entry in enumerate(alive[: min(EVENTS, len(times))]):
        times[i], values[i] = min(entry.expires.timestamp() - keep_seconds, now), entry.value
