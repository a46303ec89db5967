"""A day of simulated services through the real decision path, N of them side by side.

The services are as simple as can be: replicas serve a cold start after they were ordered, requests are answered at
once or not at all, utilization and latency follow from load and capacity. Under test is what is decided, hour by hour.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from rlscaler_core.decision.action import one_hot
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import stack_size
from rlscaler_core.decision.decide import Kind, decide
from rlscaler_core.decision.guards import GUARDS, Guard
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import CPU, GPU, Float, Float32, Int, Params, Placement, Samples
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hpa import Hpa

HOURS, SENSE_SECONDS, INTERVAL_SECONDS = 24, 30, 60
TICKS = HOURS * 3600 // SENSE_SECONDS
RPS = np.array([20.0, 4.0])
TARGET = 0.8
SLO_MS, QUIET_MS = 1000.0, 60.0
COLD_TICKS = (2, 1)
"""Cold starts of 45 s and 8 s, in whole ticks."""
NOISE = 0.05
"""Standard deviation of every sample of a noisy load, as a share of the load."""

LOADS = ("0 %", "5 %", "20 %", "60 %", "peak", "day")
SIZES = (5, 10, 20, 50)
POOLS = {"GPU": (True, False), "CPU": (False, True), "both": (True, True)}

Decider = Literal["network", "rule", "greedy", "none", "hpa"]


class Service(NamedTuple):
    """One row."""

    load: str
    size: int
    pools: str
    noisy: bool


SERVICES = [Service(*row) for row in itertools.product(LOADS, SIZES, POOLS, (False, True))]


@dataclass(slots=True)
class Day:
    """What happened to the services, tick by tick."""

    rate: Float
    """(N, TICKS) requests/s, without noise."""
    replicas: Int
    """(N, TICKS, 2)"""
    params: Params
    short: Float = field(default_factory=lambda: np.zeros(0))
    """(N,) % of the requests for which there was no ready replica."""

    @property
    def needed(self) -> Float:
        """(N, TICKS) GPU replica equivalents that carry the load at target utilization, in whole ones of the pool."""
        unit = self._unit[:, None]
        least = (self.params.min_replicas * RPS).sum(axis=1)[:, None] / unit
        most = (self.params.max_replicas * RPS).sum(axis=1)[:, None] / unit
        return np.clip(np.ceil(self.rate / (TARGET * unit) - 1e-9), least, most)

    @property
    def held(self) -> Float:
        """(N, TICKS) the same of what was there."""
        return (self.replicas * RPS).sum(axis=2) / self._unit[:, None]

    @property
    def at_the_end(self) -> Float:
        """(N,) what was held in the last hour, as its median."""
        return np.asarray(np.median(self.held[:, -3600 // SENSE_SECONDS :], axis=1))

    @property
    def needed_at_the_end(self) -> Float:
        """(N,) what the load of the last hour needed, as its median."""
        return np.asarray(np.median(self.needed[:, -3600 // SENSE_SECONDS :], axis=1))

    @property
    def _unit(self) -> Float:
        return np.where(self.params.present[:, GPU], RPS[GPU], RPS[CPU])


def params_of(services: list[Service]) -> Params:
    """One row for each service, at the defaults of the custom resource but for its two clocks."""
    sizes = np.array([service.size for service in services])
    return make_params(
        len(services),
        present=np.array([POOLS[service.pools] for service in services]),
        requests_per_second=RPS,
        max_replicas=np.stack([sizes, sizes], axis=1),
        sense_seconds=float(SENSE_SECONDS),
        interval_seconds=float(INTERVAL_SECONDS),
    )


def rates_of(services: list[Service], params: Params) -> Float:
    """(N, TICKS) requests/s."""
    hours = np.arange(TICKS) * SENSE_SECONDS / 3600
    shapes = {
        "peak": np.where((hours >= 1) & (hours < 1 + 1 / 6), 0.8, 0.05),
        "day": 0.35 - 0.3 * np.cos(2 * np.pi * hours / 24),
    }
    whole = (params.max_replicas * RPS).sum(axis=1)
    shares = [
        shapes.get(s.load, np.full(TICKS, float(s.load.split()[0]) / 100 if "%" in s.load else 0)) for s in services
    ]
    return np.array(shares) * whole[:, None]


def play(decider: Decider, services: list[Service] = SERVICES, guards: tuple[Guard, ...] = GUARDS) -> Day:
    """A day from the fewest replicas on; `hpa` is an HPA for each pool with the same target, without a shield."""
    params, rng = params_of(services), np.random.default_rng(7)
    rate = rates_of(services, params)
    noisy = np.array([service.noisy for service in services])
    actor = _actor(decider)
    state = initial_state(len(services), stack_size(actor))
    hpa = Hpa()
    hpa.reset(params)
    target = params.min_replicas.copy()
    ordered = [target.copy() for _ in range(max(COLD_TICKS) + 1)]
    share = np.where(params.present, 0.5, 0.0)
    replicas = np.empty((len(services), TICKS, 2), np.int32)
    unserved = np.zeros(len(services))
    for tick in range(TICKS):
        ready = np.stack([np.min([o[:, p] for o in ordered[-COLD_TICKS[p] - 1 :]], axis=0) for p in (GPU, CPU)], axis=1)
        now = rate[:, tick] * np.where(noisy, np.maximum(1 + NOISE * rng.standard_normal(len(services)), 0.0), 1.0)
        samples = _measured(params, 1e6 + tick * SENSE_SECONDS, now, target, ready, share)
        state = sense(params, state, samples)
        unserved += np.maximum(now - (ready * RPS).sum(axis=1), 0)
        if decider == "hpa":
            wanted, _ = hpa(params, state, samples, rng)
            weights = ready * RPS
        else:
            kind: Kind = "floor" if tick * SENSE_SECONDS % INTERVAL_SECONDS else "action"
            decision, _, state = decide(params, state, samples, actor, kind=kind, guards=guards)
            wanted, weights = decision.desired, decision.weights
        served = np.where((ready > 0) & params.present, weights, 0)
        share = served / np.maximum(served.sum(axis=1, keepdims=True), 1e-9)
        target = wanted.copy()
        ordered = [*ordered[1:], target]
        replicas[:, tick] = target
    return Day(rate, replicas, params, 100 * unserved / np.maximum(rate.sum(axis=1), 1e-9))


class Greedy:
    """An actor that asks for one replica more in every action interval."""

    manifest = Manifest(name="greedy", stack_size=1)

    def probabilities(self, stacked: Float32) -> Float32:
        """Give one-hot probabilities (N, 13)."""
        return one_hot(np.tile(np.array([[1, 1, Placement.BALANCED]], np.int32), (len(stacked), 1)))


def _actor(decider: Decider) -> ActorLike | None:
    if decider == "greedy":
        return Greedy()
    names: dict[str, Any] = {"network": "ppo", "rule": "rule"}
    return load_bundled(names[decider]) if decider in names else None


def _measured(params: Params, time: float, rate: Float, spec: Int, ready: Int, share: Float) -> Samples:
    """What is seen of services whose arrivals split by `share` (N, 2)."""
    capacity = ready * RPS
    with np.errstate(divide="ignore", invalid="ignore"):
        load = np.where(capacity > 0, rate[:, None] * share / capacity, np.nan)
    used = np.fmin(100 * load, 100.0)
    worst = np.fmax(load[:, GPU], load[:, CPU])
    latency = np.where(rate > 0, QUIET_MS + 2000 * np.maximum(np.nan_to_num(worst) - TARGET, 0), np.nan)
    return make_samples(
        len(rate),
        time=time,
        arrival_rate=rate,
        gpu_utilization=used[:, GPU],
        cpu_utilization=used[:, CPU],
        memory_utilization=40.0,
        p95_ms=np.minimum(latency, 20 * SLO_MS),
        spec_replicas=spec,
        ready_replicas=ready,
    )


def hours_above(day: Day, times: float, more: float) -> Float:
    """(N,) the longest time without a break, in hours, at more than `times` the need and `more` replicas."""
    above = day.held > times * day.needed + more
    longest = run = np.zeros(len(above))
    for tick in range(above.shape[1]):
        run = np.where(above[:, tick], run + 1, 0)
        longest = np.maximum(longest, run)
    return longest * SENSE_SECONDS / 3600


def _last_hour(day: Day) -> Float:
    return np.asarray(np.median(day.replicas[:, -3600 // SENSE_SECONDS :], axis=1))


def table(days: dict[str, Day], services: list[Service] = SERVICES) -> str:
    """What each ended with (median of the last hour, GPU and CPU replicas as 3/1), the need, and the worst hours."""
    names = list(days)
    lines = [" | ".join(["load", "max", "pools", "noise", "need", *names, *(f"{name}: h above 2x" for name in names)])]
    above = {name: hours_above(day, 2, 2) for name, day in days.items()}
    first = days[names[0]]
    for i, service in enumerate(services):
        ends = ["/".join(f"{count:g}" for count in _last_hour(day)[i]) for day in days.values()]
        need = f"{first.needed[i, -1]:g}"
        noise = f"{NOISE:.0%}" if service.noisy else "none"
        hours = [f"{above[name][i]:.1f}" for name in names]
        lines.append(" | ".join([service.load, str(service.size), service.pools, noise, need, *ends, *hours]))
    return "\n".join(lines)
