"""The stream level: messages move as volumes from partitions through the consumers that read them, step by step."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.types import Float, Int
from rlscaler_rl.simulation.streams import state as states
from rlscaler_rl.simulation.streams.groups import COLD_STARTS, DRAWS, FAREWELLS, STEP_SECONDS, Groups
from rlscaler_rl.simulation.streams.protocols import JOIN_SECONDS, NOBODY
from rlscaler_rl.simulation.streams.rebalance import Rebalance
from rlscaler_rl.simulation.streams.state import EMPTY, NEVER, RUNNING, SILENT, STARTING, State, running_owner


class StreamLevel:
    """N groups at once."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.state = states.begin(groups)
        self.step = 0

    def scale(self, desired: Int) -> None:
        """Order so many consumers (N,): of too many the newest end first, those that start before others."""
        for row in np.flatnonzero(desired != self.state.target):
            self._scale(int(row), int(desired[row]))

    def _scale(self, row: int, desired: int) -> None:
        state = self.state
        pods = np.flatnonzero((state.pod[row] == STARTING) | (state.pod[row] == RUNNING))
        newest = pods[np.lexsort((-state.number[row, pods], state.pod[row, pods] == RUNNING))]
        for slot in newest[: max(len(pods) - desired, 0)]:
            self._end(row, int(slot))
        for _ in range(desired - len(pods)):
            self._start(row)
        state.target[row] = desired

    def _start(self, row: int) -> None:
        """Order a pod, in a slot that is free or else that of the member that is silent for longest."""
        state, groups = self.state, self.groups
        free = np.flatnonzero(state.pod[row] == EMPTY)
        silent = np.where(state.pod[row] == SILENT, state.gone_at[row], NEVER)
        slot = int(free[0]) if free.size else int(np.argmin(silent))
        if not free.size:
            state.gone_at[row, slot] = NEVER
            Rebalance(groups, state, row).leave(slot, float(state.time[row]))
        low, high = groups.cold_start_low[row], groups.cold_start_high[row]
        drawn = groups.drawn[row, COLD_STARTS, state.created[row] % DRAWS]
        state.pod[row, slot], state.number[row, slot] = STARTING, state.created[row]
        state.ordered_at[row, slot] = state.time[row]
        state.ready_at[row, slot] = state.time[row] + low + (high - low) * drawn
        state.joins_at[row, slot] = state.ready_at[row, slot] + JOIN_SECONDS
        state.busy[row, slot] = 0.0
        state.created[row] += 1

    def _end(self, row: int, slot: int) -> None:
        """End a pod: its consumer commits and leaves its group, or goes without a word."""
        state, groups = self.state, self.groups
        now, rebalance = float(state.time[row]), Rebalance(groups, state, row)
        mine = state.owner[row] == slot
        state.ready_at[row, slot] = state.joins_at[row, slot] = NEVER
        silent = groups.drawn[row, FAREWELLS, state.number[row, slot] % DRAWS] < groups.unclean[row]
        if silent and state.member[row, slot]:
            state.position[row, mine] = state.committed[row, mine]
            state.gone_at[row, slot] = rebalance.last_beat(slot, now) + groups.session_seconds[row]
            state.pod[row, slot] = SILENT
            state.departed[row] += 1
            return
        state.committed[row, mine] = state.position[row, mine]
        state.pod[row, slot] = EMPTY
        rebalance.leave(slot, now)

    def advance(self) -> None:
        """Let `STEP_SECONDS` pass."""
        state = self.state
        until = state.time + STEP_SECONDS
        first = np.minimum(np.minimum(state.joins_at.min(axis=1), state.gone_at.min(axis=1)), state.round_end)
        passing = np.logical_or.reduce(state.heir != NOBODY, axis=1)
        for row in np.flatnonzero((first <= until) | passing):
            rebalance = Rebalance(self.groups, state, int(row))
            rebalance.until(float(until[row]))
            rebalance.hand_over(float(until[row]))
        started = (state.pod == STARTING) & (state.ready_at <= until[:, None])
        running = np.where(state.pod == RUNNING, STEP_SECONDS, 0.0)
        running[started] = (until[:, None] - state.ready_at)[started]
        state.pod[started] = RUNNING
        state.ready_seconds += running.sum(axis=1)
        exists = ((state.pod == STARTING) | (state.pod == RUNNING)).sum(axis=1)
        state.billed += STEP_SECONDS * exists
        self._read(until, running)
        self.step += 1
        state.time = until

    def _read(self, until: Float, running: Float) -> None:
        """Let messages arrive, and process them where a partition is read.

        `running` (N, M) are the seconds of the step that each consumer runs. Seconds in which the former owner of a
        partition read it are not available to a newcomer that has it at the end.
        """
        state, groups = self.state, self.groups
        if self.step < groups.steps:
            state.end += groups.arrivals[:, :, self.step]
        reader = running_owner(state)
        runs = np.take_along_axis(running, np.where(reader, state.owner, 0), axis=1)
        time = np.where(reader, np.minimum(read_seconds(state, until), runs), 0.0)
        owner = np.where(reader, state.owner, 0) + state.pod.shape[1] * np.arange(len(state.time))[:, None]
        members = state.pod.shape
        reads = np.bincount(owner.ravel(), (reader & (time > 0)).ravel(), minlength=len(time) * members[1])
        rate = groups.rate_beside((reads.reshape(members) > 0).sum(axis=1).astype(np.int32))[:, None]
        wanted = np.minimum(state.end - state.position, rate * time)
        longest = np.zeros(members).ravel()
        np.maximum.at(longest, owner.ravel(), time.ravel())
        room = rate * longest.reshape(members)
        done = _shared_out(wanted, owner, room)
        worked = np.bincount(owner.ravel(), done.ravel(), minlength=longest.size).reshape(members)
        state.busy = worked / (rate * STEP_SECONDS)
        before = state.position.copy()
        state.position += done
        again = np.minimum(done, np.maximum(state.reached - before, 0.0))
        state.reached = np.maximum(state.reached, state.position)
        state.worked += done.sum(axis=1)
        state.repeated += again.sum(axis=1)
        state.distinct += (done - again).sum(axis=1)
        state.reading_seconds += longest.reshape(members).sum(axis=1)
        self._commit(until, before)

    def _commit(self, until: Float, before: Float) -> None:
        """Commit the positions at the moments of the commits; `before` (N, P) are the positions a step ago."""
        state = self.state
        every = self.groups.commit_seconds[:, None]
        late = until[:, None] - state.commits_at
        due = (late >= 0) & running_owner(state)
        since = np.where(due, np.mod(late, every), 0.0)
        share = np.clip(1.0 - since / STEP_SECONDS, 0.0, 1.0)
        at = before + share * (state.position - before)
        state.committed = np.where(due, np.maximum(state.committed, np.floor(at)), state.committed)
        passed = np.floor(late / every) + 1
        state.commits_at = np.where(late >= 0, state.commits_at + passed * every, state.commits_at)


def read_seconds(state: State, until: Float) -> Float:
    """(N, P) seconds of the step that ends at `until` (N,) in which no stop keeps a partition from being read."""
    end = until[:, None]
    stopped = np.minimum(state.stop_until, end) - np.maximum(state.stop_from, end - STEP_SECONDS)
    return STEP_SECONDS - np.clip(stopped, 0.0, STEP_SECONDS)


def _shared_out(wanted: Float, owner: Int, room: Float) -> Float:
    """(N, P) messages that are processed of those `wanted`, with `room` (N, M) for those of each consumer.

    A consumer takes from its partitions in turn: none waits for another that is far behind. The room that a partition
    with few messages leaves goes to the others.
    """
    left = room.ravel().copy()
    places = owner.ravel()
    rest = wanted.ravel().copy()
    number = np.bincount(places, rest > 0, minlength=len(left))
    share = left / np.maximum(number, 1.0)
    done = np.minimum(rest, share[places])
    rest = rest - done
    left = left - np.bincount(places, done, minlength=len(left))
    demand = np.bincount(places, rest, minlength=len(left))
    fraction = np.where(demand > 0, np.minimum(1.0, left / np.where(demand > 0, demand, 1.0)), 0.0)
    return (done + rest * np.clip(fraction, 0.0, 1.0)[places]).reshape(wanted.shape)
