"""One service: the constants in its policy, and the simulator's columns that follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_core.api import offline
from rlscaler_core.api.offline import OfflinePolicy
from rlscaler_core.decision.budget import ROUNDING
from rlscaler_core.decision.manifest import Envelope, PoolRanges
from rlscaler_core.decision.types import CPU, GPU, POOLS, Params
from rlscaler_core.decision.units import SIGNALS, UNITS
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.simulation.cluster import LEAST_LOADED, MAX_PODS, ROUTERS
from rlscaler_rl.simulation.scenario import Scenarios, scraped_every, with_changed_params

COLD_START_SPREAD = 0.3
"""Every pod's cold start is drawn within this of the mean, as in general training."""

EPISODE_SECONDS, EPISODE_INTERVALS = 600, 20
"""An episode has at least as many of either."""

LONG_SECONDS, LONG_HISTORY_SECONDS = 3600, 2 * 86_400
"""Episodes of a history that has so many seconds. An episode begins without a belief about the capacity, which takes
minutes to learn: short episodes say more about the first minutes of a policy than about its days."""

SCRAPE_SECONDS = (2, 15)
"""Bounds of the seconds between two scrapes; a longer rate window would not fit into the simulator's memory."""

UTILIZATION = 0.8
"""Utilization, 0 to 1, at which replicas are sized for a load."""

NOMINAL_RPS_RATIO = 5.0
"""Stands in where only one pool is there; nothing depends on it."""


def read_policy(path: Path) -> OfflinePolicy:
    """The policy in a YAML file. Raises EvaluationError naming the file or the object, the field and the remedy."""
    try:
        return offline.read_policy(path)
    except ValueError as error:
        raise EvaluationError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Service:
    """A service that can be simulated."""

    name: str
    namespace: str
    params: Params
    """One row."""

    objective: float
    """% of the requests that have to be answered within the SLO, 0 to 100."""

    replicas: tuple[int, int] | None
    """Replicas of today, GPU and CPU; None where they are not known."""

    assumed: tuple[str, ...]
    scrape_seconds: int
    router: int = LEAST_LOADED
    """Index into `simulation.cluster.ROUTERS`."""

    fallback: tuple[int | None, int | None] = (None, None)
    """`fallback.replicas` of both pools where they are set; minReplicas must not exceed them."""

    least_seconds: int = EPISODE_SECONDS
    """Seconds of an episode at least."""

    def with_history(self, seconds: float) -> Service:
        """Return the service with episodes as long as a history of so many seconds allows."""
        return replace(self, least_seconds=LONG_SECONDS) if seconds >= LONG_HISTORY_SECONDS else self

    @property
    def interval(self) -> int:
        return int(self.params.interval_seconds[0])

    @property
    def episode_seconds(self) -> int:
        """Whole intervals."""
        return self.interval * max(-(-self.least_seconds // self.interval), EPISODE_INTERVALS)

    @property
    def rps(self) -> tuple[float, float]:
        """Requests/s of one replica; an absent pool has a value too, because the simulator divides by it."""
        present, rps = self.params.present[0], self.params.requests_per_second[0]
        gpu = float(rps[GPU]) if present[GPU] else float(rps[CPU]) * NOMINAL_RPS_RATIO
        cpu = float(rps[CPU]) if present[CPU] else float(rps[GPU]) / NOMINAL_RPS_RATIO
        return gpu, cpu

    @property
    def capacity(self) -> float:
        """Requests/s of all replicas that may exist."""
        return float((self.params.max_replicas[0] * np.array(self.rps)).sum())

    @property
    def gpu_cost_per_hour(self) -> float:
        """Price of one GPU replica equivalent, the unit of costs in simulation."""
        return float(self.params.cost_per_hour[0, GPU])

    @property
    def price_ratio(self) -> float:
        """Price of a CPU replica over that of a GPU replica."""
        return float(self.params.cost_per_hour[0, CPU] / self.params.cost_per_hour[0, GPU])

    def columns(self) -> dict[str, Any]:
        """Columns of `Scenarios`, as the policy says and without any uncertainty."""
        params = self.params
        cold = params.cold_start_seconds[0]
        return {
            "present": params.present[0],
            "min_replicas": params.min_replicas[0],
            "max_replicas": params.max_replicas[0],
            "slo_ms": float(params.slo_ms[0]),
            "price_ratio": self.price_ratio,
            "rps": self.rps,
            "cold_start_low": cold * (1 - COLD_START_SPREAD),
            "cold_start_high": cold * (1 + COLD_START_SPREAD),
            "start_seconds": params.start_seconds[0],
            "schedulable": (MAX_PODS, MAX_PODS),
            **scraped_every(self.scrape_seconds),
            "router": self.router,
        }

    def bind(self, scenarios: Scenarios) -> Scenarios:
        """The same episodes under the policy's own spec: step size, behavior, floor, target utilization, budget."""
        return with_changed_params(self._onto)(scenarios)

    def _onto(self, params: Params) -> Params:
        """The policy's spec in every row of `params`."""
        spec = self.params
        for name in _SPEC:
            getattr(params, name)[:] = getattr(spec, name)
        # The budget keeps its ratio to the price of a GPU replica, whose unit is another in simulation.
        params.budget_per_hour[:] = spec.budget_per_hour * params.cost_per_hour[:, GPU] / spec.cost_per_hour[0, GPU]
        return params

    def envelope(self, error: float, lag_seconds: float) -> Envelope:
        """Where the policy may act: this service, as far off its constants as training went (`error`, relative)."""
        low, high = 1 - error, 1 + error
        cold = self.params.cold_start_seconds[0]
        slo, interval, price = float(self.params.slo_ms[0]), float(self.interval), 1 / self.price_ratio
        ratio = self.rps[GPU] / self.rps[CPU]
        bounds = {pool: (low * float(cold[i]), high * float(cold[i])) for i, pool in enumerate(POOLS)}
        sizes = {
            pool: (float(size), float(size)) for pool, size in zip(POOLS, self.params.max_replicas[0], strict=True)
        }
        return Envelope(
            slo_ms=(low * slo, high * slo),
            cold_start_seconds=PoolRanges(**bounds),
            max_replicas=PoolRanges(**sizes),
            price_ratio=(low * price, high * price),
            interval_seconds=(interval, interval),
            rps_ratio=(low * ratio, high * ratio),
            lag_seconds=(0.0, lag_seconds),
        )


_SPEC = (
    "step_size",
    "target_utilization",
    "reactive_floor",
    "ceiling",
    "ceiling_seconds",
    "has_behavior",
    "stabilization_seconds",
    "rules",
    "select_policy",
    "fallback",
    "failure_threshold",
    "fallback_replicas",
    "pending_seconds",
)
"""Parameters of the policy's spec that scenarios have no column for."""


def service_of(
    policy: OfflinePolicy,
    scrape_seconds: int,
    replicas: tuple[int, int] | None = None,
    router: str = ROUTERS[LEAST_LOADED],
) -> Service:
    """Return the service of a policy.

    :raises EvaluationError: for a policy that cannot be simulated, naming object, field and remedy.
    """
    params = policy.params
    where = f"RLScalingPolicy {policy.namespace}/{policy.name}: spec"
    check_scrape(scrape_seconds)
    _check_units(params, where)
    _check_interval(params, where)
    for index, pool in enumerate(POOLS):
        if params.present[0, index]:
            _check_pool(params, index, f"{where}.targets.{pool}")
    _check_budget(params, where)
    return Service(
        name=policy.name,
        namespace=policy.namespace,
        params=params,
        objective=policy.objective,
        replicas=_today(params, replicas or policy.replicas),
        assumed=policy.assumed,
        scrape_seconds=scrape_seconds,
        router=ROUTERS.index(router),
        fallback=policy.fallback,
    )


def check_scrape(seconds: int) -> None:
    """Raise EvaluationError for seconds between two scrapes that are not simulated."""
    if not SCRAPE_SECONDS[0] <= seconds <= SCRAPE_SECONDS[1]:
        raise EvaluationError(
            f"--scrape-seconds {seconds}: {SCRAPE_SECONDS[0]} to {SCRAPE_SECONDS[1]} are simulated; a policy "
            "whose load arrives later cannot scale by it: scrape the service more often"
        )


def _check_units(params: Params, where: str) -> None:
    """Histories are of requests, and the simulator times whole requests."""
    unit, signal = UNITS[params.unit[0]], SIGNALS[params.slo_signal[0]]
    if params.stream[0]:
        raise EvaluationError(
            f"{where}.signal.kafka: requests are simulated here; play consumers with `rlscaler streams simulate`"
        )
    if unit != "requests":
        raise EvaluationError(
            f"{where}.capacity.unit = {unit}: requests are simulated; in the copy that you give here, set unit "
            f"requests and perReplica to the requests/s that a replica answers{_BY_TOKEN if unit == 'tokens' else ''}"
        )
    if signal != "endToEnd":
        raise EvaluationError(
            f"{where}.slo.signal = {signal}: whole requests are simulated; in the copy that you give here, set "
            f"endToEnd and latencyMilliseconds for it{_BY_TOKEN}"
        )


_BY_TOKEN = ", or play a log of requests by token with `rlscaler estimate --server` and `rlscaler tokens train --for`"


def _check_interval(params: Params, where: str) -> None:
    interval = float(params.interval_seconds[0])
    if interval % SENSE_SECONDS:
        near = SENSE_SECONDS * max(round(interval / SENSE_SECONDS), 2)
        raise EvaluationError(
            f"{where}.intervalSeconds = {interval:g}: multiples of {SENSE_SECONDS} are simulated; set {near}"
        )


def _standing(params: Params) -> float:
    """Cost of minReplicas an hour."""
    return float((params.min_replicas[0] * params.cost_per_hour[0]).sum())


def standing_fits(params: Params) -> bool:
    """Whether the replicas that always stand fit into guards.budgetPerHour, which minReplicas would override."""
    return _standing(params) <= float(params.budget_per_hour[0]) * (1 + ROUNDING)


def _check_budget(params: Params, where: str) -> None:
    if not standing_fits(params):
        raise EvaluationError(
            f"{where}.guards.budgetPerHour = {params.budget_per_hour[0]:g}: minReplicas alone cost "
            f"{_standing(params):g} an hour; raise it, or lower "
            "targets.gpu.minReplicas or targets.cpu.minReplicas"
        )


def _check_pool(params: Params, index: int, where: str) -> None:
    rps, slo = float(params.requests_per_second[0, index]), float(params.slo_ms[0])
    high = int(params.max_replicas[0, index])
    if not np.isfinite(rps):
        raise EvaluationError(
            f"{where}.requestsPerSecond: is neither set nor learned, so the rate of a replica is unknown; measure and "
            "set it, or name the object as `kubectl get rlsp -o yaml` prints it once status.learned has it"
        )
    if high > MAX_PODS:
        raise EvaluationError(
            f"{where}.maxReplicas = {high}: at most {MAX_PODS} are simulated; lower it to what the load can need"
        )
    if 1000 / rps >= slo:
        raise EvaluationError(
            f"{where}.requestsPerSecond = {rps:g}: a replica answers one request after another in simulation, "
            f"{1000 / rps:.0f} ms each, and spec.slo.latencyMilliseconds is {slo:g}: none would be in time; "
            "raise the latency, or leave the pool out"
        )


def _today(params: Params, replicas: tuple[int, int] | None) -> tuple[int, int] | None:
    if replicas is None:
        return None
    current = np.where(params.present[0], replicas, 0)
    outside = (current < 0) | (current > MAX_PODS)
    if outside.any() or not current.any():
        raise EvaluationError(
            f"--replicas {replicas[0]},{replicas[1]}: 0 to {MAX_PODS} of each pool, and at least one in all"
        )
    return int(current[GPU]), int(current[CPU])
