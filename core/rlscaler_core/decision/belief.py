"""The belief about how much load one replica of each pool carries.

A declared capacity is a first guess. A Kalman filter over the logarithms of both pools weighs each measurement of the
utilization by how much it says, and shares one of both pools together out by their parts in the work. Where utilization
says nothing latency alone speaks: late answers of replicas that should have had room lower the belief at once, and near
misses slowly. An objective on tokens makes an integrator of it, which near misses lower and their absence raises.
Unknown data moves nothing. Pure.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlscaler_core.decision.action import WHOLE
from rlscaler_core.decision.evidence import (
    BEGAN,
    BELOW,
    COVARIANCE,
    DECLARED,
    LATENCY,
    MOVED,
    NOTED,
    PRESSURE,
    RATE,
    READY,
    SPLIT,
    USE_SLOPE,
    VALUE,
    VARIANCE,
    Look,
    all_here,
    look,
)
from rlscaler_core.decision.tables import arrivals_known
from rlscaler_core.decision.types import BELIEF, Bool, Float, Params, Samples, State, both, either, total

REACH = 10.0
"""Factor up to which the belief may leave a declared capacity, in both directions."""

FIRST = 0.2
"""Standard deviation, as that of a logarithm, of a declared capacity."""

MEASURING_SECONDS = 300.0
"""Seconds for which a capacity that nothing but the spec tells removes no replica: an HPA removes none in as many."""

ALIKE = 0.5
"""Correlation of the errors of both pools: a new version of the software is on both."""

DRIFT = 0.05
"""Standard deviation by which the capacity wanders in an hour."""

SURPRISE = 0.1
"""Standard deviation that is added after a measurement two deviations off: the capacity has changed."""

CONTRADICTED, BUSY_CONTRADICTED = 0.8, 0.95
"""Part of the proof that utilization follows the load which is left after an interval in which late answers deny it, of
a pool below its target utilization and of one at or above it."""

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

TOKEN_MISSES, TOKEN_EASE, TOKEN_LOADED = 0.03 / 15, 4 / 3600, 0.3
"""The same three where the objective is on the first or on each further token."""

TOKEN_RISE = 1.25
"""Factor up to which low latency alone raises such a belief above the declared capacity: a model server admits all
that arrives, and its latency grows with the sequences of its batch long before it is full."""

TOLD_BELOW, TOLD_AGAIN = 0.85, 0.92
"""Belief over declared capacity below which the user is told, and up to which it stays so."""

MOST = 0.3
"""Largest move at once, in logarithms."""


def note(params: Params, state: State, samples: Samples) -> State:
    """Remember the means of load, ready replicas and split over the window of the utilization; at every tick."""
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
    belief[:, SPLIT] = _mean(belief[:, SPLIT, None], state.weights[:, :1] / WHOLE, elapsed, lag, anew)[:, 0]
    behind = (window - params.window_seconds) / 2
    rate = _mean(belief[:, RATE, None], samples.arrival_rate[:, None], elapsed, behind, anew)
    belief[:, RATE] = np.where(arrivals_known(params, samples), rate[:, 0], np.nan)
    belief[:, NOTED] = samples.time
    return replace(state, belief=belief)


def learn(params: Params, state: State, samples: Samples) -> State:
    """Move the belief by the measurements of an action interval; call it once in each, after `note`."""
    if not params.learns_capacity.any():
        return state
    belief = _begun(params, state.belief.copy(), samples)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        seen = look(params, state, belief, samples)
        moves, by_lateness = _by_utilization(belief, seen), _by_lateness(params, belief, seen)
        # Late answers contradict a utilization that says that replicas carry more, and it measures less from then on. A
        # few busy replicas are also late by chance: where utilization is high, they say little against it.
        contradicted = (by_lateness < 0) & (moves > 0)
        belief[:, USE_SLOPE] *= np.where(contradicted, np.where(seen.idle, CONTRADICTED, BUSY_CONTRADICTED), 1.0)
        moves = np.where(by_lateness < 0, np.minimum(moves, 0.0), moves) + by_lateness
        value = belief[:, VALUE] * np.exp(np.clip(moves, -MOST, MOST))
        declared = belief[:, DECLARED]
        # Until utilization was seen to follow the load, low latency has to agree with a rise far above the declaration.
        slowly = np.where(seen.latency < AT_EASE, np.exp(UNPROVEN_RISE * seen.elapsed), 1.0)[:, None]
        unproven = np.maximum(UNPROVEN * declared, belief[:, VALUE] * slowly)
        top = np.where(seen.proven, REACH * declared, np.minimum(unproven, REACH * declared))
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


def measuring(params: Params, state: State, samples: Samples) -> Bool:
    """Return where (N,) the capacity has been measured for less than `MEASURING_SECONDS`."""
    young: Bool = samples.time - state.belief[:, BEGAN] < MEASURING_SECONDS
    return young & params.learns_capacity


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


def _begun(params: Params, belief: Float, samples: Samples) -> Float:
    """Begin anew in the rows whose declared capacity is another than the belief began from."""
    declared = params.requests_per_second
    new = either(~_same(belief[:, DECLARED], declared)) | np.isnan(belief[:, MOVED])
    belief[new] = np.where(np.isin(np.arange(BELIEF), (RATE, 8, 9, NOTED, SPLIT)), belief[new], np.nan)
    belief[new, DECLARED] = belief[new, VALUE] = declared[new]
    belief[new, VARIANCE], belief[new, COVARIANCE] = FIRST**2, ALIKE * FIRST**2
    belief[new, PRESSURE], belief[new, MOVED], belief[new, BEGAN] = 0.0, samples.time[new], samples.time[new]
    return belief


def _by_utilization(belief: Float, seen: Look) -> Float:
    """Return the moves (N, 2) of the logarithms by the Kalman filter, and note variances and covariance."""
    drift, most = DRIFT**2 / 3600 * seen.elapsed, 2 * FIRST**2
    own = np.minimum(belief[:, VARIANCE] + drift[:, None], most)
    bound = 0.95 * np.sqrt(own[:, 0] * own[:, 1])
    shared = np.clip(belief[:, COVARIANCE] + ALIKE * drift, -bound, bound)
    moves = np.zeros_like(own)
    for part, off, variance, says in seen.measured:
        part = np.where(says[:, None], part, 0.0)
        spread = own * part + shared[:, None] * part[:, ::-1]
        innovation = total(spread * part) + variance
        off = np.where(says, off - total(part * moves), 0.0)
        limit = 2 * np.sqrt(np.where(says, innovation, 1.0))
        surprised = np.abs(off) > limit
        gain = np.where(says[:, None], spread / innovation[:, None], 0.0)
        own = np.minimum(own - gain * spread + np.where(surprised[:, None] & (part > 0), SURPRISE**2, 0.0), most)
        shared = shared - gain[:, 0] * spread[:, 1] + np.where(surprised, ALIKE * SURPRISE**2, 0.0)
        moves = moves + gain * np.clip(off, -limit, limit)[:, None]
    belief[:, VARIANCE], belief[:, COVARIANCE] = own, shared
    return moves


def _by_lateness(params: Params, belief: Float, seen: Look) -> Float:
    """Return the moves (N, 2) of the logarithms by latency, where the load does not explain it."""
    latency, informed = seen.latency, np.isfinite(belief[:, RATE])
    unexplained = (belief[:, PRESSURE] < ROOM) & informed
    # Latency that falls is that of a queue that drains: the replicas carry more than arrives.
    drains = latency < DRAINS * belief[:, LATENCY]
    belief[:, LATENCY] = latency
    late = (latency > 1) & unexplained & ~drains
    # A belief above the declared capacity gives way to lateness, whatever utilization says. Another pool with room is
    # not the late one: lowered with the late one it would stay low, since utilization lifts the busy pool alone.
    raised = belief[:, VALUE] > 1.05 * belief[:, DECLARED]
    may_be_late = ~seen.idle | both(seen.idle)[:, None]
    lies = late[:, None] & (raised | (seen.busy[:, None] & may_be_late))
    belief[:, VARIANCE] = np.where(lies, np.maximum(belief[:, VARIANCE], FIRST**2 / 2), belief[:, VARIANCE])
    near = np.clip((latency - NEAR) / (1 - NEAR), 0.0, 1.0) * np.where(seen.of_tokens, TOKEN_MISSES, MISSES)
    # Where utilization says that replicas have room, a slow dependency is late: more replicas would not help.
    misses = np.where(seen.blind & unexplained & ~drains, np.nan_to_num(near), 0.0)
    down = np.where(lies, OVERLOAD, np.where(may_be_late, misses[:, None], 0.0))
    # Low latency alone gives back what near misses took. That a replica carries more than declared takes utilization,
    # unless the objective is on tokens: a server that refuses what is too much answers the rest in time, however full
    # it is.
    top = belief[:, DECLARED] * np.where(seen.of_tokens, TOKEN_RISE, 1.0)[:, None]
    below = either(params.present & ((belief[:, VALUE] < top) | np.isnan(top)))
    loaded = belief[:, PRESSURE] > np.where(seen.of_tokens, TOKEN_LOADED, LOADED)
    eased = seen.blind & ~seen.doubtful & informed & loaded & below & (latency < AT_EASE)
    up = np.where(eased, np.where(seen.of_tokens, TOKEN_EASE, EASE), 0.0)
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
