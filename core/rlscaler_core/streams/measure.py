"""From offsets to production, service rate and lag in messages and in seconds. Pure.

Committed offsets are a sawtooth below the read position: at 1,000 messages/s and a commit each 5 s they are 2,500
behind in the mean. So the position of each partition is extrapolated from its last commit at the rate between commits,
for about as long as commits are apart; where they stay away longer, it is not.

The lag in seconds is the age of the oldest message that was not read: the time at which the end of the partition
passed the position, from the ends that were seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Int, Rows
from rlscaler_core.streams.commits import note_commits, position, processed
from rlscaler_core.streams.consumers import learn_service, settle
from rlscaler_core.streams.tables import SHORTEST_SECONDS, Look, Memory

WINDOW_SECONDS = 15.0
"""Production is measured over so long, and since the look before at least."""

TRAFFIC_SECONDS = 600.0
"""A partition without a message for so long has no traffic, nor has it any use for a consumer."""

UNSURE_SECONDS = 60.0
"""Time for which the lag of a partition that never had a commit is not sure, and while messages come to it."""

STUCK_SECONDS, STUCK_GAPS = 30.0, 4.0
"""A partition with messages that has not moved for so many seconds, and so many usual times between commits, while
others move: one message that cannot be processed is enough for that, and no number of consumers helps."""

PERCENTILE = 0.95
"""Of the messages: so many wait at most as long as `Measured.lag_seconds`."""


@dataclass(slots=True)
class Measured(Rows):
    """Measurements from a look together with those before; NaN = not known."""

    production: Float  # (N,) messages/s that are written
    processed: Float  # (N,) messages/s that the group processes, by its commits
    lag_messages: Float  # (N,) that wait, without those of partitions that are stuck
    lag_seconds: Float  # (N,) that 95 % of the messages wait at most
    worst_lag_seconds: Float  # (N,) of the partition that is furthest behind
    service_rate: Float  # (N,) messages/s that one consumer can process
    skew: Float  # (N,) the busiest partition's production, as a multiple of the mean of those with traffic
    partitions: Int  # (N,) that there are
    with_traffic: Int  # (N,) that have messages; all of them until they were watched for long enough
    stuck: Int  # (N,) that do not move while others do
    members: Int  # (N,)
    settling: Bool  # (N,) a rebalance is under way, or newcomers have not joined or committed yet
    certain: Bool  # (N,) nothing in it is a lower bound alone: replicas may be lowered by it


def measure(memory: Memory, look: Look) -> tuple[Measured, Memory]:
    """Measure N groups by a look (P partitions) and the memory of those before; give the new memory beside it.

    A row of which the end of any partition is not known is not known, and leaves its memory as it was.
    """
    complete: Bool = np.logical_and.reduce(~look.there | ~np.isnan(look.end), axis=1) & look.there.any(axis=1)
    before = memory
    memory = _noted(memory, look)
    memory, reset = note_commits(memory, look, before.time[:, -1])
    rates = _production(memory, look.time)
    waits, sure = _waiting(memory, look)
    age = _age(memory, look, look.end - waits, rates)
    stuck = _stuck(memory, look, waits)
    memory = learn_service(memory, look, before, age, stuck)
    memory, settling = settle(memory, look, waits)
    recent = (look.time[:, None] - memory.traffic_time <= TRAFFIC_SECONDS) | (waits > 0)
    watched = look.time - memory.begun >= TRAFFIC_SECONDS
    partitions = look.there.sum(axis=1)
    traffic = np.where(watched, (recent & look.there).sum(axis=1), partitions)
    known: Bool = complete & np.logical_and.reduce(~(reset & look.there), axis=1)
    lag = np.where(look.there & ~stuck, waits, 0.0).sum(axis=1)
    none = ~(look.there & ~(np.isnan(look.committed) & (look.owner < 0))).any(axis=1)
    lag = np.where(known & ~(none & (look.members == 0)), lag, np.nan)
    measured = Measured(
        production=np.where(complete, np.where(look.there, rates, 0.0).sum(axis=1), np.nan),
        processed=np.where(known, processed(memory, look), np.nan),
        lag_messages=lag,
        lag_seconds=np.where(np.isnan(lag), np.nan, _percentile(age, rates, waits, look.there & ~stuck)),
        worst_lag_seconds=np.where(np.isnan(lag), np.nan, np.where(look.there, age, 0.0).max(axis=1)),
        service_rate=_published(memory),
        skew=_skew(rates, look.there),
        partitions=partitions.astype(np.int32),
        with_traffic=traffic.astype(np.int32),
        stuck=stuck.sum(axis=1).astype(np.int32),
        members=look.members,
        settling=settling,
        certain=known & np.logical_and.reduce(sure | ~look.there, axis=1),
    )
    return measured, _kept(before, memory, complete)


def _kept(before: Memory, after: Memory, complete: Bool) -> Memory:
    """Return the memory `after` in the rows (N,) that are `complete`, and `before` in the others."""
    if complete.all():
        return after
    noted = after.copy()
    rows = np.flatnonzero(~complete)
    noted.put(rows, before, rows)
    return noted


def _noted(memory: Memory, look: Look) -> Memory:
    """Note the ends of the partitions. The memory of a partition that is another one now is forgotten."""
    last = memory.end[:, :, -1]
    with np.errstate(invalid="ignore"):
        other = look.renewed | ~look.there | (look.end < last)
        came = look.end > last
    end = np.where(other[:, :, None], np.nan, memory.end)
    # A partition that a topic has grown by was empty when it was not there yet.
    born = look.there & ~look.renewed & (memory.owner == -2) & ~np.isnan(memory.time[:, -1:])
    end[:, :, -1] = np.where(born, np.fmin(look.start, look.end), end[:, :, -1])
    came |= born & (look.end > look.start)
    forgotten = {
        name: np.where(other, np.nan, getattr(memory, name))
        for name in ("committed", "commit_time", "gap", "rate", "baseline", "baseline_time", "traffic_time")
    }
    forgotten["traffic_time"] = np.where(came, look.time[:, None], forgotten["traffic_time"])
    return replace(
        memory,
        time=np.concatenate([memory.time[:, 1:], look.time[:, None]], axis=1),
        end=np.concatenate([end[:, :, 1:], look.end[:, :, None]], axis=2),
        begun=np.where(np.isnan(memory.begun), look.time, memory.begun),
        **forgotten,
    )


def _production(memory: Memory, now: Float) -> Float:
    """Return messages/s (N, P) over the window; NaN where a partition was seen once only."""
    begins = np.fmin(now - WINDOW_SECONDS, memory.time[:, -2])
    within = (memory.time >= begins[:, None])[:, None, :] & ~np.isnan(memory.end)
    first = within.argmax(axis=2)
    begin = np.take_along_axis(memory.end, first[:, :, None], 2)[:, :, 0]
    since = np.take_along_axis(np.broadcast_to(memory.time[:, None, :], memory.end.shape), first[:, :, None], 2)
    span = now[:, None] - since[:, :, 0]
    long = span >= SHORTEST_SECONDS
    return np.where(long, (memory.end[:, :, -1] - begin) / np.where(long, span, 1.0), np.nan)


def _waiting(memory: Memory, look: Look) -> tuple[Float, Bool]:
    """Return the messages (N, P) that wait, NaN where it is not known, and where that is sure."""
    at = np.maximum(position(memory, look), np.where(np.isnan(look.start), -np.inf, look.start))
    behind = np.clip(look.end - at, 0.0, None)
    never = np.isnan(look.committed)
    from_start = np.clip(look.end - look.start, 0.0, None)
    since = np.clip(look.end - memory.baseline, 0.0, None)
    waits = np.where(never, np.where(look.earliest[:, None], from_start, since), behind)
    young = look.time[:, None] - memory.baseline_time < UNSURE_SECONDS
    empty = look.end == look.start
    sure = ~never | look.earliest[:, None] | empty | ((since == 0) & ~young)
    return waits, sure


def _age(memory: Memory, look: Look, at: Float, rates: Float) -> Float:
    """Return the seconds (N, P) since the end of a partition passed `at`; 0 where nothing waits, NaN = not known.

    Messages older than every remembered end count as having come at the rate of production, or else of consumption.
    """
    now = look.time[:, None]
    end, time = memory.end, np.broadcast_to(memory.time[:, None, :], memory.end.shape)
    filled = ~np.isnan(end)
    empty = (~filled).sum(axis=2)
    with np.errstate(invalid="ignore"):
        passed = empty + (end <= at[:, :, None]).sum(axis=2) - 1
    older = passed < empty
    low = np.clip(passed, 0, end.shape[2] - 2)[:, :, None]
    low_end, high_end = (np.take_along_axis(end, low + step, 2)[:, :, 0] for step in (0, 1))
    low_time, high_time = (np.take_along_axis(time, low + step, 2)[:, :, 0] for step in (0, 1))
    step = high_end - low_end
    share = np.where(step > 0, (at - low_end) / np.where(step > 0, step, 1.0), 0.0)
    between = now - (low_time + share * (high_time - low_time))
    oldest = np.clip(empty, 0, end.shape[2] - 1)[:, :, None]
    oldest_end, oldest_time = (np.take_along_axis(each, oldest, 2)[:, :, 0] for each in (end, time))
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(rates > 0, rates, np.where(memory.rate > 0, memory.rate, np.nan))
        before = now - oldest_time + (oldest_end - at) / rate
    age = np.where(older, before, between)
    return np.where(look.end - at <= 0, 0.0, age)


def _stuck(memory: Memory, look: Look, waits: Float) -> Bool:
    """Return where (N, P) a partition with a reader has messages and does not move while another one does."""
    usual = np.where(np.isnan(memory.gap), 0.0, memory.gap).max(axis=1, initial=0.0)
    limit = np.maximum(STUCK_SECONDS, STUCK_GAPS * usual)[:, None]
    since = np.where(np.isnan(memory.commit_time), memory.begun[:, None], memory.commit_time)
    rests = (look.time[:, None] - since > limit) & (waits > 0) & (look.owner >= 0) & look.there
    moves = (look.time[:, None] - memory.commit_time <= limit) & ~np.isnan(memory.rate) & look.there
    quiet = look.time - np.where(np.isnan(memory.changed_time), -np.inf, memory.changed_time) > limit[:, 0]
    stuck: Bool = rests & (moves.any(axis=1) & look.stable & quiet)[:, None]
    return stuck


def _percentile(age: Float, rates: Float, waits: Float, counts: Bool) -> Float:
    """Return the age (N,) that `PERCENTILE` of the messages have at most; partitions weigh by their production."""
    shares = np.where(counts, np.nan_to_num(rates), 0.0)
    idle = shares.sum(axis=1) <= 0
    shares = np.where(idle[:, None], np.where(counts, np.nan_to_num(waits), 0.0), shares)
    whole = shares.sum(axis=1)
    ages = np.where(shares > 0, age, 0.0)
    order = np.argsort(ages, axis=1)
    summed = np.cumsum(np.take_along_axis(shares, order, 1), axis=1)
    place = (summed < PERCENTILE * whole[:, None]).sum(axis=1)
    place = np.minimum(place, ages.shape[1] - 1)
    oldest = np.take_along_axis(np.take_along_axis(ages, order, 1), place[:, None], 1)[:, 0]
    lost = np.isnan(ages).any(axis=1)
    return np.where(lost, np.nan, np.where(whole > 0, oldest, 0.0))


def _skew(rates: Float, there: Bool) -> Float:
    busy = there & (rates > 0)
    number = busy.sum(axis=1)
    whole = np.where(busy, rates, 0.0)
    mean = whole.sum(axis=1) / np.maximum(number, 1)
    return np.where(number > 0, whole.max(axis=1, initial=0.0) / np.where(mean > 0, mean, 1.0), np.nan)


SERVED_SECONDS = 10.0
"""Seconds under full load after which a service rate is published."""


def _published(memory: Memory) -> Float:
    return np.where(memory.served_seconds >= SERVED_SECONDS, memory.served, np.nan)
