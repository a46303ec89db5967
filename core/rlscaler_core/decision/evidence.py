"""Evidence in the utilization about the load that one replica of each pool carries.

The load over the work in use, ready replicas * believed capacity * utilization, says how far the belief is off. Where
the traffic follows the weights each pool is measured by itself. Utilization says nothing where a pool is full, where it
is missing, where the objective is on tokens, and where it was seen not to follow the load, as that of a GPU under
continuous batching. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.action import WHOLE
from rlscaler_core.decision.floor import HPA_TOLERANCE, pool_utilization
from rlscaler_core.decision.tables import known
from rlscaler_core.decision.types import GPU, Bool, Float, Params, Samples, State, both, either, total
from rlscaler_core.decision.units import LatencySignal

VALUE, VARIANCE, COVARIANCE, DECLARED = slice(0, 2), slice(2, 4), 4, slice(5, 7)
RATE, READY, NOTED, MOVED, PRESSURE = 7, slice(8, 10), 10, 11, 12
LOAD_MEAN, LOAD_SPREAD, USE_MEAN, USE_SLOPE = slice(13, 15), slice(15, 17), slice(17, 19), slice(19, 21)
BELOW, LATENCY, SPLIT, BEGAN = slice(21, 23), 23, 24, 25
"""Columns of `State.belief`. The capacity by pool in `Params.unit`, variances and covariance of its logarithms, and the
declared capacity that it began from; means of arrival rate and of ready replicas over the window of the utilization,
when they were noted, and when the belief was last moved, in unix seconds; the highest recent load over the believed
capacity; by pool mean and variance of the logarithm of the load, the mean of the logarithm of the utilization and its
covariance with the former; 1 where the belief is told to be below the declared capacity; the 95th percentile over the
objective at the interval before; the GPU pool's mean part of the traffic over that window; and when the belief began
from the declared capacity, in unix seconds. NaN: not known."""

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

FOLLOW_SECONDS = 7200.0
"""Time constant of the moments that say whether utilization follows the load."""

SEEN = 0.12**2
"""Variance of the logarithm of the load from which there is a verdict on that."""

FOLLOWS = 0.5
"""Percent by which utilization has to grow with each percent of load to follow it."""

LONGEST_SECONDS = 120.0
"""A longer gap between two actions moves the belief no further than this one."""


class Measurement(NamedTuple):
    """A measurement of the capacity, of one pool or of both together."""

    part: Float  # (N, 2) of each pool in the measured work
    off: Float  # (N,) logarithm of load over work in use
    variance: Float  # (N,) of that
    says: Bool  # (N,) the measurement says how far the belief is off


class Look(NamedTuple):
    """Evidence of one action interval."""

    elapsed: Float  # (N,) seconds since the last one
    of_tokens: Bool  # (N,) the objective is on the first or on each further token
    measured: list[Measurement]
    latency: Float  # (N,) 95th percentile over the objective; NaN = not known
    blind: Bool  # (N,) utilization says nothing, now and in general
    busy: Bool  # (N,) most of the work is in pools above their target utilization by the tolerance of an HPA
    proven: Bool  # (N, 2) utilization was seen to follow the load
    doubtful: Bool  # (N,) utilization is high and may be true
    idle: Bool  # (N, 2) the pool is absent, or in use below its target utilization


def look(params: Params, state: State, belief: Float, samples: Samples) -> Look:
    """Compare the measurements with `belief`; note in it the pressure and whether utilization follows the load."""
    elapsed = np.clip(samples.time - belief[:, MOVED], 0.0, LONGEST_SECONDS)
    belief[:, MOVED] = samples.time
    window = np.maximum(params.usage_seconds, params.window_seconds)
    here = params.present & (belief[:, READY] > 0.05)
    signals = known(params, samples)
    # A model server may be full with a nearly empty KV cache, and a single sequence keeps its GPU busy.
    of_tokens = params.slo_signal != LatencySignal.END_TO_END
    used = np.where(of_tokens[:, None], np.nan, pool_utilization(samples, signals) / 100)
    latency = np.where(signals[:, 4] & (samples.arrival_rate > 0), samples.p95_ms / params.slo_ms, np.nan)
    rate, ready = belief[:, RATE], np.where(here, belief[:, READY], 0.0)
    # The first look only begins to watch: a belief from nothing needs two.
    _begin_from_nothing(params, belief, rate, np.where((elapsed > 0)[:, None], ready, 0.0), used, samples)
    value, now = np.where(here, belief[:, VALUE], 0.0), np.where(here, samples.ready_replicas, 0)
    carried = total(ready * value)
    work = np.where(here, ready * value * used, 0.0)
    load = np.maximum(rate / carried, samples.arrival_rate / total(now * value))
    belief[:, PRESSURE] = np.fmax(load, belief[:, PRESSURE] * np.exp(-elapsed / np.maximum(window, 1.0)))
    # Where the traffic follows the weights, the load of each pool is known, and both are measured apart. Without that
    # a pool once believed low stays so: it gets little traffic, and its utilization is a small part of the work.
    apart = params.routed & both(here)
    part = np.where(apart[:, None], _parts(belief[:, SPLIT]), work / total(work)[:, None])
    follows, proven = _followed(belief, elapsed, _load_to_follow(belief, rate, ready, carried, apart, part), used)
    usable, suspect = np.isfinite(used) & follows, ~proven[:, GPU] & here[:, GPU] & (used[:, GPU] >= SUSPECT)
    all_usable, mean_used = all_here(usable, here), total(work) / carried
    changed = np.log(np.maximum(now, 0.3) / np.maximum(ready, 0.3)) ** 2
    # Weights are whole numbers: a small part is not known well.
    moved = np.log(_parts(state.weights[:, GPU] / WHOLE) / part) ** 2 + (0.5 / WHOLE / part) ** 2
    changed += np.where(apart[:, None], moved, 0.0)
    moment = np.log(samples.arrival_rate / rate) ** 2

    def measurement(part: Float, load: Float, work: Float, used: Float, changed: Float, says: Bool) -> Measurement:
        off = np.log(load / work)
        # After a change of load or replicas within the window utilization is of another moment.
        noise = np.where(off > 0, NOISE_ABOVE, NOISE) ** 2 + 2 / (load * window) + (0.02 / used) ** 2 + changed + moment
        # Overlapping windows say the same again.
        variance = noise * np.maximum(1.0, window / elapsed)
        # Work that no request causes makes a utilization too high: a low one still says that replicas carry more.
        loaded = (used > LEAST_USED) | ((off > 0) & (used > 0))
        return Measurement(
            part, off, variance, says & loaded & np.isfinite(off) & np.isfinite(variance) & (elapsed > 0)
        )

    says = ~apart & all_usable & ~(total(part * (used >= FULL)) > 0.5) & ~suspect
    measured = [measurement(part, rate, total(work), mean_used, total(part * changed), says)]
    if apart.any():
        says_alone = apart[:, None] & usable & (used < FULL)
        says_alone[:, GPU] &= ~suspect
        for pool, unit in enumerate(np.eye(2)):
            own = (rate * part[:, pool], work[:, pool], used[:, pool], changed[:, pool], says_alone[:, pool])
            measured.append(measurement(np.broadcast_to(unit, part.shape), *own))
    # An HPA adds replicas there: when answers are late as well, the belief must not say otherwise. Nothing is fuller
    # than full.
    busy = total(part * (used >= np.minimum((1 + HPA_TOLERANCE) * params.target_utilization, FULL))) > 0.5
    blind = ~all_usable | suspect | ((mean_used < UNUSED) & (load > 0.3))
    return Look(
        elapsed,
        of_tokens,
        measured,
        latency,
        blind & (elapsed > 0),
        busy & all_usable,
        np.where(apart[:, None], proven, all_here(proven, here)[:, None]),
        suspect & (used[:, GPU] < FULL) & follows[:, GPU],
        ~here | ((used > UNUSED) | proven) & (used < params.target_utilization),
    )


def _parts(gpu: Float) -> Float:
    """Return the parts (N, 2) of the traffic, given that (N,) of the GPU pool."""
    return np.stack([gpu, 1 - gpu], axis=1)


def _load_to_follow(belief: Float, rate: Float, ready: Float, carried: Float, apart: Bool, part: Float) -> Float:
    """Return the load (N, 2) that utilization has to follow, over a capacity."""
    # Over the declared one where that is possible: replicas follow the belief, so the load over that hardly varies. The
    # utilization of one of two pools that share the load in an unknown way also follows their shares.
    declared = ready * np.where(np.isfinite(belief[:, DECLARED]), belief[:, DECLARED], np.nan_to_num(belief[:, VALUE]))
    alone = np.where(apart[:, None], rate[:, None] * part / declared, (rate / total(declared))[:, None])
    return np.where((both(ready > 0) & ~apart)[:, None], (rate / carried)[:, None], alone)


def all_here(pools: Bool, here: Bool) -> Bool:
    """Return where (N,) it holds for each pool (N, 2) that is `here`, of at least one."""
    return both(pools | ~here) & either(here)


def _begin_from_nothing(
    params: Params, belief: Float, rate: Float, ready: Float, used: Float, samples: Samples
) -> None:
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
    x = np.where(either(used >= FULL)[:, None], np.nan, x)
    known_load = np.isfinite(x)
    fresh = known_load & np.isfinite(y)
    first = known_load & np.isnan(belief[:, LOAD_MEAN])
    belief[:, LOAD_MEAN] = np.where(first, x, belief[:, LOAD_MEAN])
    belief[:, LOAD_SPREAD] = np.where(first, 0.0, belief[:, LOAD_SPREAD])
    first = fresh & np.isnan(belief[:, USE_MEAN])
    belief[:, USE_MEAN] = np.where(first, y, belief[:, USE_MEAN])
    belief[:, USE_SLOPE] = np.where(first, 0.0, belief[:, USE_SLOPE])
    a = (elapsed / FOLLOW_SECONDS)[:, None]
    dx = np.where(known_load, x - belief[:, LOAD_MEAN], 0.0)
    dy = np.where(fresh, y - belief[:, USE_MEAN], 0.0)
    belief[:, LOAD_MEAN] += a * dx
    spread = (1 - a) * (belief[:, LOAD_SPREAD] + a * dx**2)
    belief[:, LOAD_SPREAD] = np.where(known_load, spread, belief[:, LOAD_SPREAD])
    belief[:, USE_MEAN] += a * dy
    slope = (1 - a) * (belief[:, USE_SLOPE] + a * dx * dy)
    belief[:, USE_SLOPE] = np.where(fresh, slope, belief[:, USE_SLOPE])
    verdict = belief[:, LOAD_SPREAD] >= SEEN
    grows = belief[:, USE_SLOPE] >= FOLLOWS * belief[:, LOAD_SPREAD]
    return ~verdict | grows, verdict & grows


def ignores_load(state: State) -> Bool:
    """Return where (N, 2) the utilization of a pool was seen not to follow the load."""
    spread, slope = state.belief[:, LOAD_SPREAD], state.belief[:, USE_SLOPE]
    ignores: Bool = (spread >= SEEN) & (slope < FOLLOWS * spread)
    return ignores
