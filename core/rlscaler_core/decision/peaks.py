"""The highest arrival rates of the last stretch, in buckets of a tenth of it, for the ceiling.

A history of every sample would be as long as the stretch divided by `senseSeconds`; the buckets are always `PEAKS`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlscaler_core.decision.types import PEAKS, Bool, Float, Params, State

BUCKETS = PEAKS - 2
"""Buckets that a stretch is divided into; the newest is being filled, and the oldest may lie across its begin."""


def note_rates(params: Params, state: State, rate: Float, taken: Float, fresh: Bool) -> State:
    """Return `state` with the arrival rates (N,) of the rows that are `fresh` (N,), sampled at `taken` (N,) seconds.

    Call it before the rate goes into the history. Rates before a gap of more than `max_age_seconds` are forgotten: the
    load in the gap is not known.
    """
    times, values = state.peak_time, state.peak_value
    lost = fresh & (taken - state.rate_time[:, -1] > params.max_age_seconds)
    if lost.any():
        times = np.where(lost[:, None], np.nan, times)
    begins = fresh & ~(taken - times[:, -1] < params.ceiling_seconds / BUCKETS)
    if begins.any():
        times = np.where(begins[:, None], _pushed(times, taken), times)
        values = np.where(begins[:, None], _pushed(values, rate), values)
    else:
        values = values.copy()
    values[:, -1] = np.where(fresh, np.maximum(values[:, -1], rate), values[:, -1])
    return replace(state, peak_time=times, peak_value=values)


def note_need(state: State, need: Float, where: Bool) -> State:
    """Return `state` with the need (N,) of the load of this moment, in requests/s, in the rows `where` (N,).

    It counts like an arrival rate of this moment.
    """
    values = state.peak_value.copy()
    values[:, -1] = np.where(where, np.fmax(values[:, -1], need), values[:, -1])
    return replace(state, peak_value=values)


def highest_rate(params: Params, state: State, now: Float) -> Float:
    """Return the highest rate (N,) of the last `ceiling_seconds` before `now` (N,), in requests/s.

    NaN where the rates were not known for the whole stretch.
    """
    begin = (now - params.ceiling_seconds)[:, None]
    ends = np.concatenate([state.peak_time[:, 1:], np.full((len(now), 1), np.inf)], axis=1)
    counts = ~np.isnan(state.peak_time) & (ends > begin)
    highest = np.where(counts, state.peak_value, -np.inf).max(axis=1)
    whole = np.fmin.reduce(state.peak_time, axis=1) <= begin[:, 0]
    return np.where(whole & np.isfinite(highest), highest, np.nan)


def _pushed(buckets: Float, newest: Float) -> Float:
    moved = np.empty_like(buckets)
    moved[:, :-1] = buckets[:, 1:]
    moved[:, -1] = newest
    return moved
