"""What a contender without a network looks like to the simulator.

A contender drives N episodes at once. It is called at every sensing tick and answers with absolute replica counts,
exactly what `/scale` would receive, and a placement. Bounds, actuator, cold starts, routing and meter of the
simulator are the same for everybody; shield and floor are not applied, because nobody runs HPA or KEDA behind ours.
Contenders that are an actor behind the decision function are in `actors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Int, Params, Placement, Samples, State
from rlscaler_rl.baselines.settings import Pair, Value, pools, rows


class Contender(Protocol):
    """Stateful between one `reset` and the next."""

    def reset(self, params: Params) -> None:
        """A new batch of N episodes starts at time 0."""

    def __call__(self, params: Params, state: State, samples: Samples, rng: np.random.Generator) -> tuple[Int, Int]:
        """(N, 2) desired replicas and (N,) placement, from now until the next tick."""


@dataclass(slots=True)
class Timer:
    """Fires when a control period has passed; all episodes of a batch share one clock."""

    period_seconds: Float  # (N,)
    due: Float | float = -np.inf

    def fires(self, now: float) -> Bool:
        """(N,) rows whose period is over."""
        over = now + 1e-9 >= np.asarray(self.due)
        self.due = np.where(over, now + self.period_seconds, self.due)
        return np.broadcast_to(over, self.period_seconds.shape)


class Periodic(ABC):
    """Recomputes the desired replicas once a control period; the placement is a constant of each row.

    Subclasses implement `size`, and `watch` if they look at every tick.
    """

    period_seconds: Value | None = None
    """Scalar or (N,); None: the action interval."""

    split: Value = Placement.BALANCED
    """Scalar or (N,): the Placement."""

    min_replicas: Pair = 0
    """Raises the policy's own minimum."""

    def reset(self, params: Params) -> None:
        self.params = params
        period = params.interval_seconds if self.period_seconds is None else self.period_seconds
        self.timer = Timer(rows(period, len(params)).astype(np.float64))
        self.desired: Int = np.array(params.min_replicas, dtype=np.int32)
        self.placement: Int = rows(self.split, len(params)).astype(np.int32)
        lowest = np.maximum(params.min_replicas, pools(self.min_replicas, len(params)))
        self.lowest: Int = np.minimum(lowest, params.max_replicas).astype(np.int32)

    def __call__(self, params: Params, state: State, samples: Samples, rng: np.random.Generator) -> tuple[Int, Int]:
        self.watch(samples)
        due = self.timer.fires(float(samples.time[0]))
        if due.any():
            bounded = np.clip(self.size(samples, state), self.lowest, params.max_replicas)
            sized = np.where(params.present, bounded, 0).astype(np.int32)
            self.desired = np.where(due[:, None], sized, self.desired)
        return self.desired, self.placement

    def watch(self, samples: Samples) -> None:  # noqa: B027 - an optional hook
        """Called at every sensing tick, before `size`."""

    @abstractmethod
    def size(self, samples: Samples, state: State) -> Int:
        """Replicas wanted, (N, 2)."""
