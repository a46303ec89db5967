"""The `behavior` of HorizontalPodAutoscaler v2: stabilization windows and rate limits.

Follows pkg/controller/podautoscaler/horizontal.go (stabilizeRecommendationWithBehaviors,
convertDesiredReplicasWithBehaviorRate) of Kubernetes 1.34. Differences: a direction without rules is not
limited (the HPA fills in its own defaults), and only scale events that were seen in `spec.replicas` count.
Everything here is skipped where no row has a `behavior`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.situation import Recommendation, Situation
from rlscaler_core.decision.types import BEHAVIOR_RULES, Bool, Float, Int, Params, Samples, State

UP, DOWN = 0, 1
PODS, PERCENT = 1, 2
MIN, DISABLED = 1, 2
UNLIMITED = np.int32(1_000_000_000)
MAX_PERIOD_SECONDS = 1800.0
"""The longest `periodSeconds` that the HPA API takes."""

MAX_WINDOW_SECONDS = 3600.0
"""The longest `stabilizationWindowSeconds` that the HPA API takes."""

Rows = NDArray[np.intp]


def apply_behavior(now: Situation, desired: Int) -> Int:
    """The guard: `desired` (N, 2) within the windows and rates.

    At a sensing tick between two actions they only limit how far the floor may raise.
    """
    params, samples = now.params, now.samples
    if not params.has_behavior.any():
        return desired
    now.state = note_writes(params, now.state, samples)
    highest = scale_up_limit(params, now.state, samples)
    now.limit = np.minimum(highest, now.limit)
    if now.doubt is None:
        now.recommendation = Recommendation(desired, np.zeros(desired.shape, np.bool_))
        return desired
    now.recommendation = Recommendation(desired, np.ones(desired.shape, np.bool_))
    return limited(params, now.state, samples, desired, highest)


def remember_decision(now: Situation, desired: Int) -> None:
    """Remember the recommendation for the stabilization windows, and the coming write for the rate limits."""
    if now.recommendation is not None:
        now.state = remember(now.params, now.state, now.samples, *now.recommendation)
        now.state = expect_write(now.params, now.state, now.samples, desired)


def scale_up_limit(params: Params, state: State, samples: Samples) -> Int:
    """Return the most replicas (N, 2) that the `scaleUp` rules allow now; UNLIMITED without a `behavior`."""
    limit = np.full(samples.spec_replicas.shape, UNLIMITED)
    rows = np.flatnonzero(params.has_behavior)
    if rows.size:
        highest = _rate_limit(params, state, samples, rows, UP)
        limit[rows] = np.maximum(highest, samples.spec_replicas[rows])
    return limit


def limited(params: Params, state: State, samples: Samples, desired: Int, highest: Int | None = None) -> Int:
    """Return `desired` (N, 2) after the stabilization windows and the rate limits.

    `highest` is the answer of `scale_up_limit`, where the caller has it already.
    """
    rows = np.flatnonzero(params.has_behavior)
    if not rows.size:
        return desired
    if highest is None:
        highest = scale_up_limit(params, state, samples)
    current = samples.spec_replicas[rows]
    stable = _stabilized(params, state, samples, rows, current, desired[rows])
    lowest = np.minimum(_rate_limit(params, state, samples, rows, DOWN), current)
    result = desired.copy()
    result[rows] = np.clip(stable, lowest, highest[rows])
    return result


def steady_arrivals(params: Params, state: State, samples: Samples, arrivals: Float) -> Float:
    """Return the lowest arrival rate (N,) of the `scaleUp` stabilization window, the only one the floor may serve."""
    rows = np.flatnonzero(params.has_behavior & (params.stabilization_seconds[:, UP] > 0))
    if not rows.size:
        return arrivals
    age = samples.time[rows, None] - state.rate_time[rows]
    within = age < params.stabilization_seconds[rows, UP, None]
    lowest = np.where(within, state.rate_value[rows], np.inf).min(axis=1)
    steady = arrivals.copy()
    steady[rows] = np.minimum(steady[rows], lowest)
    return steady


def _stabilized(params: Params, state: State, samples: Samples, rows: Rows, current: Int, desired: Int) -> Int:
    """Move `current` (R, 2) no further up than the lowest recent recommendation, nor further down than the highest."""
    age = samples.time[rows, None, None] - state.recommendation_time[rows]
    value = state.recommendation[rows]
    window = params.stabilization_seconds[rows]
    lowest = np.where(age < window[:, UP, None, None], value, UNLIMITED).min(axis=2)
    highest = np.where(age < window[:, DOWN, None, None], value, -UNLIMITED).max(axis=2)
    return np.clip(current, np.minimum(lowest, desired), np.maximum(highest, desired))


def _rate_limit(params: Params, state: State, samples: Samples, rows: Rows, direction: int) -> Int:
    """Return the replicas (R, 2) that the direction's rules allow, not yet bounded by the current replicas."""
    current = samples.spec_replicas[rows]
    sign = 1 if direction == UP else -1
    rules = params.rules[rows, direction]
    select = params.select_policy[rows, direction, None]
    narrowest = select == MIN
    furthest = np.full(current.shape, -np.inf)
    nearest = np.full(current.shape, np.inf)
    for index in range(BEHAVIOR_RULES):
        kind, value, period = (rules[:, index, column, None] for column in range(3))
        if not kind.any():
            continue
        start = current - _net_change(state, samples, rows, period)
        percent = start * (1 + sign * value / 100)
        percent = np.ceil(percent - 1e-9) if direction == UP else np.trunc(percent + 1e-9)
        proposed = sign * np.where(kind == PODS, start + sign * value, percent)
        furthest = np.where(kind > 0, np.maximum(furthest, proposed), furthest)
        nearest = np.where(kind > 0, np.minimum(nearest, proposed), nearest)
    allowed = np.where(narrowest, nearest, furthest)
    allowed = np.where(np.isfinite(allowed), sign * allowed, sign * UNLIMITED)
    return np.where(select == DISABLED, current, allowed).astype(np.int32)


def _net_change(state: State, samples: Samples, rows: Rows, period: Float) -> Int:
    """Return the replicas (R, 2) added less those removed within the last `period` (R, 1) seconds."""
    age = samples.time[rows, None, None] - state.event_time[rows]
    recent = np.where(age < period[:, :, None], state.event_change[rows], 0)
    return np.asarray(np.sum(recent, axis=2), np.int32)


def note_writes(params: Params, state: State, samples: Samples) -> State:
    """Make the last decision a scale event where `spec.replicas` now shows that it was written."""
    if not params.has_behavior.any():
        return state
    waiting = ~np.isnan(state.write_time) & (state.write_desired != state.write_base)
    written = waiting & (samples.spec_replicas == state.write_desired) & params.has_behavior[:, None]
    if not written.any():
        return state
    times, changes = state.event_time.copy(), state.event_change.copy()
    row, pool = np.nonzero(written)
    slot = _free_slot(times, changes, row, pool, samples.time[row])
    times[row, pool, slot] = state.write_time[written]
    changes[row, pool, slot] = (state.write_desired - state.write_base)[written]
    settled = np.where(written, state.write_desired, state.write_base)
    return replace(state, event_time=times, event_change=changes, write_base=settled)


def _free_slot(times: Float, changes: Int, row: Rows, pool: Rows, now: Float) -> Rows:
    """Find a slot (M,) for one more event; a full list gives up its oldest, whose change joins the next oldest."""
    age = now[:, None] - times[row, pool]
    key = np.where(np.isnan(age) | (age >= MAX_PERIOD_SECONDS), np.inf, age)
    slot = np.asarray(np.argmax(key, axis=1))
    full = np.flatnonzero(np.isfinite(key[np.arange(len(row)), slot]))
    if full.size:
        key[full, slot[full]] = -np.inf
        heir = key[full].argmax(axis=1)
        changes[row[full], pool[full], heir] += changes[row[full], pool[full], slot[full]]
    return slot


def expect_write(params: Params, state: State, samples: Samples, desired: Int) -> State:
    """Remember this decision until it is seen written; one that changes nothing leaves an earlier one waiting."""
    if not params.has_behavior.any():
        return state
    changes = (desired != samples.spec_replicas) & params.has_behavior[:, None]
    return replace(
        state,
        write_time=np.where(changes, samples.time[:, None], state.write_time),
        write_base=np.where(changes, samples.spec_replicas, state.write_base),
        write_desired=np.where(changes, desired, state.write_desired),
    )


def remember(params: Params, state: State, samples: Samples, recommendation: Int, given: Bool) -> State:
    """Add the recommendations (N, 2) where `given` (N, 2), as they were before stabilization.

    One slot a value suffices: of two equal recommendations the older never decides. When more values than slots
    are in the windows, the oldest that is neither the lowest nor the highest goes.
    """
    given = given & params.has_behavior[:, None]
    row, pool = np.nonzero(given)
    if not row.size:
        return state
    times, values = state.recommendation_time.copy(), state.recommendation.copy()
    new = recommendation[row, pool]
    age, value = samples.time[row, None] - times[row, pool], values[row, pool]
    live = age < MAX_WINDOW_SECONDS
    lowest = np.where(live, value, UNLIMITED).min(axis=1, keepdims=True)
    highest = np.where(live, value, -UNLIMITED).max(axis=1, keepdims=True)
    priority = np.where(live, age, MAX_WINDOW_SECONDS)
    priority = np.where(live & ((value == lowest) | (value == highest)), -1.0, priority)
    priority = np.where(live & (value == new[:, None]), np.inf, priority)
    slot = priority.argmax(axis=1)
    times[row, pool, slot] = samples.time[row]
    values[row, pool, slot] = new
    return replace(state, recommendation_time=times, recommendation=values)
