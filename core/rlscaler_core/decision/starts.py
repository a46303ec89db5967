"""Hysteresis of the forecast rule by the price of a start.

A start costs `Params.start_seconds` of the pool's price, the cold start that is paid for, and the requests that are
late until the replica serves. A replica that the measured load needed is held until holding it has cost as much as
a start: never more than twice as dear as with the return of the load known beforehand, which no rule without that
knowledge undercuts.
Source: Karlin, Manasse, Rudolph and Sleator, "Competitive snoopy caching", 1988.
"""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.evidence import all_here, ignores_load
from rlscaler_core.decision.floor import pool_utilization
from rlscaler_core.decision.forecast import grown_again
from rlscaler_core.decision.forecaster.memory import is_kept
from rlscaler_core.decision.forecaster.outlook import daily_mean
from rlscaler_core.decision.readiness import LEAST_MEAN, Prices, prepared_rate
from rlscaler_core.decision.situation import pays_for_starts
from rlscaler_core.decision.tables import known
from rlscaler_core.decision.types import Float, Params, Samples, State, total
from rlscaler_core.decision.units import about_a_request

LATE_CAUTION = 0.2
"""Share of the requests of a missing replica that are late until it serves: the others find room elsewhere."""

MOST_USED = 1.35
"""Load that a measured utilization stands for, over the planned one, up to which it holds replicas: a utilization that
is always full must not hold every replica of a peak."""


def hold_seconds(params: Params, mean: Float, late_price: Float) -> Float:
    """Return the seconds (N, 2) of its price that a start costs; 0 where starts are free.

    `mean` (N,) is that of a day's load, in the unit of the capacity, and `late_price` (N,) in replicas of the dearer
    pool for each percent of a day's requests.
    """
    share = np.nan_to_num(params.requests_per_second) / np.maximum(mean, 1e-9)[:, None]
    dearer = params.cost_per_hour.max(axis=1, keepdims=True) / np.maximum(params.cost_per_hour, 1e-9)
    late = 100 * LATE_CAUTION * late_price[:, None] * np.minimum(share, 1.0) * dearer
    priced = params.present & (params.start_seconds > 0) & pays_for_starts(params)[:, None]
    return np.where(priced, params.start_seconds + params.cold_start_seconds * (1 + late), 0.0)


def held_load(params: Params, state: State, samples: Samples, late_price: Float) -> Float:
    """Return the highest measured rate (N, 2) of the time for which each pool holds replicas; 0 where it holds none."""
    seen = np.isfinite(state.rate_value)
    counted = np.where(seen, state.rate_value, 0.0)
    mean = counted.sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    if is_kept(state.load_recent):
        daily, share = daily_mean(state.load_recent)
        mean = np.where(share >= LEAST_MEAN, daily * about_a_request(params.unit), mean)
    seconds = hold_seconds(params, mean, late_price)
    age = samples.time[:, None] - state.rate_time
    return np.stack([np.where(age < seconds[:, i, None], counted, 0.0).max(axis=1) for i in range(2)], axis=1)


def used_load(params: Params, state: State, samples: Samples, load: Float) -> Float:
    """Return the load (N,) that the measured utilization stands for, at most `MOST_USED` of the planned `load` (N,).

    The belief about capacity may be too high: a replica that the HPA would count as needed stays. 0 where a present
    pool's utilization is not known or was seen not to follow the load, and where starts are free.
    """
    used = pool_utilization(samples, known(params, samples)) / 100
    told = np.isfinite(used) & np.isfinite(params.requests_per_second) & ~ignores_load(state)
    told = all_here(told, params.present & (samples.ready_replicas > 0)) & pays_for_starts(params)
    work = np.where(params.present & told[:, None], samples.ready_replicas * params.requests_per_second * used, 0.0)
    return np.fmin(total(work), MOST_USED * load)


def prepared_loads(params: Params, state: State, samples: Samples, plain: Float, prices: Prices) -> tuple[Float, Float]:
    """Return the load (N,) that replicas are started for, and the higher one for which present replicas stay.

    `plain` (N,) is the forecast without a past. A replica that is started and not needed costs more than a present one.
    """
    bound = np.full(len(plain), np.inf)
    priced = pays_for_starts(params)
    if priced.any():
        bound = np.where(priced, grown_again(state.rate_time, state.rate_value, samples.time), np.inf)
        plain = np.minimum(plain, bound)
    if not ((np.asarray(prices.late) > 0) & is_kept(state.load_recent)).any():
        return plain, plain
    staying = prepared_rate(params, state, samples, plain, prices, bound)
    if not priced.any():
        return staying, staying
    cost = price_of_starting(params)
    dearer = prices._replace(caution=prices.caution / cost, jump_caution=prices.jump_caution / cost)
    return prepared_rate(params, state, samples, plain, dearer, bound), staying


def price_of_starting(params: Params) -> Float:
    """Return the price (N,) of a started replica over a present one's, for the time until another one could be there.

    Of the pool that takes longest to start.
    """
    cold = np.where(params.present, params.cold_start_seconds, -1.0)
    slow = (cold[:, 1] > cold[:, 0])[:, None]
    start, wait = (np.where(slow[:, 0], pools[:, 1], pools[:, 0]) for pools in (params.start_seconds, cold))
    return np.asarray(1 + start / (wait + params.interval_seconds), np.float64)
