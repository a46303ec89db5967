"""The headroom of each pool: replicas above those that the forecast rule plans for the same load. Pure.

The steps of a network move it, and it lasts until other steps move it on. It is a factor on the capacity that the rule
plans with, apart from the belief about that capacity: measurements that move the belief leave it as it is. In every
action interval it moves a little towards neutral, so that a headroom without further steps ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.action import POOL_HEADS, REACH
from rlscaler_core.decision.tables import known
from rlscaler_core.decision.types import HEADROOM, POOLS, Bool, Float, Float32, Int, Params, Samples, State

FACTOR, SINCE, OWED, MODEL, NEAR, NOTED = slice(0, 2), slice(2, 4), slice(4, 6), 6, 7, 8
"""Columns of `State.headroom`: by pool the logarithm of planned over needed capacity and the unix seconds since which
it has been on its side of neutral, NaN: neutral; the part of the network's mean steps that no step has made yet; the
number of the network that set it, as in `model_number`; the mean of the near misses, 0 to 1, and when it was noted."""

STEPS = np.array([-0.06, -0.015, 0.0, 0.015, 0.06])
"""Moves of the logarithm by the steps -2..2 of a replica head: fine near neutral, where most of the cost is."""

KEPT = 0.99
"""Part of a headroom that an action interval leaves: half is gone after 69."""

LOWEST, HIGHEST = float(np.log(0.85)), float(np.log(1.6))
"""Bounds of the logarithm: 15 % below the plan, 60 % above it."""

NEUTRAL_BELOW = 0.004
"""A smaller logarithm counts as neutral."""

NEAR_FROM = 0.5
"""Part of the objective from which a 95th percentile counts as near it, the more the nearer, up to 1."""

NEAR_SECONDS = 1800.0
"""Time constant of the mean of the near misses."""


def model_number(digest: str) -> float:
    """Return a number that tells one network from another, by its sha256; 0 for an empty digest."""
    # 48 bits of the digest, which a float holds exactly.
    return float(int(digest[:12] or "0", 16))


def factors(state: State) -> Float:
    """Return planned over needed capacity (N, 2); 1 is neutral."""
    return np.exp(np.nan_to_num(state.headroom[:, FACTOR]))


def steps_of_mean(state: State, probabilities: Float32, model: float) -> tuple[Int, State]:
    """Return the steps (N, 2) that keep up with the mean step of the `probabilities` (N, 13), and the state after them.

    A network trained on sampled actions moves a headroom by the mean of its distribution. The most likely step alone
    is no change as long as the network is sure to less than a half, however long it leans to one side.
    The part of the mean that no step has made yet is carried on to the next interval, as in error diffusion.
    """
    by_pool = np.nan_to_num(np.stack([probabilities[:, head] for head in POOL_HEADS], axis=1))
    headroom = state.headroom.copy()
    before = np.where((headroom[:, MODEL] == model)[:, None], np.nan_to_num(headroom[:, OWED]), 0.0)
    owed = before + (by_pool * STEPS).sum(axis=2)
    chosen = np.abs(owed[:, :, None] - STEPS).argmin(axis=2)
    # Less than half of the largest step is owed by any distribution.
    headroom[:, OWED] = np.clip(owed - STEPS[chosen], -STEPS[-1], STEPS[-1])
    return (chosen - REACH).astype(np.int32), replace(state, headroom=headroom)


def move(params: Params, state: State, samples: Samples, steps: Int, model: float, counts: Bool, ends: Bool) -> State:
    """Return the state after the `steps` (N, 2) of an action interval by the network `model`.

    Where they do not count (N,), because data are unknown or the network failed, the headroom stays as it is; it is
    neutral where it `ends` (N,), because the fallback or the rule alone acts, where another network set it, and in an
    absent pool.
    """
    before, headroom = np.nan_to_num(state.headroom[:, FACTOR]), state.headroom.copy()
    before = np.where((ends | (headroom[:, MODEL] != model))[:, None] | ~params.present, 0.0, before)
    moved = np.clip(KEPT * before + STEPS[steps + REACH], LOWEST, HIGHEST)
    after = np.where(counts[:, None] & params.present, moved, before)
    after = np.where(np.abs(after) < NEUTRAL_BELOW, 0.0, after)
    goes_on = (np.sign(after) == np.sign(before)) & np.isfinite(headroom[:, SINCE])
    since = np.where(goes_on, headroom[:, SINCE], samples.time[:, None])
    headroom[:, FACTOR] = np.where(after == 0, np.nan, after)
    headroom[:, SINCE] = np.where(after == 0, np.nan, since)
    headroom[:, MODEL] = model
    return replace(state, headroom=headroom)


class Above(NamedTuple):
    """Headroom of one pool that is off neutral."""

    percent: float
    """Capacity above the need of the same load, in percent of it."""
    since: float
    """Unix seconds since which it has been on its side of neutral."""


def above(state: State) -> dict[str, Above] | None:
    """Return the headroom of the first row by pool, those that are off neutral; None where no network moves one."""
    row = state.headroom[0]
    if np.isnan(row[MODEL]):
        return None
    percent = 100 * np.expm1(row[FACTOR])
    pools = zip(POOLS, percent.tolist(), row[SINCE].tolist(), strict=True)
    return {pool: Above(value, since) for pool, value, since in pools if np.isfinite(value)}


def in_words(pools: Mapping[str, Above]) -> str:
    """Return headrooms as text, such as `gpu 18 % above the plan since 09:14`, in UTC."""
    texts = []
    for pool, (percent, since) in pools.items():
        clock = datetime.fromtimestamp(since, UTC).strftime("%H:%M")
        texts.append(f"{pool} {abs(percent):.0f} % {'above' if percent > 0 else 'below'} the plan since {clock}")
    return ", ".join(texts) or "as planned"


def neutral(state: State) -> State:
    """Return the state without a headroom, as an actor leaves it that moves none."""
    if np.isnan(state.headroom[:, MODEL]).all():
        return state
    headroom = state.headroom.copy()
    headroom[:, : MODEL + 1] = np.nan
    return replace(state, headroom=headroom)


def note_near_misses(params: Params, state: State, samples: Samples) -> State:
    """Return the state with the near misses of this action interval; unknown latency and no load move nothing."""
    told = known(params, samples)[:, 4] & (samples.arrival_rate > 0)
    if not told.any():
        return state
    headroom = state.headroom.copy()
    elapsed = np.clip(samples.time - headroom[:, NOTED], 0.0, NEAR_SECONDS)
    near = np.clip((samples.p95_ms / params.slo_ms - NEAR_FROM) / (1 - NEAR_FROM), 0.0, 1.0)
    # The first look counts as one interval after a time without near misses.
    elapsed = np.where(np.isnan(elapsed), params.interval_seconds, elapsed)
    mean = np.nan_to_num(headroom[:, NEAR])
    mean = mean + (1 - np.exp(-elapsed / NEAR_SECONDS)) * (near - mean)
    headroom[:, NEAR] = np.where(told, mean, headroom[:, NEAR])
    headroom[:, NOTED] = np.where(told, samples.time, headroom[:, NOTED])
    return replace(state, headroom=headroom)


def resume(state: State, percent: Float, since: Float, model: float) -> None:
    """Restore in place the headroom in percent (2,), NaN: neutral, with the unix seconds since when (2,)."""
    assert state.headroom.shape[1] == HEADROOM
    factor = np.clip(np.log1p(np.maximum(percent, -99.0) / 100), LOWEST, HIGHEST)
    there = np.isfinite(factor) & np.isfinite(since) & (np.abs(factor) >= NEUTRAL_BELOW)
    state.headroom[0, FACTOR], state.headroom[0, SINCE] = (
        np.where(there, factor, np.nan),
        np.where(there, since, np.nan),
    )
    state.headroom[0, MODEL] = model
