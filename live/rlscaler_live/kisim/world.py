"""The service that KISim's agent scales: simulated, or on a cluster. Replicas are set as chosen, without a shield."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rlscaler_core.decision.types import Float, Int, Params, Samples, State
from rlscaler_live.kisim.config import Environment
from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.batch import SENSE_SECONDS, Batch
from rlscaler_rl.simulation.scenario import Scenarios, nominal

FIRST_REPLICAS = 3
"""Replicas of either pool at the begin of an episode, and those of the baselines of one pool."""

Replicas = tuple[int, int]
"""Replicas of GPU and CPU."""

USER_RATE = 5 / 8 / 1.5
"""Requests/s to the model of one of KISim's users, who waits 1 to 2 s and sends five of eight requests there."""

LOW_USERS, HIGH_USERS = 10, 100


@dataclass(frozen=True, slots=True)
class Interval:
    """Measurements of one action interval; NaN where a value is not known."""

    cpu_utilization: float  # % of the CPU requests of the CPU pool, at the end
    memory_utilization: float  # %, at the end
    gpu_utilization: float  # %, at the end
    p95_ms: float  # of the answers in the interval; a refused request counts as the client's timeout
    throughput: float  # answers/s in the interval
    replicas: Replicas  # spec.replicas of GPU and CPU, at the end


class World(Protocol):
    """A service with two pools under a load."""

    def begin(self, pattern: str, seed: int, replicas: Replicas) -> Interval:
        """Begin an episode with these replicas."""

    def pass_interval(self, replicas: Replicas, placement: int) -> Interval:
        """Set the replicas and the placement, and let an action interval pass."""

    def whole_episode(self) -> tuple[float, float]:
        """Return p95 latency in ms and answers/s since the begin of the episode."""

    def close(self) -> None:
        """Leave the service as it was before."""


def scenarios(environment: Environment, patterns: list[str], seeds: list[int], **overrides: Any) -> Scenarios:
    """Return the nominal service under `patterns[i]` drawn with `seeds[i]`."""
    columns = {"min_replicas": (0, 0), "max_replicas": (environment.max_replicas,) * 2, **overrides}
    columns |= {"low": LOW_USERS * USER_RATE, "high": HIGH_USERS * USER_RATE}
    return nominal(patterns, seeds, environment.episode_duration, float(environment.action_interval), **columns)


class SimulatedWorld:
    """The nominal service in the simulator."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._batch: Batch
        self._before: objectives.Counters

    def begin(self, pattern: str, seed: int, replicas: Replicas) -> Interval:
        played = scenarios(self._environment, [pattern], [seed], initial_replicas=replicas)
        self._batch, self._timeout = Batch(played), played.timeout
        self._first = self._before = objectives.read(self._batch.cluster)
        return self._measured(self._batch.sense())

    def pass_interval(self, replicas: Replicas, placement: int) -> Interval:
        batch = self._batch
        for _ in range(self._environment.action_interval // SENSE_SECONDS):
            # Once a tick, because the weights follow the replicas that have become ready.
            batch.scale_unshielded(np.array([replicas]), np.array([placement]))
            batch.advance()
            batch.level.count_latencies(batch.facts, batch.cluster, batch.rows)
            samples = batch.sense()
        return self._measured(samples)

    def whole_episode(self) -> tuple[float, float]:
        return _answers(objectives.read(self._batch.cluster).since(self._first), self._timeout)

    def close(self) -> None:
        return

    def _measured(self, samples: Samples) -> Interval:
        now = objectives.read(self._batch.cluster)
        spent, self._before = now.since(self._before), now
        return _interval(samples, *_answers(spent, self._timeout))


class Chosen:
    """Controller that holds the replicas and the placement of an action for an interval."""

    def __init__(self, replicas: Replicas, placement: int) -> None:
        self._replicas, self._placement = np.array([replicas], np.int32), np.array([placement], np.int32)

    def reset(self, params: Params) -> None:
        return

    def __call__(self, params: Params, state: State, samples: Samples, rng: np.random.Generator) -> tuple[Int, Int]:
        return self._replicas, self._placement


class LiveWorld:
    """Two Deployments of a cluster under load, measured and written by the operator's own parts."""

    def __init__(self, environment: Environment, cluster: Mapping[str, Any]) -> None:
        """`cluster`: fields of the live environment's configuration. Raises LiveEnvironmentError."""
        from rlscaler_live.environment import KubernetesEnv

        shared = {"episode_duration", "action_interval", "min_replicas", "max_replicas"}
        # An interval has a reward of its own in `KubernetesEnv`; here its counters are wanted.
        load = {"low_rps": LOW_USERS * USER_RATE, "high_rps": HIGH_USERS * USER_RATE}
        self._env = KubernetesEnv({**load, **cluster, **environment.model_dump(include=shared)}, reward=self._count)
        self._timeout = np.array([self._env.config.client_timeout_ms / 1000])
        self._spent: Mapping[str, Any] = {}
        self._figures: Mapping[str, Any] = {}
        self._rng = np.random.default_rng(0)

    def begin(self, pattern: str, seed: int, replicas: Replicas) -> Interval:
        pools = zip(("gpu", "cpu"), replicas, strict=True)
        start = tuple(count if pool in self._env.config.pools else 0 for pool, count in pools)
        self._env.reset(options={"pattern": pattern, "seed": seed, "start_replicas": start})
        return _interval(self._env.samples, math.nan, math.nan)

    def pass_interval(self, replicas: Replicas, placement: int) -> Interval:
        *_, self._figures = self._env.hand_over(Chosen(replicas, placement), self._rng)
        return _interval(self._env.samples, *_answers(objectives.counters_of(self._spent), self._timeout))

    def whole_episode(self) -> tuple[float, float]:
        return self._figures["p95_ms"], (self._figures["in_time"] + self._figures["late"]) / self._figures["seconds"]

    def close(self) -> None:
        self._env.close()

    def _count(self, spent: Mapping[str, Any], facts: Mapping[str, Any], changed: float) -> float:
        self._spent = spent
        return 0.0


def _answers(spent: objectives.Counters, timeout: Float) -> tuple[float, float]:
    """Return the p95 latency in ms and the answers/s; NaN where nothing was answered, or no time has passed."""
    seconds = float(spent.time[0])
    p95_ms = 1000 * float(objectives.p95_seconds(spent, timeout)[0])
    return p95_ms, float(spent.histogram[0, -1]) / seconds if seconds else math.nan


def _interval(samples: Samples, p95_ms: float, throughput: float) -> Interval:
    gpu, cpu = samples.spec_replicas[0].tolist()
    return Interval(
        cpu_utilization=float(samples.cpu_utilization[0]),
        memory_utilization=float(samples.memory_utilization[0]),
        gpu_utilization=float(samples.gpu_utilization[0]),
        p95_ms=p95_ms,
        throughput=throughput,
        replicas=(gpu, cpu),
    )
