"""Rebalances of one group: when members notice a change, which members wait for others, and which partitions move.

In the classic protocol a member learns of a change at its next heartbeat, ends its batch and sends its request to join
again; the round ends when all have. Eager members read nothing from then on. Cooperative ones send it at once and read
on; they give up the partitions that move after the first round, and a second one gives them to their new owners. All
heartbeats begin anew with a round, so they are in step. With KIP-848 there are no rounds: the broker instructs each
member at its own heartbeats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from rlscaler_rl.simulation.streams.groups import DRAWS, MOMENTS, Groups
from rlscaler_rl.simulation.streams.protocols import (
    FETCH_SECONDS,
    MORE_SECONDS,
    NOBODY,
    POLL_SECONDS,
    PROTOCOLS,
    SYNC_SECONDS,
    in_ranges,
    sticky,
)
from rlscaler_rl.simulation.streams.state import EMPTY, NEVER, SILENT, State


class Rebalance:
    """The membership of the group in one row; everything it changes is in the state."""

    def __init__(self, groups: Groups, state: State, row: int) -> None:
        self.row, self.state = row, state
        self.protocol = PROTOCOLS[groups.protocol[row]]
        self.rate, self.batch_seconds = float(groups.rate[row]), float(groups.batch[row] / groups.rate[row])
        self.drawn = groups.drawn[row, MOMENTS]
        partitions = slice(0, int(groups.partitions[row]))
        self.owner, self.heir = state.owner[row, partitions], state.heir[row, partitions]
        self.given_up = state.given_up[row, partitions]
        self.stop_from, self.stop_until = state.stop_from[row, partitions], state.stop_until[row, partitions]
        self.end = state.end[row, partitions]
        self.position, self.committed = state.position[row, partitions], state.committed[row, partitions]
        self.pod, self.number, self.member = state.pod[row], state.number[row], state.member[row]
        self.beat, self.asked = state.beat[row], state.asked[row]
        self.joins_at, self.gone_at = state.joins_at[row], state.gone_at[row]

    def until(self, moment: float) -> None:
        """Let everything happen that is due until the moment, in its order."""
        while True:
            joins, leaves = int(np.argmin(self.joins_at)), int(np.argmin(self.gone_at))
            round_end = float(self.state.round_end[self.row])
            first = min(self.joins_at[joins], self.gone_at[leaves], round_end)
            if first > moment:
                return
            if first == round_end:
                self._end_round(first)
            elif first == self.joins_at[joins]:
                self.joins_at[joins] = NEVER
                self._join(joins, first)
            else:
                self.gone_at[leaves], self.pod[leaves] = NEVER, EMPTY
                self.leave(leaves, first)

    def _join(self, slot: int, at: float) -> None:
        """A consumer asks to become a member."""
        if self.protocol.broker_shares:
            self.member[slot], self.beat[slot] = True, at
            self._share(at)
        else:
            self.asked[slot] = at
            self._go_round(at)

    def leave(self, slot: int, at: float) -> None:
        """The group learns that a consumer is gone; it need not have become a member."""
        known = bool(self.member[slot]) or self.asked[slot] < NEVER
        self.member[slot], self.asked[slot] = False, NEVER
        self.owner[self.owner == slot] = NOBODY
        self.heir[self.heir == slot] = NOBODY
        if not known:
            return
        if self.protocol.broker_shares:
            self._share(at)
        else:
            self._go_round(at)

    def last_beat(self, slot: int, at: float) -> float:
        """The member's last heartbeat before `at`."""
        return self._beat_at(slot, math.floor((at - self.beat[slot]) / self.protocol.heartbeat_seconds))

    def _next_beat(self, slot: int, at: float) -> float:
        return self._beat_at(slot, math.ceil((at - self.beat[slot]) / self.protocol.heartbeat_seconds - 1e-9))

    def _beat_at(self, slot: int, count: int) -> float:
        return float(self.beat[slot] + count * self.protocol.heartbeat_seconds)

    def _notices(self, slot: int, at: float) -> float:
        """When a member answers to a change at `at`: at its next heartbeat, or at the end of its batch then.

        A cooperative member keeps its partitions for the first round, so it asks to join while it works.
        """
        if self.pod[slot] == SILENT:
            return float(self.gone_at[slot])
        keeps = not (self.protocol.stops_all or self.protocol.broker_shares)
        return self._next_beat(slot, at) + (0.0 if keeps else self._rest_of_batch(slot))

    def _rest_of_batch(self, slot: int) -> float:
        """Seconds until a member ends its batch, if it works: messages that waited, or came by its last poll and while
        it worked, and no more than a whole batch."""
        used = self.state.moments[self.row]
        self.state.moments[self.row] += 1
        busy = float(self.state.busy[self.row, slot])
        waits = float((self.end - self.position)[self.owner == slot].sum())
        came = POLL_SECONDS * busy / max(1.0 - busy, POLL_SECONDS / self.batch_seconds)
        return float(self.drawn[used % DRAWS] * busy * min(self.batch_seconds, waits / self.rate + came))

    def _members(self) -> list[int]:
        """In the order in which their pods were created."""
        slots = np.flatnonzero(self.member)
        return [int(slot) for slot in slots[np.argsort(self.number[slots], kind="stable")]]

    def _go_round(self, at: float) -> None:
        """Begin a round of the classic protocol at `at`, or go on with the one under way with those who ask."""
        for slot in self._members():
            if self.asked[slot] == NEVER:
                self.asked[slot] = self._notices(slot, at)
                if self.protocol.stops_all and self.pod[slot] != SILENT:
                    self._stop(np.flatnonzero(self.owner == slot), self.asked[slot])
        joins = self.asked[self.asked < NEVER]
        self.state.round_end[self.row] = max(joins.max(), at) + SYNC_SECONDS if joins.size else NEVER

    def _stop(self, partitions: Iterable[int], at: float) -> None:
        """They are read until `at`, and from a moment on that is not known yet."""
        for partition in partitions:
            self.stop_from[partition], self.stop_until[partition] = at, NEVER

    def _end_round(self, at: float) -> None:
        """Every member knows its partitions."""
        joined = self.asked < NEVER
        self.member[:] = joined
        self.beat[joined] = at
        self.asked[:] = NEVER
        self.state.round_end[self.row] = NEVER
        self.state.generation[self.row] += 1
        if self.protocol.stops_all:
            self._give(range(len(self.owner)), in_ranges(len(self.owner), self._members()), at)
        else:
            self._give_cooperatively(at)

    def _give(self, partitions: Iterable[int], target: np.ndarray, at: float) -> None:
        """Partitions whose former owner has stopped get their new one; one that has read on ends its batch first."""
        reading = [] if self.protocol.stops_all else [slot for slot in self._members() if slot in self.owner]
        waits = {slot: self._rest_of_batch(slot) + MORE_SECONDS for slot in reading}
        for partition in partitions:
            if self.owner[partition] == NOBODY or self.stop_until[partition] < NEVER:
                self.stop_from[partition] = -NEVER
            self.owner[partition] = target[partition]
            self.stop_until[partition] = at + waits.get(int(target[partition]), 0.0) + FETCH_SECONDS
            self.given_up[partition] = False
            self.committed[partition] = self.position[partition]

    def _give_cooperatively(self, at: float) -> None:
        """Free partitions get their owner; those that are to move are given up, and one more round gives them."""
        free = self.given_up | (self.owner == NOBODY)
        target = sticky(np.where(free, NOBODY, self.owner), self._members())
        self._give(np.flatnonzero(free), target, at)
        moves = np.flatnonzero(self.owner != target)
        for slot in dict.fromkeys(self.owner[moves].tolist()):
            self.asked[slot] = at + self._rest_of_batch(slot) if self.pod[slot] != SILENT else self.gone_at[slot]
            mine = moves[self.owner[moves] == slot]
            self._stop(mine, self.asked[slot])
            self.given_up[mine] = True
        if moves.size:
            self._go_round(float(self.asked.min()))

    def _share(self, at: float) -> None:
        """The broker shares the partitions anew (KIP-848); each member gives up and takes at its own heartbeats."""
        self.state.generation[self.row] += 1
        holder = np.where(self.heir != NOBODY, self.heir, self.owner)
        target = sticky(holder, self._members())
        without_heir = self.given_up & (self.heir == NOBODY)
        for partition in np.flatnonzero((holder != target) | (target == NOBODY) | without_heir):
            self._pass_on(int(partition), int(target[partition]), at)

    def _pass_on(self, partition: int, heir: int, at: float) -> None:
        """A partition goes to its heir as soon as its owner has given it up."""
        owner = int(self.owner[partition])
        if heir == owner and (heir == NOBODY or self.stop_from[partition] > at):
            self.heir[partition], self.given_up[partition] = NOBODY, False
            self.stop_from[partition] = self.stop_until[partition] = -NEVER
            return
        if owner == NOBODY:
            self.stop_from[partition] = -NEVER
        elif not self.given_up[partition]:
            self.stop_from[partition], self.given_up[partition] = self._notices(owner, at), True
        self.heir[partition] = heir
        free = max(at, float(self.stop_from[partition]))
        more = MORE_SECONDS if heir in self.owner else 0.0
        self.stop_until[partition] = self._next_beat(heir, free) + self._rest_of_batch(heir) + more + FETCH_SECONDS

    def hand_over(self, moment: float) -> None:
        """Heirs whose heartbeat has come begin to read (KIP-848)."""
        due = np.flatnonzero((self.heir != NOBODY) & (self.stop_until - FETCH_SECONDS <= moment))
        self.owner[due], self.heir[due], self.given_up[due] = self.heir[due], NOBODY, False
        self.committed[due] = self.position[due]
