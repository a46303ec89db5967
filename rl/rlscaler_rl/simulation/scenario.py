"""Scenarios: everything that is fixed before an episode begins, its load and its cold starts included.

Two contenders given the same `Scenarios` meet the same arrivals and the same cold starts. The nominal service
is the one of the demo; `simulation.randomisation` draws others around it for training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlscaler_core.decision.tables import make_params
from rlscaler_core.decision.tables import start_seconds as start_seconds
from rlscaler_core.decision.types import Params, Rows
from rlscaler_loadgen import patterns as loads
from rlscaler_rl.simulation.cluster import (
    LEAST_LOADED,
    MAX_PODS,
    POOL_FACTS,
    RING,
    ROUTERS,
    ROW_FACTS,
    ClusterFacts,
    Sensors,
    bucket_positions,
    records,
)

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

GPU_COST_PER_HOUR = 2.5
HOURS_PER_MONTH = 730.0

DAY_SECONDS = 86_400

PAST_SECONDS = 240
"""Seconds before an episode that can be known: all that the forecast remembers, and the longest rate window."""


class ScenarioError(ValueError):
    """A scenario that cannot be simulated; the message names the field and the remedy."""


@dataclass(slots=True)
class Scenarios(Rows):
    """One row per episode. Pools in the order (GPU, CPU)."""

    pattern: NDArray[Any]  # (N,) name of the load
    seed: Int  # (N,)
    duration: Int  # (N,) seconds
    rate: Float32  # (N, T) expected requests/s in each second; T >= duration
    arrivals: Float32  # (N, T) requests in each second
    past_rate: Float  # (N,) requests/s before the episode, where `past` is not known
    past: Float32  # (N, PAST_SECONDS) requests in each second before it, the last one last; NaN = not known
    epoch: Float  # (N,) Unix seconds at which it begins, for what is learned by time of day
    load_recent: Float32  # (N, ...) what the forecaster knows at its begin, as in `decision.types.State`; (N, 0): none
    load_calendar: Float32  # (N, ...) likewise
    daily_mean: Float  # (N,) requests/s of the day that it is cut from; NaN = take the episode's own mean
    initial: Int  # (N, 2) ready replicas at its begin
    present: Bool  # (N, 2)
    min_replicas: Int  # (N, 2)
    max_replicas: Int  # (N, 2)
    step_size: Int  # (N, 2) replicas an action step; 0 = a tenth of `max_replicas`, as in the custom resource
    interval_seconds: Float  # (N,)
    slo_ms: Float  # (N,)
    target_utilization: Float  # (N,) of both pools, what the reactive floor keeps: guards.targetUtilization / 100
    price_ratio: Float  # (N,) a CPU replica's price over a GPU replica's
    rps: Float  # (N, 2) requests/s of one replica, see `true_rps`
    drift: Float  # (N, 2) relative amplitude by which these requests/s swing within a day
    fall: Float  # (N, 2) part of them that is lost in the middle of the episode
    believed_rps: Float  # (N, 2) what the operator takes it for
    cold_start_low: Float  # (N, 2) seconds; drawn uniformly per pod
    cold_start_high: Float  # (N, 2)
    start_seconds: Float  # (N, 2) seconds of its price that a start costs beside the time that the pod is there
    schedulable: Int  # (N, 2) pods the nodes have room for
    cv: Int  # (N,) index into tables.CVS: spread of the service times
    queue_limit: Float  # (N,) requests that can wait at a ready pod
    timeout: Float  # (N,) seconds a client waits
    memory_seconds: Float  # (N,) time constant of the average that utilization rho is taken from
    router: Int  # (N,) index into cluster.ROUTERS
    routing: Float  # (N,) further factor on the probability of waiting at the fluid level
    scrape: Float  # (N,) seconds; see cluster.Sensors for this and the following
    own_scrape: Float  # (N,) seconds between two samples of metrics-server or of Knative itself; NaN: as `scrape`
    phase: Float  # (N,)
    delay: Float  # (N,)
    window: Float  # (N,)
    arrival_window: Float  # (N,)
    noise: Float  # (N,)
    cpu_factor: Float  # (N,)
    memory_base: Float  # (N,)
    memory_slope: Float  # (N,)
    key: NDArray[np.uint64]  # (N,) seed of cold starts and measurement noise

    def params(self) -> Params:
        """Params of the decision function, the policy's spec. Lateness has a fixed price: scores have one too."""
        return make_params(
            len(self),
            present=self.present,
            min_replicas=self.min_replicas,
            max_replicas=self.max_replicas,
            step_size=self.step_size,
            cost_per_hour=GPU_COST_PER_HOUR * np.stack([np.ones(len(self)), self.price_ratio], axis=1),
            requests_per_second=self.believed_rps,
            cold_start_seconds=(self.cold_start_low + self.cold_start_high) / 2,
            start_seconds=self.start_seconds,
            slo_ms=self.slo_ms,
            objective=np.nan,
            interval_seconds=self.interval_seconds,
            window_seconds=self.arrival_window,
            usage_seconds=self.window,
            learns_capacity=True,
            routed=True,
            target_utilization=self.target_utilization[:, None],
        )

    def facts(self) -> ClusterFacts:
        """Constants of the cluster model."""
        n = len(self)
        row = {name: getattr(self, name) for name in ROW_FACTS.names or () if name != "slo"}
        pool = {name: getattr(self, name) for name in POOL_FACTS.names or ()}
        return ClusterFacts(
            row=records(ROW_FACTS, (n,), slo=self.slo_ms / 1000, **row),
            pool=records(POOL_FACTS, (n, 2), **pool),
            arrivals=self.arrivals,
            positions=bucket_positions(self.rps, self.slo_ms / 1000),
        )

    def true_rps(self, rows: NDArray[np.intp], seconds: Int) -> Float:
        """Return the requests/s (M, 2) of one replica in `rows` (M,), `seconds` (M,) after the episodes' begin."""
        # The swing begins anywhere in its day, and the pools swing apart: by the golden ratio, which repeats least.
        begin = (self.key[rows] >> np.uint64(11)) * 2.0**-53
        turns = seconds[:, None] / DAY_SECONDS + begin[:, None] + np.array([0.0, 0.381966])
        fallen = seconds >= self.duration[rows] / 2
        swing = 1 + self.drift[rows] * np.sin(2 * np.pi * turns)
        return np.asarray(self.rps[rows] * swing * np.where(fallen[:, None], 1 - self.fall[rows], 1.0))

    def sensors(self) -> Sensors:
        """Constants of the measurement."""
        return Sensors(**{name: getattr(self, name) for name in Sensors._fields})

    def mean_rate(self) -> Float:
        """(N,) requests/s over the episode's duration."""
        counted = np.arange(self.arrivals.shape[1]) < self.duration[:, None]
        return np.asarray((self.arrivals * counted).sum(1) / self.duration)

    def validate(self) -> Scenarios:
        """Self, or ScenarioError naming the first field that cannot be simulated and the remedy."""
        checks = (
            ("duration", self.duration <= self.arrivals.shape[1], "the load is shorter than the episode"),
            ("rps", (self.rps > 0).all(1), "must be positive, also for an absent pool"),
            ("drift", ((self.drift >= 0) & (self.drift < 1)).all(1), "0 to below 1"),
            ("fall", ((self.fall >= 0) & (self.fall < 1)).all(1), "0 to below 1"),
            ("start_seconds", (self.start_seconds >= 0).all(1), "must not be negative"),
            ("present", self.present.any(1), "at least one pool is needed"),
            ("max_replicas", (self.max_replicas >= self.min_replicas).all(1), "must not be below min_replicas"),
            ("max_replicas", (self.max_replicas <= MAX_PODS).all(1), f"at most {MAX_PODS} are simulated"),
            ("initial", ((self.initial >= 0) & (self.initial <= MAX_PODS)).all(1), f"0 to {MAX_PODS}"),
            ("window", self.delay + self.scrape + self.window < RING - 5, f"delay + scrape + window < {RING - 5} s"),
            ("window", self.window >= 1, "at least 1 s"),
            ("arrival_window", self.arrival_window >= 1, "at least 1 s"),
            ("arrival_window", self.arrival_window <= self.window, "at most the window of utilization and latency"),
            ("slo_ms", self.slo_ms > 0, "must be positive"),
            (
                "target_utilization",
                (self.target_utilization > 0) & (self.target_utilization <= 1),
                "must be above 0 and at most 1",
            ),
            ("router", (self.router >= 0) & (self.router < len(ROUTERS)), f"an index into {', '.join(ROUTERS)}"),
        )
        for name, good, remedy in checks:
            if not np.all(good):
                row = int(np.flatnonzero(~np.asarray(good))[0])
                raise ScenarioError(f"scenario {row}: {name} = {getattr(self, name)[row]}: {remedy}")
        return self


def with_changed_params(change: Callable[[Params], Params]) -> Callable[[Scenarios], Scenarios]:
    """A function that puts scenarios under another spec: the same columns, whose `params` are passed through `change`.

    Rows that are taken from such scenarios keep the change. `Scenarios.concat` drops it, so join prepared scenarios
    (`batch.PreparedScenarios.concat`) or join by `type(scenarios).concat`.
    """

    class Changed(Scenarios):
        __slots__ = ()

        def params(self) -> Params:
            return change(Scenarios.params(self))

        def __reduce__(self) -> tuple[Any, ...]:
            return _changed, (change, self._arrays())

    return lambda scenarios: Changed(*scenarios._arrays())


def _changed(change: Callable[[Params], Params], arrays: Sequence[NDArray[Any]]) -> Scenarios:
    """Make scenarios under another spec anew in another process; `change` has to be one that pickle takes."""
    return with_changed_params(change)(Scenarios(*arrays))


SHORTEST_WINDOW_SECONDS = 10.0
"""The operator's shortest rate window."""

SCRAPES_PER_WINDOW = 4
"""Scrapes in the operator's windows of utilization and latency."""


def arrival_window(scrape: Float | float) -> Float:
    """Return the seconds that the operator's rate of arrivals spans, by the seconds between two scrapes.

    The operator queries two scrapes, and `SHORTEST_WINDOW_SECONDS` at least; the first of them begins the span.
    """
    return np.maximum(SHORTEST_WINDOW_SECONDS, 2 * np.asarray(scrape)) - scrape


def scraped_every(seconds: float) -> dict[str, float]:
    """Return the columns of a service that is scraped so often, and measured as the operator does."""
    window = max(SHORTEST_WINDOW_SECONDS, SCRAPES_PER_WINDOW * seconds)
    return {"scrape": float(seconds), "window": float(window), "arrival_window": float(arrival_window(seconds))}


def as_measured_for(controller: Any, scenarios: Scenarios) -> Scenarios:
    """Return the scenarios with the sensors that a controller reads: its own where it does not wait for Prometheus."""
    own = np.isfinite(scenarios.own_scrape)
    if not (getattr(controller, "own_metrics", False) and own.any()):
        return scenarios
    scrape = np.where(own, scenarios.own_scrape, scenarios.scrape)
    window = np.where(own, np.maximum(SHORTEST_WINDOW_SECONDS, SCRAPES_PER_WINDOW * scrape), scenarios.window)
    counted = np.where(own, arrival_window(scrape), scenarios.arrival_window)
    return replace(scenarios, scrape=scrape, window=window, arrival_window=counted)


NOMINAL: dict[str, Any] = {
    "initial": (1, 1),
    "present": (True, True),
    "min_replicas": (1, 1),
    "max_replicas": (10, 10),
    "step_size": (0, 0),
    "interval_seconds": 30.0,
    "slo_ms": 1000.0,
    "target_utilization": 0.8,
    "price_ratio": 0.25,
    "rps": (20.0, 4.0),
    "cold_start_low": (35.0, 5.0),
    "cold_start_high": (55.0, 11.0),
    "drift": 0.0,
    "fall": 0.0,
    "start_seconds": 0.0,
    "schedulable": (16, 64),
    "cv": 1,
    "queue_limit": 64.0,
    "timeout": 5.0,
    "memory_seconds": 20.0,
    "router": LEAST_LOADED,
    "routing": 1.0,
    "scrape": 2.0,
    "own_scrape": np.nan,
    "phase": 0.0,
    "delay": 1.0,
    "window": 10.0,
    "arrival_window": 10.0,
    "noise": 0.02,
    "cpu_factor": 1.0,
    "memory_base": 40.0,
    "memory_slope": 20.0,
    "past": (np.nan,) * PAST_SECONDS,
    "epoch": 0.0,
    "load_recent": (),
    "load_calendar": (),
    "daily_mean": np.nan,
}
"""The demo's service; pairs are (GPU, CPU)."""


def from_rate(
    rate: ArrayLike, seeds: ArrayLike, interval_seconds: float = 30.0, *, pattern: str = "trace", **overrides: Any
) -> Scenarios:
    """Nominal scenarios under loads of your own: rate (N, T) expected requests/s, seeds (N,).

    overrides: columns of `Scenarios`, one value, one pair or one per row.
    """
    table = np.atleast_2d(np.asarray(rate, dtype=np.float32))
    seed = np.broadcast_to(np.asarray(seeds, dtype=np.int64), (len(table),)).copy()
    if not np.all(np.isfinite(table)) or np.any(table < 0):
        raise ScenarioError("rate: requests/s must be finite and not negative; cut or fill the gaps of the trace")
    draws = [np.random.default_rng([int(s), 1]) for s in seed]
    columns = {
        "pattern": np.full(len(table), pattern, dtype="<U16"),
        "seed": seed,
        "duration": table.shape[1],
        "rate": table,
        "arrivals": np.stack([rng.poisson(row) for rng, row in zip(draws, table, strict=True)]).astype(np.float32),
        "past_rate": table[:, 0],
        "key": np.array([rng.integers(0, 2**63, dtype=np.uint64) for rng in draws]),
    }
    return build(len(table), {**columns, "interval_seconds": interval_seconds, **overrides})


def nominal(
    patterns: Sequence[str],
    seeds: Sequence[int],
    duration_seconds: int = 300,
    interval_seconds: float = 30.0,
    *,
    low: float = 10.0,
    high: float = 100.0,
    initial_replicas: tuple[int, int] = (1, 1),
    **overrides: Any,
) -> Scenarios:
    """The demo's service under `patterns[i]` drawn with `seeds[i]`; levels in requests/s."""
    rate = np.stack(
        [
            loads.rate(name, duration_seconds, int(seed), low=low, high=high)
            for name, seed in zip(patterns, seeds, strict=True)
        ]
    )
    names = np.array(patterns, dtype="<U16")
    return from_rate(rate, seeds, interval_seconds, **{"initial": initial_replicas, "pattern": names, **overrides})


def build(n: int, columns: dict[str, Any]) -> Scenarios:
    """N rows from `columns` over `NOMINAL`; ScenarioError for a column that does not exist or does not fit."""
    known = {f.name for f in fields(Scenarios)}
    if unknown := sorted(set(columns) - known):
        raise ScenarioError(f"{', '.join(unknown)}: no such column; there are {', '.join(sorted(known))}")
    values: dict[str, Any] = {**NOMINAL, **columns}
    values.setdefault("believed_rps", values["rps"])
    return Scenarios(**{f.name: _column(f.name, values[f.name], n) for f in fields(Scenarios)}).validate()


_PAIRS = (
    "initial",
    "present",
    "min_replicas",
    "max_replicas",
    "step_size",
    "rps",
    "believed_rps",
    "cold_start_low",
    "cold_start_high",
    "drift",
    "fall",
    "start_seconds",
    "schedulable",
)
_LEARNED = ("load_recent", "load_calendar")
_INTEGERS = ("seed", "duration", "initial", "min_replicas", "max_replicas", "step_size", "schedulable", "cv", "router")


def _column(name: str, value: Any, n: int) -> NDArray[Any]:
    if name in ("pattern", "rate", "arrivals", "key"):
        return np.ascontiguousarray(np.broadcast_to(value, (n,)) if np.ndim(value) == 0 else value)
    kind: Any = np.bool_ if name == "present" else np.int64 if name in _INTEGERS else np.float64
    if name in ("past", *_LEARNED):
        kind = np.float32
    array = np.asarray(value, dtype=kind)
    shape = (n, 2) if name in _PAIRS else (n, PAST_SECONDS) if name == "past" else (n,)
    if name in _LEARNED:
        shape = (n, array.shape[-1])
    try:
        return np.ascontiguousarray(np.broadcast_to(array, shape)).copy()
    except ValueError as error:
        raise ScenarioError(f"{name}: shape {array.shape} does not fit {shape}") from error
