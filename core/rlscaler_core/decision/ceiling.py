"""The ceiling, the mirror of the reactive floor: no more replicas than a long stretch of measured load has needed."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.floor import ROUNDING, pool_utilization
from rlscaler_core.decision.forecast import GAINS, upper_forecast
from rlscaler_core.decision.peaks import highest_rate, note_need
from rlscaler_core.decision.rule import DEFAULT_SETTINGS, rule_replicas
from rlscaler_core.decision.situation import Capacity, Situation
from rlscaler_core.decision.tables import arrivals_known, known
from rlscaler_core.decision.types import Bool, FallbackBehavior, Float, Int, Params, either, total

# One replica more than needed: otherwise the ceiling fights an actor that is off by one.
RESERVE = 1
"""Spare replicas that stay above the need of the stretch, in the pool whose capacity costs least."""

FORECAST = GAINS._replace(peak=1.0)
"""The highest rate of the stretch is in the need as it is."""

_FOLLOWS_LOAD = (FallbackBehavior.HPA_FORMULA, FallbackBehavior.FORECAST_RULE)
"""The other fallbacks are numbers of the user's own."""


def lower_to_load(now: Situation, desired: Int) -> Int:
    """The guard: `desired` (N, 2), at most the cheapest replicas that carry the need of a whole stretch, and RESERVE.

    The need is the highest arrival rate of the last `ceiling_seconds`, or the forecast where that is higher, and at
    moments when the replicas were overloaded their capacity at target utilization. The forecast rule's replicas stay.
    Nothing is lowered at the sensing ticks between two actions, on unknown data, or where the replicas that are ready
    would not carry the need.
    """
    params, samples = now.params, now.samples
    if now.doubt is None or not params.ceiling.any():
        return desired
    overloaded = params.ceiling & _overloaded(now)
    # Overload counts as a rate that the ready replicas just carry. Otherwise a stated capacity that is too high would
    # let the ceiling take replicas again and again.
    if overloaded.any():
        carried = total(samples.ready_replicas * now.capacity.requests_per_second)
        now.state = note_need(now.state, carried, overloaded)
    need = highest_rate(params, now.state, samples.time)
    rows = np.flatnonzero(_may_lower(now) & (total(desired * now.capacity.requests_per_second) > need))
    if not rows.size:
        return desired
    own, state, seen = params.take(rows), now.state.take(rows), samples.take(rows)
    cold = np.where(own.present, own.cold_start_seconds, 0.0)
    ahead = 2 * np.maximum(cold[:, 0], cold[:, 1])
    upper = upper_forecast(state.rate_time, state.rate_value, seen.time, ahead, FORECAST)
    needed = np.maximum(np.maximum(need[rows], seen.arrival_rate), upper)
    least = _most(own, now.capacity.take(rows), needed, desired[rows], seen.ready_replicas)
    # The forecast rule knows more than the last minutes, such as a jump that the calendar announces.
    held = np.minimum(rule_replicas(own, state, seen, DEFAULT_SETTINGS), desired[rows])
    result = desired.copy()
    result[rows] = np.maximum(least, held)
    return result


def _may_lower(now: Situation) -> Bool:
    """Return where (N,) the data for lowering replicas is known, and the replicas asked for follow the load."""
    params, samples = now.params, now.samples
    assert now.doubt is not None
    unknown, failed, falls_back = now.doubt
    follows = ~failed | (falls_back & np.isin(params.fallback, _FOLLOWS_LOAD))
    signals = known(params, samples)
    full = pool_utilization(samples, signals) > 100 * params.target_utilization
    fits = signals[:, 4] | (samples.arrival_rate == 0) | ~either(full & params.present)
    sure: Bool = params.ceiling & follows & ~unknown & arrivals_known(params, samples) & ~now.capacity.unmeasured & fits
    return sure


def _overloaded(now: Situation) -> Bool:
    """Return where (N,) the latency is above the SLO while a pool is fuller than its target utilization."""
    params, samples = now.params, now.samples
    signals = known(params, samples)
    late = signals[:, 4] & (samples.p95_ms > params.slo_ms)
    if not late.any():
        return late
    full = pool_utilization(samples, signals) >= 100 * params.target_utilization
    return late & either(full & params.present)


def _most(params: Params, capacity: Capacity, needed: Float, desired: Int, ready: Int) -> Int:
    """Return the cheapest replicas (R, 2) that carry `needed` (R,) requests/s, and the reserve, at most `desired`."""
    least, serving = np.minimum(params.min_replicas, desired), np.minimum(desired, ready)
    mix = _cheapest_mix(params, capacity, needed, np.minimum(least, serving), serving)
    enough = total(serving * capacity.requests_per_second) >= needed * (1 - ROUNDING)
    mix, left = np.maximum(mix, least), RESERVE
    rows = np.arange(len(desired))
    for pool in (capacity.cheapest, 1 - capacity.cheapest):
        more = np.minimum(left, desired[rows, pool] - mix[rows, pool])
        mix[rows, pool] += more
        left = left - more
    return np.where((enough & ~np.isnan(needed))[:, None], mix, desired)


def _cheapest_mix(params: Params, capacity: Capacity, needed: Float, lowest: Int, highest: Int) -> Int:
    """Return the cheaper (R, 2) of two mixes between `lowest` and `highest` (R, 2) that carry `needed` (R,) requests/s.

    The pool of the cheapest capacity carries it all, or one replica less and the other pool the remainder.
    """
    rows, base = np.arange(len(needed)), capacity.cheapest
    rest = 1 - base
    unit, divisor, cost = capacity.requests_per_second, capacity.divisor, params.cost_per_hour
    needed = np.nan_to_num(needed)
    least = lowest[rows, rest] * unit[rows, rest]
    whole = np.ceil((needed - least) / divisor[rows, base] - ROUNDING)
    best, best_cost = highest.copy(), np.full(len(needed), np.inf)
    for fewer in (0, 1):
        mix = np.empty_like(highest)
        mix[rows, base] = np.clip(whole - fewer, lowest[rows, base], highest[rows, base])
        remainder = (needed - mix[rows, base] * unit[rows, base]) / divisor[rows, rest]
        mix[rows, rest] = np.clip(np.ceil(remainder - ROUNDING), lowest[rows, rest], highest[rows, rest])
        price = np.where(total(mix * unit) >= needed * (1 - ROUNDING), total(mix * cost), np.inf)
        better = price < best_cost
        best, best_cost = np.where(better[:, None], mix, best), np.where(better, price, best_cost)
    return best
