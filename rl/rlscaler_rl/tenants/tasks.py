"""Tasks of a public trace on groups of machines, with the three roles of HRAC: compute, storage and scheduler.

A group offers cores and memory, which the compute and the storage agent raise or lower by up to two units beside a rule
that offers the use of its tasks, its part of the waiting ones, and a unit more. The scheduler agent bids for the tasks
that come. Every step is a minute. Tasks come in the order of the trace at equal distances, since its own arrivals take
months; a task runs as long as in the trace, an hour at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.arbiter.learned import FACTORS
from rlscaler_core.decision.types import Float, Float32
from rlscaler_rl.tenants.environment import AS_THE_RULE, SLOTS, WIDTH, Rewards
from rlscaler_rl.workloads import Part

STEP_S = 60.0
STEPS, MOST_STEPS = 120, 60
"""Steps of an episode, and of the longest task."""
UNIT, MOST = np.array([8.0, 16.0]), np.array([1024.0, 4096.0])
"""Cores and GiB by which the offer of a group changes, and the most that it offers."""
TRIED = 24
"""Waiting tasks that a step tries to place, the oldest first."""
WAIT_COST = 0.1
"""Cost of a minute that the mean task waits, in idle shares: ten points of use."""
PARTS = {Part.TRAIN: (0.0, 0.6), Part.TUNE: (0.6, 0.75), Part.TEST: (0.75, 1.0)}
"""Begin and end of each part of the trace."""


class Tasks(NamedTuple):
    """T tasks in the order of their creation."""

    requests: Float
    """(T, 2) cores and GiB."""
    steps: NDArray[np.int64]
    """(T,) for which each runs."""

    @classmethod
    def of(cls, requests: Float, seconds: Float) -> Tasks:
        """Return tasks of these lifetimes."""
        return cls(requests, np.clip(np.ceil(seconds / STEP_S), 1, MOST_STEPS).astype(np.int64))

    def part(self, part: Part) -> Tasks:
        """Return the tasks of a part of the trace."""
        begin, end = (int(share * len(self.steps)) for share in PARTS[part])
        return Tasks(self.requests[begin:end], self.steps[begin:end])


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of an episode, (P,) each."""

    use: Float
    """Used share of the offer, the mean of cores and memory, 0 to 1."""
    waited: Float
    """Minutes that the mean task waited."""

    @property
    def cost(self) -> Float:
        """Idle share and the cost of waiting, (P,)."""
        return 1.0 - self.use + WAIT_COST * self.waited


class TasksEnv:
    """P clusters of M groups, played side by side; arrays are laid out as in `TenantsEnv`."""

    def __init__(self, tasks: Tasks, pools: int, groups: int, count: int = 1000, lost: float = 0.0) -> None:
        """`count` tasks come in an episode. `lost` is the probability that an agent observes nothing in a step."""
        self._tasks, self._each, self._groups, self._count, self._lost = tasks, pools, groups, count, lost

    def reset(self, *seeds: int) -> Float32:
        """Begin an episode of as many clusters for each seed; returns `seen`."""
        draws = [np.random.default_rng([seed, pool]) for seed in seeds for pool in range(self._each)]
        self._rng, p, m = np.random.default_rng([*seeds, 11]), len(draws), self._groups
        # Tasks of one time are alike: an episode has neighbours in the trace.
        first = [int(draw.integers(len(self._tasks.steps))) for draw in draws]
        chosen = (np.array(first)[:, None] + np.arange(self._count)) % len(self._tasks.steps)
        self._requests, self._steps = self._tasks.requests[chosen], self._tasks.steps[chosen]
        self._group, self._end = np.full((p, self._count), -1), np.zeros((p, self._count), np.int64)
        self._come, self._clock = 0, 0
        self._used, self._offered = np.zeros((p, m, 2)), np.zeros((p, m, 2))
        self._sums = np.zeros((2, p))
        self.seen = self._look()
        return self.seen

    def step(self, actions: NDArray[np.int64]) -> tuple[Float32, Rewards, bool]:
        """Take the actions (P, M, 3), 0 to 4, and let a minute pass; True at the end of the episode."""
        level = np.ceil((self._used + self._queued()[:, None] / self._groups) / UNIT) + 1.0
        level += actions[..., :2] - AS_THE_RULE
        self._offered = np.clip(level * UNIT, self._used, MOST)
        self._clock += 1
        self._leave()
        self._come = self._count * self._clock // STEPS
        self._place(np.array(FACTORS)[actions[..., 2]])
        idle = 1.0 - self._used / np.maximum(self._offered, 1e-9)
        use = (self._used.sum(1) / np.maximum(self._offered.sum(1), 1e-9)).mean(-1)
        waited = self._waiting().sum(-1) * STEPS / self._count
        self._sums += use, waited
        wait = WAIT_COST * waited
        local = -np.stack([*np.moveaxis(idle, -1, 0), idle.mean(-1)], -1) - wait[:, None, None]
        self.seen = self._look()
        rewards = Rewards(local.astype(np.float32), (use - 1.0 - wait).astype(np.float32))
        return self.seen, rewards, self._clock >= STEPS

    def figures(self) -> Figures:
        """Return the figures of the episode until now."""
        return Figures(*(self._sums / self._clock))

    def _waiting(self) -> NDArray[np.bool_]:
        there = np.arange(self._count) < self._come
        return there & (self._end == 0)

    def _queued(self) -> Float:
        """Cores and GiB that wait, (P, 2)."""
        queued: Float = np.einsum("pt,ptr->pr", self._waiting().astype(float), self._requests)
        return queued

    def _leave(self) -> None:
        pool, task = np.nonzero((self._group >= 0) & (self._end == self._clock))
        np.subtract.at(self._used, (pool, self._group[pool, task]), self._requests[pool, task])
        self._group[pool, task] = -1

    def _place(self, bids: Float) -> None:
        """Place waiting tasks: of the groups with room the highest bid by fullness."""
        waiting = self._waiting()
        oldest = np.argsort(~waiting, axis=1, kind="stable")[:, :TRIED]
        rows = np.arange(len(waiting))
        for task in oldest.T[: int(waiting.sum(-1).max())]:
            request = self._requests[rows, task][:, None]
            room = (self._offered - self._used >= request).all(-1) & waiting[rows, task][:, None]
            full = (self._used / np.maximum(self._offered, 1e-9)).mean(-1)
            group = np.where(room, bids * (1.0 + full), -1.0).argmax(-1)
            placed = room.any(-1)
            pool, into, which = rows[placed], group[placed], task[placed]
            self._used[pool, into] += self._requests[pool, which]
            self._group[pool, which] = into
            self._end[pool, which] = self._clock + self._steps[pool, which]

    def _look(self) -> Float32:
        """Return the observations (P, M, 3, WIDTH); 0 where they are lost, with a column that marks known ones."""
        p, m = self._used.shape[:2]
        idle = (self._offered - self._used) / UNIT / 8.0
        shared = np.concatenate([self._queued() / MOST, self._waiting().sum(-1, keepdims=True) / TRIED], -1)
        everywhere = np.concatenate([self._used.sum(1) / MOST / m, idle.mean(1), shared], -1)
        own = np.concatenate([self._offered / MOST, self._used / MOST, idle], -1)
        columns = [own, np.broadcast_to(everywhere[:, None], (p, m, everywhere.shape[-1])), np.ones((p, m, 1))]
        table = np.zeros((p, m, len(SLOTS), WIDTH), np.float32)
        seen = np.concatenate(columns, -1)
        table[..., : seen.shape[-1]] = seen[:, :, None]
        table[self._rng.random((p, m, len(SLOTS))) < self._lost] = 0.0
        return table
