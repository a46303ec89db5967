"""Consumers of a stream that process less when there are more of them: when a scale-up is undone.

Consumers that share a database or a downstream service may wait for one another, so that twelve of them process less
than six. While messages wait, a group processes all that it can. So the messages/s of the old number, measured until
the newcomers are there, are compared with those of the new one, measured when the group has come to rest. Where they
fell by more than `MARGIN`, and the loss outweighs the cost of a rebalance, the group goes back to the number that
processed most. If it does not process more with that number, the consumers were not the cause, and it may grow again.
Pure.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from rlscaler_core.decision.behavior import DISABLED, DOWN
from rlscaler_core.decision.partitions import drain, may_lower
from rlscaler_core.decision.situation import Situation
from rlscaler_core.decision.types import TRIAL, Bool, Float, Int, Params, Samples, State

MARGIN = 0.1
"""Share by which the messages/s have to differ: measurements from commits are a few percent off."""

WARM_SECONDS = 15.0
"""A group that has come to rest is not measured for so long: the rates between commits still hold the stop."""

OBSERVE_SECONDS = 30.0
"""Time for which a number of consumers is measured before it is judged."""

REPAY_SECONDS = 120.0
"""Time within which the gain of going back has to outweigh the messages that the last rebalance cost."""

HOLD_SECONDS = 600.0
"""Validity of a verdict; then more consumers are tried again."""

SMOOTH_SECONDS = 5.0
"""Time constant of the mean throughput of the old number: the newest counts, as consumers get busy by and by."""

GAP_SECONDS = 60.0
"""Longest gap between two looks; the time in a longer one counts as not observed."""


class Phase(IntEnum):
    """Phase of a scale-up: it is tried, was undone, holds no more, or was not the cause."""

    RAISED = 1
    UNDONE = 2
    HELD = 3
    EXCUSED = 4


PHASE, FEWER, MORE, BEFORE, AFTER, AGAIN, PRICE, SINCE, TIME, UNTIL = range(TRIAL)
"""Columns of `State.trial`: a `Phase`; the number of consumers that processed most so far, and the one that is tried;
messages/s of the former, of the latter, and of the former again; messages that were not processed meanwhile; and unix
seconds: since when the group is at rest, of the last look, and until when the verdict holds. NaN: not known, and all of
them where there was no scale-up, or nothing came of it."""


def keep_throughput(now: Situation, desired: Int) -> Int:
    """The guard: cap consumers (N, 2) at the count with the highest measured throughput until the cap expires.

    A scale-up that lowered the throughput is undone at an action, where the group is at rest, the lag is known, no
    pods start, and the user lets consumers go.
    """
    params, samples = now.params, now.samples
    if not follows(params, now.state, samples).any():
        return desired
    trial = _observed(now)
    now.state.trial = trial
    phase, fewer = trial[:, PHASE], np.nan_to_num(trial[:, FEWER]).astype(np.int32)[:, None]
    capped = (phase == Phase.UNDONE) | (phase == Phase.HELD)
    allowed: Bool = ~params.has_behavior | (params.select_policy[:, DOWN] != DISABLED)
    lowers = (phase == Phase.UNDONE) & may_lower(now) & allowed & ~samples.paused_scale_down
    most = np.where(lowers[:, None], fewer, np.maximum(now.base, fewer))
    bounded = np.where(capped[:, None] & params.present, np.minimum(desired, most), desired)
    return bounded.astype(np.int32, copy=False)


def follows(params: Params, state: State, samples: Samples) -> Bool:
    """Return where (N,) the throughput of a group is known, or a trial of it is noted."""
    where: Bool = params.stream & (np.isfinite(samples.processed) | np.isfinite(state.trial[:, PHASE]))
    return where


def note_raise(now: Situation, desired: Int) -> None:
    """Note where (N,) consumers are added, as a trial of the new number.

    Where an earlier trial was not judged yet, the number that processed most so far stays the one to go back to.
    """
    rows = now.params.stream
    if not rows.any():
        return
    trial = now.state.trial
    phase, base, number = trial[:, PHASE], _all(now.base), _all(desired)
    unjudged = (phase == Phase.RAISED) & (number > trial[:, MORE])
    with np.errstate(invalid="ignore"):
        better = unjudged & ~(trial[:, AFTER] <= trial[:, BEFORE]) & np.isfinite(trial[:, AFTER])
    begins = rows & (number > base) & np.isfinite(now.samples.processed) & (np.isnan(phase) | unjudged)
    if not begins.any():
        return
    trial = trial.copy()
    fresh = begins & ~unjudged
    trial[better & begins, BEFORE] = trial[better & begins, AFTER]
    trial[better & begins, FEWER] = trial[better & begins, MORE]
    trial[fresh, FEWER], trial[fresh, BEFORE] = base[fresh], np.nan
    trial[begins, PHASE], trial[begins, MORE] = Phase.RAISED, number[begins]
    trial[begins, AFTER] = trial[begins, AGAIN] = trial[begins, SINCE] = trial[begins, UNTIL] = np.nan
    trial[begins, PRICE], trial[begins, TIME] = 0.0, now.samples.time[begins]
    now.state.trial = trial


def _observed(now: Situation) -> Float:
    """Return the trials (N, TRIAL) with the measurements of this look, and with the verdicts that they allow."""
    samples, trial = now.samples, now.state.trial.copy()
    time, processed = samples.time, samples.processed
    base, ready = _all(now.base), _all(samples.ready_replicas)
    passed = time - trial[:, TIME]
    seen = np.isfinite(processed) & np.isfinite(samples.lag_messages) & (passed > 0) & (passed <= GAP_SECONDS)
    busy = drain(now.params, samples) > 0
    rests = seen & ~samples.settling & (ready == base)
    raised, undone = trial[:, PHASE] == Phase.RAISED, trial[:, PHASE] == Phase.UNDONE

    old = raised & seen & ~samples.settling & busy & (ready <= trial[:, FEWER])
    _toward(trial, BEFORE, old & np.isnan(trial[:, SINCE]), processed, passed / SMOOTH_SECONDS)
    changing = raised & seen & ~rests & (ready > trial[:, FEWER])
    missed = np.maximum(np.nan_to_num(trial[:, BEFORE] - processed), 0.0) * passed
    trial[changing, PRICE] += missed[changing]

    there = rests & ((raised & (base == trial[:, MORE])) | (undone & (base == trial[:, FEWER])))
    trial[there & np.isnan(trial[:, SINCE]), SINCE] = time[there & np.isnan(trial[:, SINCE])]
    measured = time - trial[:, SINCE] - WARM_SECONDS
    with np.errstate(invalid="ignore"):
        counts = there & busy & (measured > 0)
        share = np.where(counts, passed / np.maximum(measured, passed), 0.0)
        _toward(trial, AFTER, counts & raised, processed, share)
        _toward(trial, AGAIN, counts & undone, processed, share)
        due = there & (measured >= OBSERVE_SECONDS)
    trial[:, TIME] = np.where(np.isnan(processed), trial[:, TIME], time)
    # Where the number is neither of the two, somebody else has changed it, and what is noted says nothing any more.
    other = (raised | undone) & (base != trial[:, MORE]) & (base != trial[:, FEWER])
    quick = there & ~busy & raised
    return _judged(trial, time, due & raised, due & undone, there & ~busy & undone, other | quick)


def _toward(trial: Float, column: int, where: Bool, value: Float, share: Float) -> None:
    """Move a mean toward the newest `value` (N,) by a `share` (N,); the first one is taken as it is."""
    old = trial[:, column]
    new = np.where(np.isnan(old), value, old + np.clip(share, 0.0, 1.0) * (value - old))
    trial[:, column] = np.where(where, new, old)


def _judged(trial: Float, time: Float, more: Bool, fewer: Bool, drained: Bool, ended: Bool) -> Float:
    """Return the trials with verdicts: where (N,) `more` or `fewer` consumers were measured for long enough, where the
    lag was `drained` after a scale-up was undone, where a verdict is out of date, and where a trial `ended`."""
    with np.errstate(invalid="ignore"):
        fell = trial[:, AFTER] < (1 - MARGIN) * trial[:, BEFORE]
        worth = (trial[:, BEFORE] - trial[:, AFTER]) * REPAY_SECONDS > trial[:, PRICE]
        helped = drained | (trial[:, AGAIN] >= (1 + MARGIN / 2) * trial[:, AFTER])
        over = ((trial[:, PHASE] == Phase.HELD) | (trial[:, PHASE] == Phase.EXCUSED)) & (time >= trial[:, UNTIL])
    undo = more & fell & worth
    told = fewer | drained
    trial[undo, PHASE], trial[undo, SINCE] = Phase.UNDONE, np.nan
    trial[told, PHASE] = np.where(helped, Phase.HELD, Phase.EXCUSED)[told]
    trial[told, UNTIL] = time[told] + HOLD_SECONDS
    forgotten = (more & ~undo) | ended | over
    trial[forgotten] = np.nan
    return trial


def _all(pools: Int) -> Int:
    """Return the consumers (N,) of both pools (N, 2): a group has one."""
    return np.asarray(pools[:, 0] + pools[:, 1], np.int32)
