"""The error budget: the late requests that the objective still allows, and the price of lateness that follows.

Of the requests of about 30 days `1 - objective` may be late. Counts are kept with exponential forgetting, so that two
numbers suffice. The forecast rule's price of lateness is multiplied by a factor that follows the share of the error
budget that is left: below 1 where much is left, above 1 where little is. It moves slowly, within bounds, and only where
requests were counted: an unknown count changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlscaler_core.decision.tables import arrivals_known
from rlscaler_core.decision.types import Bool, Float, Params, Samples, State

MEMORY_SECONDS = 15 * 86400.0
"""After it a counted request counts for 1/e: requests are as old in the mean as those of a window of 30 days."""

LEAST_ALLOWED = 5.0
"""Late requests that the objective has to allow among those counted; with fewer, one more or less would decide."""

LOWEST_FACTOR, HIGHEST_FACTOR = 1 / 8, 16.0
"""Bounds of the factor. Beyond them the forecast rule's quantiles are at their own bounds by day."""

AMPLE = 0.5
"""Share of the budget left from which on the factor is the lowest. The other half is kept for jumps that nothing
announces, which no price prevents."""

SECONDS_TO_HALVE, SECONDS_TO_DOUBLE = 86400.0, 6 * 3600.0
"""The least time in which the factor falls to half, and in which it grows to twice: it saves sooner than it spends."""

LONGEST_SECONDS = 600.0
"""A longer gap between two counts moves the factor no further than this one, and where requests may have arrived in it
the share of the error budget that is left is not known."""


def count(params: Params, state: State, samples: Samples) -> State:
    """Remember the requests that were counted since the last tick, and let the factor follow the budget.

    Rows without a count stay as they are to the last bit; nothing that is passed in is changed. Counts of another
    latency, from before `slo_ms` was edited, are dropped.
    """
    requests, late = samples.counted_requests, samples.counted_late
    fresh = (requests > 0) & (late >= 0) & np.isfinite(requests) & np.isfinite(late) & np.isfinite(samples.time)
    if not fresh.any():
        return state
    with np.errstate(invalid="ignore"):
        elapsed = np.maximum(samples.time - state.counted_time, 0.0)
        same = state.counted_slo_ms == params.slo_ms
    memory = np.where(same, np.exp(-np.nan_to_num(elapsed) / MEMORY_SECONDS), 0.0)
    all_requests = np.where(fresh, state.counted_requests * memory + requests, state.counted_requests)
    all_late = np.where(fresh, state.counted_late * memory + np.minimum(late, requests), state.counted_late)
    wanted = wanted_factor(budget_left(all_requests, all_late, params.objective))
    moved = _moved(state.price_factor, wanted, np.minimum(np.nan_to_num(elapsed), LONGEST_SECONDS))
    return replace(
        state,
        counted_requests=all_requests,
        counted_late=all_late,
        counted_time=np.where(fresh, samples.time, state.counted_time),
        counted_slo_ms=np.where(fresh, params.slo_ms, state.counted_slo_ms),
        price_factor=np.where(fresh & np.isfinite(wanted), moved, state.price_factor),
    )


def budget_left(requests: Float, late: Float, objective: Float) -> Float:
    """Return the share (N,) of the error budget that is left, at most 1, below 0 where it is overspent.

    `objective` (N,) is the share of requests that has to be in time. NaN where it is not set, or where it allows
    fewer than `LEAST_ALLOWED` late requests of those counted.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        allowed = (1 - objective) * requests
        return np.where(allowed >= LEAST_ALLOWED, 1 - late / allowed, np.nan)


def budget_left_now(params: Params, state: State, samples: Samples, objective: Float) -> Float:
    """Return `budget_left` (N,); NaN also where none was counted for `LONGEST_SECONDS` though requests may arrive.

    Answers that take longer are counted when the first of them is over, or never where a histogram is missing.
    """
    idle = arrivals_known(params, samples) & (samples.arrival_rate == 0)
    counted = idle | (samples.time - state.counted_time <= LONGEST_SECONDS)
    return np.where(counted, budget_left(state.counted_requests, state.counted_late, objective), np.nan)


def wanted_factor(left: Float) -> Float:
    """Return the factor (N,) at the share `left` (N,) of the error budget; NaN where the share is not known.

    Every percent of the error budget changes it by the same ratio, between nothing left and `AMPLE`.
    """
    spent = 1 - np.clip(left / AMPLE, 0.0, 1.0)
    return np.asarray(LOWEST_FACTOR * (HIGHEST_FACTOR / LOWEST_FACTOR) ** spent, np.float64)


def price_factor(params: Params, state: State) -> Float:
    """Return the factor (N,) on the price of lateness: 1 where no objective steers it."""
    return np.where(steers(params), state.price_factor, 1.0)


def steers(params: Params) -> Bool:
    """Return where (N,) the objective steers the price of lateness."""
    return np.isfinite(params.objective)


def _moved(factor: Float, wanted: Float, seconds: Float) -> Float:
    """Return the factor (N,) after so many `seconds` (N,) on the way to the wanted one."""
    low, high = factor * 0.5 ** (seconds / SECONDS_TO_HALVE), factor * 2.0 ** (seconds / SECONDS_TO_DOUBLE)
    return np.clip(np.clip(wanted, low, high), LOWEST_FACTOR, HIGHEST_FACTOR)
