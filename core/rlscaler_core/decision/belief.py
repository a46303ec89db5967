"""The belief about how much load one replica of each pool carries.

A declared capacity is a first guess. The load over the work in use, ready replicas * believed capacity * utilization,
says how far the guess is off. With two pools that is one equation for two unknowns, so a Kalman filter over both
logarithms weighs each measurement by how much it says, and shares it out by the pools' parts in the work. Utilization
says nothing where a pool is full, where it is missing, and where it was seen not to follow the load, as that of a GPU
under continuous batching. Then latency alone speaks: late answers of replicas that should have had room lower the
belief at once, and near misses slowly. Unknown data moves nothing. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.floor import HPA_TOLERANCE, pool_utilization
from rlscaler_core.decision.tables import arrivals_known, known
from rlscaler_core.decision.types import BELIEF, GPU, Bool, Float, Params, Samples, State, both, either, total

VALUE, VARIANCE, COVARIANCE, DECLARED = slice(0, 2), slice(2, 4), 4, slice(5, 7)
RATE, READY, NOTED, MOVED, PRESSURE = 7, slice(8, 10), 10, 11, 12
LOAD_MEAN, LOAD_SPREAD, USE_MEAN, USE_SLOPE, BELOW, LATENCY = 13, 14, slice(15, 17), slice(17, 19), slice(19, 21), 21
"""Columns of `State.belief`. The capacity by pool in `Params.unit`, variances and covariance of its logarithms, and the
declared capacity that it began from; means of arrival rate and of ready replicas over the window of the utilization,
when they were noted, and when the belief was last moved, in unix seconds; the highest recent load over the believed
capacity; mean and variance of the logarithm of that load, and by pool the mean of the logarithm of the utilization and
its covariance with the former; 1 where the belief is told to be below the declared capacity; and the 95th percentile
over the objective at the interval before. NaN: not known."""

REACH = 10.0
"""Factor up to which the belief may leave a declared capacity, in both directions."""

FIRST = 0.2
"""Standard deviation, as that of a logarithm, of a declared capacity."""

ALIKE = 0.5
"""Correlation of the errors of both pools: a new version of the software is on both."""

DRIFT = 0.05
"""Standard deviation by which the capacity wanders in an hour."""

NOISE, NOISE_ABOVE = 0.2, 0.3
"""Standard deviation of a measurement from a whole window, beside the chance of arrivals, below and above the belief.
Taking replicas for better than they are costs more than the contrary."""

LEAST_USED = 0.15
"""Utilization below which the work that no request causes is too large a part of it."""

UNUSED = 0.05
"""Utilization below which replicas under load are not measured."""

FULL = 0.97
"""Utilization from which a pool is full: it may answer less than arrives."""

SUSPECT = 0.85
"""Utilization from which that of a GPU counts only where it was seen to follow the load."""

SURPRISE = 0.1
"""Standard deviation that is added after a measurement two deviations off: the capacity has changed."""

FOLLOW_SECONDS = 7200.0
"""Time constant of the moments that say whether utilization follows the load."""

SEEN = 0.12**2
"""Variance of the logarithm of the load from which there is a verdict on that."""

FOLLOWS = 0.5
"""Percent by which utilization has to grow with each percent of load to follow it."""

UNPROVEN = 1.5
"""Factor up to which a belief rises above the declared capacity before utilization was seen to follow the load."""

UNPROVEN_RISE = 1 / 3600
"""Rise in logarithms a second beyond that while latency is low."""

OVERLOAD = 0.15 / 30
"""Fall of the belief, in logarithms a second, while busy replicas are late that should have had room."""

ROOM = 0.98
"""Load over believed capacity below which lateness is not explained by the load."""

NEAR = 0.7
"""Part of the objective from which a 95th percentile is a near miss."""

MISSES = 0.06 / 15
"""Fall in logarithms a second where the percentile is at the objective or above, and utilization says nothing."""

DRAINS = 0.95
"""Part of the latency of the interval before up to which a queue is taken to drain."""

AT_EASE = 0.45
"""Part of the objective below which a 95th percentile is low."""

EASE = 0.2 / 3600
"""Rise in logarithms a second where utilization says nothing, replicas are well loaded and the percentile is low."""

LOADED = 0.7
"""Load over believed capacity from which low latency says that replicas carry more."""

TOLD_BELOW, TOLD_AGAIN = 0.85, 0.92
"""Belief over declared capacity below which the user is told, and up to which it stays so."""

MOST = 0.3
"""Largest move at once, in logarithms."""

LONGEST_SECONDS = 120.0
"""A longer gap between two actions moves the belief no further than this one."""


def note(params: Params, state: State, samples: Samples) -> State:
    """Remember the means of load and ready replicas over the window that utilization is a mean of; at every tick."""
    if not params.learns_capacity.any():
        return state
    belief = state.belief.copy()
    window = np.maximum(params.usage_seconds, params.window_seconds)
    elapsed = samples.time - belief[:, NOTED]
    anew = ~((elapsed >= 0) & (elapsed <= 10 * np.maximum(window, params.sense_seconds)))
    elapsed = np.where(anew, 0.0, elapsed)
    # An exponential mean of time constant w / 2 lags as much as the mean over a window w.
    lag = window / 2 + np.where(np.isfinite(samples.age_seconds[:, 3]), samples.age_seconds[:, 3], 0.0)
    belief[:, READY] = _mean(belief[:, READY], samples.ready_replicas.astype(np.float64), elapsed, lag, anew)
    apart = (window - params.window_seconds) / 2
    rate = _mean(belief[:, RATE, None], samples.arrival_rate[:, None], elapsed, apart, anew)
    belief[:, RATE] = np.where(arrivals_known(params, samples), rate[:, 0], np.nan)
    belief[:, NOTED] = samples.time
    return replace(state, belief=belief)


def learn(params: Params, state: State, samples: Samples) -> State:
    """Move the belief by the measurements of an action interval; call it once in each, after `note`."""
    if not params.learns_capacity.any():
        return state
    belief = _begun(params, state.belief.copy(), samples)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        seen = _look(params, belief, samples)
        moves = _by_utilization(belief, seen) + _by_lateness(params, belief, samples, seen)
        value = belief[:, VALUE] * np.exp(np.clip(moves, -MOST, MOST))
        declared = belief[:, DECLARED]
        # Until utilization was seen to follow the load, low latency has to agree with a rise far above the declaration.
        slowly = np.where(seen.latency < AT_EASE, np.exp(UNPROVEN_RISE * seen.elapsed), 1.0)[:, None]
        unproven = np.maximum(UNPROVEN * declared, belief[:, VALUE] * slowly)
        top = np.where(seen.proven[:, None], REACH * declared, np.minimum(unproven, REACH * declared))
        value = np.where(np.isfinite(declared), np.clip(value, declared / REACH, top), value)
        belief[:, VALUE] = np.where(params.learns_capacity[:, None], value, belief[:, VALUE])
        # Two bounds, so that a belief between them does not write the status again and again.
        ratio = np.where(params.present, belief[:, VALUE] / declared, np.nan)
        belief[:, BELOW] = (ratio < TOLD_BELOW) | ((belief[:, BELOW] > 0) & (ratio < TOLD_AGAIN))
    return replace(state, belief=belief)


def believed(params: Params, state: State) -> Params:
    """Return `params` with the believed capacity in place of the declared one, where it is learned."""
    if not params.learns_capacity.any():
        return params
    value, declared = state.belief[:, VALUE], params.requests_per_second
    use = params.learns_capacity[:, None] & np.isfinite(value) & _same(state.belief[:, DECLARED], declared)
    return replace(params, requests_per_second=np.where(use, value, declared))


def below_declared(params: Params, state: State) -> Bool:
    """Return where (N, 2) replicas carry less than the spec declares, as measured."""
    told: Bool = (state.belief[:, BELOW] > 0) & params.learns_capacity[:, None] & params.present
    return told


def resume(params: Params, state: State, value: Float, declared: Float, percent: Float, now: float) -> None:
    """Restore in place the belief (N, 2) with its standard deviation in percent that a former process had.

    Rows that declare another capacity since begin anew.
    """
    known_before = np.isfinite(value) & (value > 0) & np.isfinite(percent) & params.present
    same = params.learns_capacity & all_here(known_before & _same(declared, params.requests_per_second), params.present)
    if not same.any():
        return
    belief = np.full_like(state.belief, np.nan)
    belief[:, VALUE], belief[:, DECLARED] = np.where(known_before, value, np.nan), params.requests_per_second
    spread = np.clip(np.where(known_before, percent / 100, FIRST), 0.01, 2 * FIRST)
    belief[:, VARIANCE], belief[:, COVARIANCE] = spread**2, ALIKE * spread[:, 0] * spread[:, 1]
    belief[:, PRESSURE], belief[:, MOVED] = 0.0, now
    state.belief[same] = belief[same]


class _Look(NamedTuple):
    """Measurements of one action interval."""

    elapsed: Float  # (N,) seconds since the last one
    part: Float  # (N, 2) of each pool in the work in use
    off: Float  # (N,) logarithm of load over work in use
    variance: Float  # (N,) of that
    says: Bool  # (N,) utilization says how far the belief is off
    latency: Float  # (N,) 95th percentile over the objective; NaN = not known
    blind: Bool  # (N,) utilization says nothing, now and in general
    busy: Bool  # (N,) most of the work is in pools above their target utilization by the tolerance of an HPA
    proven: Bool  # (N,) utilization was seen to follow the load
    doubtful: Bool  # (N,) utilization is high and may be true
    idle: Bool  # (N, 2) the pool is absent, or in use below its target utilization


def _begun(params: Params, belief: Float, samples: Samples) -> Float:
    """Begin anew in the rows whose declared capacity is another than the belief began from."""
    declared = params.requests_per_second
    new = either(~_same(belief[:, DECLARED], declared)) | np.isnan(belief[:, MOVED])
    belief[new] = np.where(np.isin(np.arange(BELIEF), (RATE, 8, 9, NOTED)), belief[new], np.nan)
    belief[new, DECLARED] = belief[new, VALUE] = declared[new]
    belief[new, VARIANCE], belief[new, COVARIANCE] = FIRST**2, ALIKE * FIRST**2
    belief[new, PRESSURE], belief[new, MOVED] = 0.0, samples.time[new]
    return belief


def _look(params: Params, belief: Float, samples: Samples) -> _Look:
    """Compare the measurements with `belief`; note in it the pressure and whether utilization follows the load."""
    elapsed = np.clip(samples.time - belief[:, MOVED], 0.0, LONGEST_SECONDS)
    belief[:, MOVED] = samples.time
    window = np.maximum(params.usage_seconds, params.window_seconds)
    here = params.present & (belief[:, READY] > 0.05)
    signals = known(params, samples)
    used = pool_utilization(samples, signals) / 100
    latency = np.where(signals[:, 4] & (samples.arrival_rate > 0), samples.p95_ms / params.slo_ms, np.nan)
    rate, ready = belief[:, RATE], np.where(here, belief[:, READY], 0.0)
    # The first look only begins to watch: a belief from nothing needs two.
    _start(params, belief, rate, np.where((elapsed > 0)[:, None], ready, 0.0), used, samples)
    value = np.where(here, belief[:, VALUE], 0.0)
    carried = ready * value
    work = np.where(here, carried * used, 0.0)
    mean_used = total(work) / total(carried)
    part = work / total(work)[:, None]
    off = np.log(rate / total(work))
    now = np.where(here, samples.ready_replicas, 0)
    changed = np.log(samples.arrival_rate / rate) ** 2
    changed += total(part * np.log(np.maximum(now, 0.3) / np.maximum(ready, 0.3)) ** 2)
    # After a change of load or replicas within the window utilization is of another moment.
    variance = np.where(off > 0, NOISE_ABOVE, NOISE) ** 2 + 2 / (rate * window) + (0.02 / mean_used) ** 2 + changed
    # Overlapping windows say the same again.
    variance *= np.maximum(1.0, window / elapsed)
    load = np.maximum(rate / total(carried), samples.arrival_rate / total(now * value))
    belief[:, PRESSURE] = np.fmax(load, belief[:, PRESSURE] * np.exp(-elapsed / np.maximum(window, 1.0)))
    # Of a single pool over the declared capacity: replicas follow the belief, so the load over that hardly varies. The
    # utilization of one of two pools also follows the split of the traffic.
    declared = np.where(here & np.isfinite(belief[:, DECLARED]), belief[:, DECLARED], value)
    capacity = np.where(both(here), total(carried), total(ready * declared))
    follows, proven = _followed(belief, elapsed, rate / capacity, used)
    suspect = ~proven[:, GPU] & here[:, GPU] & (used[:, GPU] >= SUSPECT)
    usable = all_here(np.isfinite(used) & follows, here)
    full = total(part * (used >= FULL)) > 0.5
    # An HPA adds replicas there: when answers are late as well, the belief must not say otherwise. Nothing is fuller
    # than full.
    busy = total(part * (used >= np.minimum((1 + HPA_TOLERANCE) * params.target_utilization, FULL))) > 0.5
    says = (
        usable & ~full & ~suspect & np.isfinite(off) & np.isfinite(variance) & (mean_used > LEAST_USED) & (elapsed > 0)
    )
    blind = ~usable | suspect | ((mean_used < UNUSED) & (load > 0.3))
    return _Look(
        elapsed,
        part,
        off,
        variance,
        says,
        latency,
        blind & (elapsed > 0),
        busy & usable,
        all_here(proven, here),
        suspect & (used[:, GPU] < FULL) & follows[:, GPU],
        ~here | ((used > UNUSED) & (used < params.target_utilization)),
    )


def all_here(pools: Bool, here: Bool) -> Bool:
    """Return where (N,) it holds for each pool (N, 2) that is `here`, of at least one."""
    return both(pools | ~here) & either(here)


def _start(params: Params, belief: Float, rate: Float, ready: Float, used: Float, samples: Samples) -> None:
    """Begin a belief from nothing: by utilization, or else by the load that replicas answer in time."""
    new = params.learns_capacity[:, None] & np.isnan(belief[:, VALUE]) & params.present & (ready > 0.5)
    if not new.any():
        return
    usual = np.where(np.isfinite(used) & (used > LEAST_USED) & (used < SUSPECT), used, 0.8)
    # Where nothing is known of either, a replica of each pool is taken for the same.
    guess = rate[:, None] / np.maximum(total(ready * usual), 1e-9)[:, None]
    informed = np.isfinite(guess) & (guess > 0) & (np.abs(ready - samples.ready_replicas) < 0.1)
    belief[:, VALUE] = np.where(new & informed, guess, belief[:, VALUE])


def _followed(belief: Float, elapsed: Float, load: Float, used: Float) -> tuple[Bool, Bool]:
    """Return where (N, 2) utilization is not seen to ignore the load, and where it was seen to follow it."""
    x, y = np.log(load), np.log(np.maximum(used, 0.01))
    # Above full a utilization cannot follow the load.
    x = np.where(either(used >= FULL), np.nan, x)
    fresh = np.isfinite(x)[:, None] & np.isfinite(y)
    measured = np.isfinite(x)
    first = measured & np.isnan(belief[:, LOAD_MEAN])
    belief[first, LOAD_MEAN], belief[first, LOAD_SPREAD] = x[first], 0.0
    first = fresh & np.isnan(belief[:, USE_MEAN])
    belief[:, USE_MEAN] = np.where(first, y, belief[:, USE_MEAN])
    belief[:, USE_SLOPE] = np.where(first, 0.0, belief[:, USE_SLOPE])
    a = elapsed / FOLLOW_SECONDS
    dx = np.where(measured, x - belief[:, LOAD_MEAN], 0.0)
    dy = np.where(fresh, y - belief[:, USE_MEAN], 0.0)
    belief[:, LOAD_MEAN] += a * dx
    spread = (1 - a) * (belief[:, LOAD_SPREAD] + a * dx**2)
    belief[:, LOAD_SPREAD] = np.where(measured, spread, belief[:, LOAD_SPREAD])
    belief[:, USE_MEAN] += a[:, None] * dy
    slope = (1 - a[:, None]) * (belief[:, USE_SLOPE] + (a * dx)[:, None] * dy)
    belief[:, USE_SLOPE] = np.where(fresh, slope, belief[:, USE_SLOPE])
    verdict = (belief[:, LOAD_SPREAD] >= SEEN)[:, None]
    grows = belief[:, USE_SLOPE] >= FOLLOWS * belief[:, LOAD_SPREAD, None]
    return ~verdict | grows, verdict & grows


def ignores_load(state: State) -> Bool:
    """Return where (N, 2) the utilization of a pool was seen not to follow the load."""
    spread, slope = state.belief[:, LOAD_SPREAD, None], state.belief[:, USE_SLOPE]
    ignores: Bool = (spread >= SEEN) & (slope < FOLLOWS * spread)
    return ignores


def _by_utilization(belief: Float, seen: _Look) -> Float:
    """Return the moves (N, 2) of the logarithms by the Kalman filter, and note variances and covariance."""
    drift, most = DRIFT**2 / 3600 * seen.elapsed, 2 * FIRST**2
    own = np.minimum(belief[:, VARIANCE] + drift[:, None], most)
    bound = 0.95 * np.sqrt(own[:, 0] * own[:, 1])
    shared = np.clip(belief[:, COVARIANCE] + ALIKE * drift, -bound, bound)
    part = np.where(seen.says[:, None], seen.part, 0.0)
    spread = own * part + shared[:, None] * part[:, ::-1]
    innovation = total(spread * part) + seen.variance
    off = np.where(seen.says, seen.off, 0.0)
    limit = 2 * np.sqrt(np.where(seen.says, innovation, 1.0))
    surprised = np.abs(off) > limit
    gain = np.where(seen.says[:, None], spread / innovation[:, None], 0.0)
    after = own - gain * spread + np.where(surprised, SURPRISE**2, 0.0)[:, None]
    belief[:, VARIANCE] = np.minimum(after, most)
    belief[:, COVARIANCE] = shared - gain[:, 0] * spread[:, 1] + np.where(surprised, ALIKE * SURPRISE**2, 0.0)
    return np.asarray(gain * np.clip(off, -limit, limit)[:, None], np.float64)


def _by_lateness(params: Params, belief: Float, samples: Samples, seen: _Look) -> Float:
    """Return the moves (N, 2) of the logarithms by latency, where the load does not explain it."""
    latency, informed = seen.latency, np.isfinite(belief[:, RATE])
    unexplained = (belief[:, PRESSURE] < ROOM) & informed
    # A belief above the declared capacity gives way to lateness, whatever utilization says.
    raised = either(belief[:, VALUE] > 1.05 * belief[:, DECLARED])
    # Latency that falls is that of a queue that drains: the replicas carry more than arrives.
    drains = latency < DRAINS * belief[:, LATENCY]
    belief[:, LATENCY] = latency
    lies = (seen.busy | raised) & (latency > 1) & unexplained & ~drains
    belief[:, VARIANCE] = np.where(lies[:, None], np.maximum(belief[:, VARIANCE], FIRST**2 / 2), belief[:, VARIANCE])
    near = np.clip((latency - NEAR) / (1 - NEAR), 0.0, 1.0)
    # Where utilization says that replicas have room, a slow dependency is late: more replicas would not help.
    misses = np.where(seen.blind & unexplained & ~drains, MISSES * np.nan_to_num(near), 0.0)
    down = np.where(lies, OVERLOAD, misses)
    # Low latency alone gives back what near misses took. That a replica carries more than declared takes utilization:
    # a server that refuses what is too much answers the rest in time, however full it is.
    declared = belief[:, DECLARED]
    lowered = either(params.present & ((belief[:, VALUE] < declared) | np.isnan(declared)))
    loaded = seen.blind & ~seen.doubtful & informed & (belief[:, PRESSURE] > LOADED) & lowered
    up = np.where(loaded & (latency < AT_EASE), EASE, 0.0)
    # A pool with room is not the late one. Lowered with the other it would stay low: utilization lifts the busy pool.
    down = np.where(seen.idle & either(~seen.idle)[:, None], 0.0, down[:, None])
    return np.asarray((up[:, None] - down) * seen.elapsed[:, None], np.float64)


def _mean(mean: Float, newest: Float, elapsed: Float, constant: Float, anew: Bool) -> Float:
    """Return the exponential means (N, K), begun with the newest value where `anew` (N,) or not known."""
    weight = 1 - np.exp(-elapsed / np.maximum(constant, 1e-3))
    begins = anew[:, None] | ~np.isfinite(mean) | ~np.isfinite(newest)
    step = np.where(begins, 0.0, newest) - np.where(begins, 0.0, mean)
    return np.where(begins, newest, mean + weight[:, None] * step)


def _same(left: Float, right: Float) -> Bool:
    same: Bool = (left == right) | (np.isnan(left) & np.isnan(right))
    return same
