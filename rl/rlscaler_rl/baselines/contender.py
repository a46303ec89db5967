"""Common parts of all contenders: the interface to the simulator, settings for whole batches, the cheapest mix.

A contender drives N episodes at once. It is called at every sensing tick and answers with absolute replica counts,
exactly those that `/scale` would receive, and a traffic preference. Bounds, actuator, cold starts, routing and counters
of the simulator are the same for all contenders. Shield and reactive floor are not applied, because no HPA or KEDA runs
behind them in practice. Contenders that are an actor behind the decision function are in `actors`.

A setting is one value for all episodes of a batch, a scalar, or one for each row, (N,). A setting that differs between
the pools is a pair (GPU, CPU) or (N, 2), or a scalar for both. So the code that plays one setting plays thousands in
one batch, each in rows of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import CPU, GPU, Bool, Float, Int, Params, Placement, Samples, State

Value = NDArray[Any] | float
Pair = NDArray[Any] | tuple[float, float] | float

S = TypeVar("S")


class Contender(Protocol):
    """Decides the replicas of a simulated service; it keeps its state from one `reset` to the next."""

    def reset(self, params: Params) -> None:
        """Start a new batch of N episodes at time 0."""

    def __call__(self, params: Params, state: State, samples: Samples, rng: np.random.Generator) -> tuple[Int, Int]:
        """Replicas (N, 2) and placement (N,) that are wanted from now until the next tick."""


@dataclass(slots=True)
class Timer:
    """Control period of a contender. All episodes of a batch share one clock."""

    period_seconds: Float  # (N,)
    due: Float | float = -np.inf

    def fires(self, now: float) -> Bool:
        """(N,) which rows have their period over at `now` seconds; their next period begins then."""
        over = now + 1e-9 >= np.asarray(self.due)
        self.due = np.where(over, now + self.period_seconds, self.due)
        return np.broadcast_to(over, self.period_seconds.shape)


class PeriodicContender(ABC):
    """A contender that computes the replicas once a control period and has a constant placement for each row.

    Subclasses implement `size`.
    """

    period_seconds: Value | None = None
    """Control period in seconds, scalar or (N,); None is the action interval."""

    split: Value = Placement.BALANCED
    """Placement, scalar or (N,)."""

    min_replicas: Pair = 0
    """Replicas that raise the policy's own minimum."""

    own_metrics = False
    """Whether it reads metrics-server or metrics of its own, which do not wait for Prometheus."""

    def reset(self, params: Params) -> None:
        self.params = params
        period = params.interval_seconds if self.period_seconds is None else self.period_seconds
        self.timer = Timer(rows(period, len(params)).astype(np.float64))
        self.desired: Int = np.array(params.min_replicas, dtype=np.int32)
        self.placement: Int = rows(self.split, len(params)).astype(np.int32)
        lowest = np.maximum(params.min_replicas, pools(self.min_replicas, len(params)))
        self.lowest: Int = np.minimum(lowest, params.max_replicas).astype(np.int32)

    def __call__(self, params: Params, state: State, samples: Samples, rng: np.random.Generator) -> tuple[Int, Int]:
        due = self.timer.fires(float(samples.time[0]))
        if due.any():
            bounded = np.clip(self.size(samples, state), self.lowest, params.max_replicas)
            sized = np.where(params.present, bounded, 0).astype(np.int32)
            self.desired = np.where(due[:, None], sized, self.desired)
        return self.desired, self.placement

    @abstractmethod
    def size(self, samples: Samples, state: State) -> Int:
        """Replicas (N, 2) that are wanted for the next control period, before any bounds."""


def column(value: Value, like: NDArray[Any] | None = None) -> NDArray[Any]:
    """A setting in a shape, () or (N, 1, ...), that combines with an array of more axes: `like`, or (N, 2)."""
    array = np.asarray(value)
    return array.reshape(-1, *[1] * ((2 if like is None else like.ndim) - 1)) if array.ndim else array


def rows(value: Value, n: int) -> NDArray[Any]:
    """A setting, scalar or (N,), as (N,)."""
    return np.broadcast_to(np.asarray(value), (n,))


def pools(value: Pair, n: int) -> NDArray[Any]:
    """A setting, scalar, pair or (N, 2), as (N, 2). Raises ValueError for anything else, (N,) included."""
    return np.broadcast_to(np.asarray(value), (n, 2))


def stacked(settings: Sequence[S], repeats: int = 1) -> S:
    """Several settings of one kind in one: the first in the first `repeats` rows, the second in the next, and so on.

    Fields that name something (text, None) must agree. Raises ValueError where they do not.
    """
    first = settings[0]
    if is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in fields(first)]
        return type(first)(**{name: stacked([getattr(value, name) for value in settings], repeats) for name in names})
    if isinstance(first, tuple) and any(is_dataclass(part) for part in first):
        return tuple(stacked(parts, repeats) for parts in zip(*settings, strict=True))  # type: ignore[return-value]
    if first is None or isinstance(first, str):
        if any(value != first for value in settings):
            raise ValueError(
                f"{sorted({str(value) for value in settings})}: must be the same in all settings of a batch"
            )
        return first
    if isinstance(first, bool) and all(value is first for value in settings):
        # A switch such as `RuleSettings.lasting` is of a whole batch.
        return first
    return np.repeat(np.stack([np.asarray(value) for value in settings]), repeats, axis=0)  # type: ignore[return-value]


def cheapest_mix(params: Params, need: Float) -> Int:
    """(N, 2) replicas with the least cost per hour whose capacity is at least `need` (N,) requests/s.

    The replicas stay within [min, max]; where even the maximum does not carry `need`, they are the maximum. Every GPU
    count is tried and the CPU pool takes the rest, so the answer is exact. Ties go to fewer GPU replicas. The capacity
    of a replica must be known.
    """
    low = np.where(params.present, params.min_replicas, 0)
    high = np.where(params.present, params.max_replicas, 0)
    rps, price = params.requests_per_second, params.cost_per_hour
    gpu = np.arange(int(high[:, GPU].max(initial=0)) + 1)[None, :]
    rest = np.maximum(need[:, None] - gpu * np.where(params.present, rps, 0.0)[:, [GPU]], 0.0)
    wanted = np.ceil(np.round(rest / np.where(params.present, rps, 1.0)[:, [CPU]], 9))
    cpu = np.clip(wanted, low[:, [CPU]], high[:, [CPU]])
    cost = gpu * price[:, [GPU]] + cpu * price[:, [CPU]]
    allowed: Bool = (gpu >= low[:, [GPU]]) & (gpu <= high[:, [GPU]])
    enough: Bool = allowed & (wanted <= high[:, [CPU]])
    pick = np.argmin(np.where(enough, cost, np.inf), axis=1)
    mix = np.stack([pick, cpu[np.arange(len(params)), pick]], axis=1)
    return np.where(np.any(enough, axis=1, keepdims=True), mix, high).astype(np.int32)
