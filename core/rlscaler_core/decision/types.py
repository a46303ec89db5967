"""Arrays that go into and come out of the decision function.

Every array has one row per policy (live) or per parallel episode (training); the leading dimension is
written N. The pool axis always has two columns in the order (GPU, CPU). Missing floating-point data is NaN,
never 0; each datum carries the age of its newest raw sample in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int = NDArray[np.int32]
Bool = NDArray[np.bool_]

GPU, CPU = 0, 1
POOLS = ("gpu", "cpu")

OBSERVATIONS = (
    "cpu_utilization",
    "headroom",
    "gpu_utilization",
    "p95_latency",
    "throughput",
    "gpu_replicas",
    "cpu_replicas",
    "load_trend",
    "near_misses",
    "forecast_utilization",
)

STREAM_OBSERVATIONS = tuple(
    {"headroom": "memory_utilization", "near_misses": "load_variance"}.get(name, name) for name in OBSERVATIONS
)
"""The same of consumers of a stream, whose replicas have no headroom and whose lag is no near miss."""

SIGNALS = ("arrival_rate", "cpu_utilization", "memory_utilization", "gpu_utilization", "p95_latency", "replicas")
"""Sensed signals, in the column order of `Samples.age_seconds`."""

RATE_HISTORY = 128
"""Arrival-rate samples kept per policy: more than ten minutes at the default sensing tick of 5 s."""

PEAKS = 12
"""Buckets of arrival rates kept for the ceiling."""

EVENTS = 32
"""Scale events and recommendations kept per pool for the HPA v2 `behavior` rules."""

TRIAL = 10
"""Numbers that are kept of the last scale-up of a stream's consumers: `throughput` has their meaning."""

BELIEF = 26
"""Numbers that are kept of the belief about a replica's capacity: `belief` has their meaning."""

HEADROOM = 9
"""Numbers that are kept of the headroom above the rule's plan: `headroom` has their meaning."""

BEHAVIOR_RULES = 4
"""The most `behavior` policies per direction that are evaluated; the CRD refuses longer lists."""


class SignalState(IntEnum):
    """State of one observation: known, without meaning for this policy, or unknown."""

    KNOWN = 0
    NOT_APPLICABLE = 1
    UNKNOWN = 2


class Placement(IntEnum):
    PREFER_GPU = 0
    BALANCED = 1
    PREFER_CPU = 2


class FallbackBehavior(IntEnum):
    CURRENT_REPLICAS = 0
    CURRENT_REPLICAS_IF_HIGHER = 1
    STATIC = 2
    HPA_FORMULA = 3
    FORECAST_RULE = 4


class Flag(IntFlag):
    """Reasons why `Decision.desired` differs from the actor's proposal, or might have."""

    NONE = 0
    HELD_UNKNOWN = 1
    FALLBACK = 2
    BEHAVIOR = 4
    FLOOR = 8
    LIMITED = 16
    PAUSED = 32
    CAPACITY_UNKNOWN = 64
    OUT_OF_ENVELOPE = 128
    PENDING = 256
    BUDGET_LIMITED = 512
    CEILING = 1024
    GRANT_LIMITED = 2048
    PARTITIONS = 4096
    THROUGHPUT = 8192
    CAPACITY_BELOW_DECLARED = 16384


@cache
def _columns(table: type[Rows]) -> Callable[[Rows], tuple[NDArray[Any], ...]]:
    """Return a function that reads all arrays of such a table."""
    return attrgetter(*table.__dataclass_fields__)


class Rows:
    """A dataclass of arrays that share their leading dimension N."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.__dataclass_fields__))))

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return _columns(type(self))(self)  # type: ignore[arg-type]  # mypy takes the class for an instance

    def view(self, rows: slice) -> Self:
        """Return the rows, not copied."""
        return type(self)(*[column[rows] for column in self._arrays()])

    def take(self, rows: Any) -> Self:
        """Return copies of the rows (indices, mask or slice)."""
        return type(self)(*[np.array(column[rows]) for column in self._arrays()])

    def put(self, rows: Any, other: Self, which: Any = slice(None)) -> None:
        """Overwrite the given rows in place with `which` of `other`; a single one does for all."""
        for name in self.__dataclass_fields__:
            getattr(self, name)[rows] = getattr(other, name)[which]

    def put_changed(self, rows: Any, before: Self, after: Self) -> None:
        """Overwrite the given rows with `after`, except for the columns that it shares with `before`."""
        for name in self.__dataclass_fields__:
            if (values := getattr(after, name)) is not getattr(before, name):
                getattr(self, name)[rows] = values

    @classmethod
    def concat(cls, parts: list[Self]) -> Self:
        """Return all rows of `parts`, in order."""
        return cls(*[np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__])

    def copy(self) -> Self:
        return self.take(slice(None))


@dataclass(slots=True)
class Params(Rows):
    """Parameters that the user (or the scenario) fixed; constant between edits of the spec."""

    present: Bool  # (N, 2) is there such a target
    min_replicas: Int  # (N, 2)
    max_replicas: Int  # (N, 2)
    step_size: Int  # (N, 2) replicas an action step
    cost_per_hour: Float  # (N, 2) currency units an hour and replica
    unit: Int  # (N,) LoadUnit: what the arrivals and the capacity below are in
    stream: Bool  # (N,) the replicas are consumers of a stream's partitions: arrivals are messages, latency their wait
    requests_per_second: Float  # (N, 2) capacity of one replica, in requests/s or else in `unit`; NaN = not known yet
    cold_start_seconds: Float  # (N, 2)
    start_seconds: Float  # (N, 2) seconds of its price that a start costs beside the pod's time; 0 = starts are free
    slo_ms: Float  # (N,)
    slo_signal: Int  # (N,) LatencySignal: the latency that `slo_ms` bounds and `Samples.p95_ms` is of
    objective: Float  # (N,) share of the requests to be within it, steers the price of lateness; NaN = it is fixed
    interval_seconds: Float  # (N,)
    sense_seconds: Float  # (N,)
    window_seconds: Float  # (N,) that the arrival rate is a mean of; 0 in records of older releases
    usage_seconds: Float  # (N,) that utilization and latency are a mean of; 0 in records of older releases
    learns_capacity: Bool  # (N,) the capacity is measured, and `requests_per_second` a first guess
    max_age_seconds: Float  # (N,)
    target_utilization: Float  # (N, 2) fraction 0-1, for the reactive floor and the HPA formula
    reactive_floor: Bool  # (N,)
    routed: Bool  # (N,) the traffic follows the weights; False in records of older releases
    split_by_load: Bool  # (N,) the forecast rule splits the traffic by the load; False in records of older releases
    ceiling: Bool  # (N,)
    ceiling_seconds: Float  # (N,) the stretch of measured load that the ceiling goes by
    pending_seconds: Float  # (N, 2) a pod that is pending for longer is stuck
    budget_per_hour: Float  # (N,) currency units that both pools may cost together; inf = any
    fallback: Int  # (N,) FallbackBehavior
    fallback_replicas: Int  # (N, 2) for STATIC and CURRENT_REPLICAS_IF_HIGHER
    failure_threshold: Int  # (N,) action intervals
    has_behavior: Bool  # (N,)
    stabilization_seconds: Float  # (N, 2 directions: up, down)
    rules: Float  # (N, 2 directions, BEHAVIOR_RULES, 3: kind 0 none | 1 Pods | 2 Percent, value, period s)
    select_policy: Int  # (N, 2 directions) 0 Max | 1 Min | 2 Disabled


@dataclass(slots=True)
class Samples(Rows):
    """Measurements of one sensing tick, and the requests of the user's annotations at that moment."""

    time: Float  # (N,) seconds, any epoch, never falling
    arrival_rate: Float  # (N,) requests/s received (rejected included) over the rate window, or else in `Params.unit`
    cpu_utilization: Float  # (N,) % of the CPU requests of the CPU pool's ready replicas
    memory_utilization: Float  # (N,) % of the memory requests of all ready replicas
    gpu_utilization: Float  # (N,) % mean over the GPU pool's ready replicas
    p95_ms: Float  # (N,) over the rate window; NaN also when nothing was answered
    age_seconds: Float  # (N, len(SIGNALS)) age of the newest raw sample; inf = never seen
    spec_replicas: Int  # (N, 2) spec.replicas as last read; the base of every action
    ready_replicas: Int  # (N, 2)
    pending_seconds: Float  # (N, 2) since the oldest pod that was never ready exists; 0 = there is none
    stuck_replicas: Int  # (N, 2) pods pending for longer than `Params.pending_seconds`; -1 = they were not counted
    paused: Bool  # (N,)
    paused_replicas: Int  # (N, 2) -1 = keep the base
    paused_scale_down: Bool  # (N,)
    granted_replicas: Int  # (N, 2) that a shared budget grants; -1 = no budget limits the pool
    counted_requests: Float  # (N,) that arrived in the windows counted since the last tick; NaN = none was counted
    counted_late: Float  # (N,) those of them not answered within `Params.slo_ms`
    lag_messages: Float  # (N,) messages of a stream that wait, without those of stuck partitions; NaN = not known
    partitions: Int  # (N,) partitions of a stream that have messages; 0 = none, or not known
    settling: Bool  # (N,) the consumer group rebalances, or newcomers have not committed yet
    processed: Float  # (N,) messages/s that the group processes, by its commits; NaN = not known


@dataclass(slots=True)
class State(Rows):
    """Everything the decision function remembers between calls."""

    rate_time: Float  # (N, RATE_HISTORY) oldest first; NaN = empty slot
    rate_value: Float  # (N, RATE_HISTORY) requests/s
    peak_time: Float  # (N, PEAKS) when each bucket begins, oldest first; NaN = empty
    peak_value: Float  # (N, PEAKS) the highest requests/s in it
    stack: Float32  # (N, k, 10) the last k fed observations, oldest first
    stacked: Int  # (N,) how many of the k are real
    unknown_intervals: Int  # (N,) consecutive action intervals with a required unknown or a failed actor
    placement: Int  # (N,) traffic preference in force, a Placement
    preference: Float  # (N,) factor of the preferred pool for each unit of its capacity; the other has 1
    weights: Int  # (N, 2) traffic weights in force, per mille
    budget_kept: Float  # (N,) the budget that the running replicas were last within; inf = none yet
    floor_hold: Int  # (N, 2) replicas that the floor asked for and that were not ready yet; 0 = none
    event_time: Float  # (N, 2 pools, EVENTS) when replicas changed; NaN = empty
    event_change: Int  # (N, 2 pools, EVENTS) by how much
    recommendation_time: Float  # (N, 2 pools, EVENTS)
    recommendation: Int  # (N, 2 pools, EVENTS)
    write_time: Float  # (N, 2) when the decision below was taken; NaN = none. Kept only where there is a `behavior`
    write_base: Int  # (N, 2)
    write_desired: Int  # (N, 2) becomes a scale event once `spec_replicas` is seen to equal it
    load_recent: Float32  # (N, forecaster.memory.RECENT_SIZE) or (N, 0): no forecaster is kept
    load_calendar: Float32  # (N, forecaster.memory.CALENDAR_SIZE) or (N, 0)
    counted_requests: Float  # (N,) of about 30 days; this and the following as in `error_budget`
    counted_late: Float  # (N,)
    counted_time: Float  # (N,) of the newest count; NaN = none yet
    counted_slo_ms: Float  # (N,) the latency beyond which they are late; NaN = none was counted
    price_factor: Float  # (N,) on the price of lateness
    belief: Float  # (N, BELIEF) about a replica's capacity, in columns as in `belief`
    headroom: Float  # (N, HEADROOM) above the rule's plan, and near misses, in columns as in `headroom`
    trial: Float  # (N, TRIAL) the last scale-up of a stream's consumers, in columns as there


@dataclass(slots=True)
class Observation(Rows):
    """The ten numbers, as shown to people and as fed to the actor."""

    values: Float  # (N, 10) in the units of the table in docs; NaN = unknown
    fed: Float32  # (N, 10) dimensionless; neutral value where not known
    status: Int  # (N, 10) SignalState
    age_seconds: Float  # (N, 10)
    required_unknown: Bool  # (N,) something without which nothing may be scaled down


@dataclass(slots=True)
class Decision(Rows):
    """One decision per row; `trail` has the replicas after each guard."""

    action: Int  # (N, 3) GPU -2..2, CPU -2..2, Placement; placement -1 = no actor ran
    probabilities: Float32  # (N, 13) 5 GPU, 5 CPU, 3 placement; NaN = no actor ran
    base: Int  # (N, 2)
    trail: Int  # (N, len(STAGES), 2) desired replicas after each of `guards.STAGES`
    desired: Int  # (N, 2)
    placement: Int  # (N,)
    weights: Int  # (N, 2) per mille
    flags: Int  # (N,) Flag bits


def observations(params: Params) -> tuple[str, ...]:
    """Return the names of the ten numbers of the first row."""
    return STREAM_OBSERVATIONS if params.stream[0] else OBSERVATIONS


def either(pools: Bool) -> Bool:
    """True (N,) where one of the two pools (N, 2) is. NumPy's reductions are many times slower on so short an axis."""
    return pools[:, 0] | pools[:, 1]


def both(pools: Bool) -> Bool:
    """True (N,) where both pools (N, 2) are."""
    return pools[:, 0] & pools[:, 1]


def total(pools: Float) -> Float:
    """The sum (N,) over the two pools (N, 2)."""
    return pools[:, 0] + pools[:, 1]
