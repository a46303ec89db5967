"""The same course in the stream level of the simulator, on the messages that were written."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from benchmarks.stream_calibration.course import BATCHES, CHANGES, MESSAGE_SECONDS, Course
from benchmarks.stream_calibration.figures import Figures, mean

from rlscaler_core.decision.types import Float, Int
from rlscaler_rl.simulation.streams.assignors import NOBODY
from rlscaler_rl.simulation.streams.episode import played
from rlscaler_rl.simulation.streams.groups import STEP_SECONDS, Groups, given_messages
from rlscaler_rl.simulation.streams.level import StreamLevel, read_seconds
from rlscaler_rl.simulation.streams.state import RUNNING, running_owner


def figures(course: Course, arrivals: Float, beats: Float, draws: int) -> Figures:
    """The mean over `draws` groups, which differ in the moments within batches.

    `arrivals` (P, T) are the messages of each step, `beats` (first,) the moments from which the heartbeats of the first
    consumers follow: since then in step with the classic protocol, which begins them anew with each rebalance.
    """
    watch = _Watch(course, groups_of(course, arrivals, draws))
    state = watch.level.state
    state.beat[:, : len(beats)] = beats if course.protocol == "consumer" else beats.max()
    run = played(watch.level, watch.tick)
    p95 = float(run.result.p95_seconds.mean())
    return mean(Figures(*change.costs(), p95) for change in watch.changes)


def groups_of(course: Course, arrivals: Float, draws: int) -> Groups:
    """The groups of a course: consumers start at once, and have as little to say as those on the broker."""
    share = np.repeat(arrivals.sum(axis=1)[None] / arrivals.sum(), draws, axis=0)
    columns = {
        "protocol": course.protocol,
        "partitions": len(arrivals),
        "rate": 1 / MESSAGE_SECONDS,
        "batch": float(BATCHES[course.batch]),
        "cold_start_low": 0.0,
        "cold_start_high": 0.0,
        "initial": course.first,
        "max_replicas": max(course.first, course.second),
    }
    return given_messages(np.repeat(arrivals[None], draws, axis=0), share, np.arange(draws), columns)


@dataclass(slots=True)
class _Change:
    """What is seen of one change, for N groups."""

    at: float
    stayed: Int  # (N, M) bool: slots of consumers that were there before and after
    orphans: Int  # (N, P) bool: partitions of those that left
    begun: Float  # (N, M) when a newcomer began to read; NaN = it has not, or was there before
    found: Float  # (N, P) seconds at which an orphaned partition was read again
    stopped: Float  # (N, M) seconds of the stop that goes on
    longest: Float = field(init=False)  # (N, M) seconds

    def __post_init__(self) -> None:
        self.longest = self.stopped.copy()

    def look(self, level: StreamLevel) -> None:
        """Note what the step that has passed brought."""
        state = level.state
        has = running_owner(state)
        owner = np.where(has, state.owner, 0)
        reads = has & (state.stop_until < state.time[:, None])
        moment = np.where(reads, np.maximum(state.stop_until, self.at), np.inf)
        self.found = np.where(self.orphans & reads & np.isnan(self.found), moment, self.found)
        first = np.full(state.pod.shape, np.inf)
        rows = np.broadcast_to(np.arange(len(owner))[:, None], owner.shape)
        np.minimum.at(first, (rows[has], owner[has]), moment[has])
        self.begun = np.where(np.isnan(self.begun) & np.isfinite(first) & ~self.stayed, first, self.begun)
        time = np.where(has, read_seconds(state, state.time), 0.0)
        longest = np.zeros(state.pod.shape)
        np.maximum.at(longest, (rows[has], owner[has]), time[has])
        idle = np.where(self.stayed, STEP_SECONDS - longest, 0.0)
        self.stopped = np.where(idle > 0, self.stopped + idle, 0.0)
        self.longest = np.maximum(self.longest, self.stopped)

    def costs(self) -> tuple[float, float, float]:
        """Give the mean seconds of join, stop and orphan wait over the groups; NaN where no consumer came or left."""
        came, orphans = np.isfinite(self.begun), np.isfinite(self.found) & self.orphans
        join = float(self.begun[came].mean() - self.at) if came.any() else np.nan
        orphan = float(self.found[orphans].mean() - self.at) if orphans.any() else np.nan
        return join, float(self.longest.max(axis=1).mean()), orphan


class _Watch:
    """Scales the groups at the moments of the course and watches what that brings."""

    def __init__(self, course: Course, groups: Groups) -> None:
        self.level, self.changes = StreamLevel(groups), list[_Change]()
        self._plan = dict(zip(CHANGES, (course.second, course.first), strict=True))

    def tick(self, second: float) -> Int | None:
        if self.changes:
            self.changes[-1].look(self.level)
        if second not in self._plan:
            return None
        state, consumers = self.level.state, self._plan[second]
        rank = np.argsort(
            np.argsort(np.where(state.pod == RUNNING, state.number, np.iinfo(np.int32).max), axis=1), axis=1
        )
        there = state.pod == RUNNING
        stayed = there & (rank < consumers)
        went = there & ~stayed
        orphans = np.take_along_axis(went, np.maximum(state.owner, 0), axis=1) & (state.owner != NOBODY)
        nothing, shape = np.zeros(state.pod.shape), state.pod.shape
        began = np.where(there, -np.inf, np.nan)
        self.changes.append(
            _Change(second, stayed, orphans, began.reshape(shape), np.full(orphans.shape, np.nan), nothing)
        )
        return np.full(len(state), consumers, np.int32)
