"""The simulator as a stable-baselines3 VecEnv: numpy arrays straight through, no processes, no copies per env."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from rlscaler_rl.decision.action import HEADS, from_indices
from rlscaler_rl.decision.contract import ObservationContract
from rlscaler_rl.decision.types import OBSERVATIONS, Float32, Observation, Samples
from rlscaler_rl.simulation import objectives, privileged
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.randomisation import RANGES, Loads, Ranges, interval_shares, randomised
from rlscaler_rl.simulation.scenario import Scenarios

CHUNK = 128
"""Scenarios drawn at a time."""

Take = Callable[[int], Scenarios]
"""How many episodes are wanted -> as many scenarios, all of one action interval."""


def spaces(contract: ObservationContract, extra: int = 0) -> tuple[gym.spaces.Box, gym.spaces.MultiDiscrete]:
    """Observation (10 k + extra,) float32 and action spaces."""
    width = len(OBSERVATIONS) * contract.stack_size + extra
    return gym.spaces.Box(-contract.clip, contract.clip, (width,), np.float32), gym.spaces.MultiDiscrete(HEADS)


class ScenarioSource:
    """An endless supply of randomised scenarios of one interval; all draws come from `rng`."""

    def __init__(self, interval: int, rng: np.random.Generator, ranges: Ranges, loads: Loads | None = None) -> None:
        self.interval, self.rng, self.ranges, self.loads = interval, rng, ranges, loads
        self.stock: list[Scenarios] = []

    def take(self, n: int) -> Scenarios:
        while sum(map(len, self.stock)) < n:
            self.stock.append(self._draw())
        pool = Scenarios.concat(self.stock) if len(self.stock) > 1 else self.stock[0]
        self.stock = [pool.take(slice(n, None))] if len(pool) > n else []
        return pool.take(slice(0, n))

    def _draw(self) -> Scenarios:
        """A chunk whose rows have every duration, in random order; loads padded to the longest."""
        durations, longest = self.ranges.durations, max(self.ranges.durations)
        parts = []
        for duration in durations:
            rows = max(CHUNK // len(durations), 1)
            part = randomised(rows, self.rng, self.interval, duration, self.ranges, self.loads)
            padding = ((0, 0), (0, longest - duration))
            part.rate, part.arrivals = np.pad(part.rate, padding), np.pad(part.arrivals, padding)
            parts.append(part)
        chunk = Scenarios.concat(parts)
        return chunk.take(self.rng.permutation(len(chunk)))


class _Group:
    """The environments of one action interval."""

    def __init__(self, batch: Batch, source: Take, objective: objectives.Objective, asymmetric: bool) -> None:
        self.batch, self.source, self.objective = batch, source, objective
        self.interval = int(batch.scenarios.interval_seconds[0])
        self.extra = privileged.Privileged(batch.scenarios) if asymmetric else None
        self.n = len(batch.rows)
        self.norms = objectives.norms(batch.scenarios)
        self.returns, self.steps = np.zeros(self.n), np.zeros(self.n, np.int64)
        self.samples: Samples
        self.observation: Observation

    def reset(self, stagger: np.random.Generator | None = None) -> Float32:
        """`stagger` cuts the first episodes to random lengths, so that later ones do not begin and end together."""
        scenarios = self.source(self.n)
        if stagger is not None:
            intervals = scenarios.duration // self.interval
            scenarios.duration[:] = self.interval * np.ceil(intervals * (1 - stagger.random(self.n)))
        self.batch.restart(self.batch.rows, scenarios)
        if self.extra is not None:
            self.extra.restart(self.batch.rows, scenarios)
        self.norms = objectives.norms(scenarios)
        self.returns[:], self.steps[:] = 0, 0
        self.samples, self.observation, stacked = self.batch.observe()
        return self._with_extra(self.batch.rows, stacked)

    def _with_extra(self, rows: NDArray[np.intp], stacked: Float32) -> Float32:
        if self.extra is None:
            return stacked
        extra = self.extra.read(self.batch.cluster, self.batch.scenarios, rows)
        return np.concatenate([stacked, extra], axis=1)

    def step(self, indices: NDArray[np.int64]) -> tuple[Float32, Float32, NDArray[np.bool_], dict[int, dict[str, Any]]]:
        batch = self.batch
        before = objectives.read(batch.cluster)
        base = self.samples.spec_replicas
        made = batch.act(self.samples, self.observation, from_indices(indices))
        changed = np.abs(made.desired - base).sum(1)
        batch.finish_interval()
        after = objectives.read(batch.cluster)
        rewards = self.objective(after.since(before), self.norms, changed)
        self.returns += rewards
        self.steps += 1
        dones = after.time >= batch.scenarios.duration
        self.samples, self.observation, stacked = batch.observe()
        stacked = self._with_extra(batch.rows, stacked)
        infos = self._restart(np.flatnonzero(dones), after, stacked) if dones.any() else {}
        return stacked, rewards.astype(np.float32), dones, infos

    def _restart(self, rows: NDArray[np.intp], after: objectives.Meters, stacked: Float32) -> dict[int, dict[str, Any]]:
        """Begin new episodes in `rows`; `stacked` is overwritten there. Returns the infos of the ended ones."""
        seconds, price = after.time[rows], self.norms.price_ratio[rows]
        cost = (after.billed[rows, 0] + price * after.billed[rows, 1]) / seconds
        late = 100 * after.missed[rows] / np.maximum(after.requests[rows], 1)
        infos = {
            int(row): {
                "TimeLimit.truncated": True,
                "terminal_observation": stacked[row].copy(),
                "episode": {"r": float(self.returns[row]), "l": int(self.steps[row])},
                "cost": float(cost[i]),
                "late_percent": float(late[i]),
            }
            for i, row in enumerate(rows)
        }
        scenarios = self.source(len(rows))
        self.batch.restart(rows, scenarios)
        self.norms.put(rows, objectives.norms(scenarios))
        if self.extra is not None:
            self.extra.restart(rows, scenarios)
        self.returns[rows], self.steps[rows] = 0, 0
        samples, observation, fresh = self.batch.observe_rows(rows)
        stacked[rows] = self._with_extra(rows, fresh)
        self.samples.put(rows, samples)
        self.observation.put(rows, observation)
        return infos


def _sizes(n: int, shares: Sequence[float]) -> NDArray[np.int64]:
    """(len(shares),) whole numbers that add up to `n`, in proportion to `shares`."""
    bounds = np.rint(n * np.cumsum([0.0, *shares]) / np.sum(shares))
    return np.diff(bounds).astype(np.int64)


class SimulatorVecEnv(VecEnv):
    """`n` randomised episodes side by side; observation (n, 10 k) float32, action (n, 3) int64, reward (n,) float32.

    `loads` is where the part of the episodes comes from that has a recorded load (`Ranges.trace_share`).
    `sources` draw the episodes instead of `ranges` and `loads`; each serves a part of the environments.
    The groups of equal action interval run in threads, each with its own generator: the order does not matter.
    `asymmetric` appends `privileged.WIDTH` columns for the critic; `stagger` cuts the episodes after `reset` to random
    lengths, so that an update sees every phase of an episode. Episodes end by time limit only: infos carry
    `TimeLimit.truncated` and `terminal_observation`.
    """

    def __init__(
        self,
        n: int = 768,
        seed: int = 0,
        *,
        contract: ObservationContract | None = None,
        residual: bool = False,
        objective: str | objectives.Objective = "slo_cost",
        ranges: Ranges = RANGES,
        loads: Loads | None = None,
        sources: Sequence[Take] = (),
        asymmetric: bool = False,
        stagger: bool = False,
    ) -> None:
        self.contract = contract or ObservationContract()
        rng = np.random.default_rng(seed)
        self.stagger = np.random.default_rng([seed, 1]) if stagger else None
        drawing = zip(ranges.intervals, rng.spawn(len(ranges.intervals)), strict=True)
        self.own_sources = [
            ScenarioSource(interval, child, ranges, loads) for interval, child in drawing if not sources
        ]
        takes = sources or [source.take for source in self.own_sources]
        sizes = _sizes(n, [1.0] * len(sources) or interval_shares(ranges))
        self.groups = [
            self._group(size, take, residual, objective, asymmetric)
            for size, take in zip(sizes, takes, strict=True)
            if size
        ]
        self._begins = np.cumsum([0, *(group.n for group in self.groups[:-1])]).tolist()
        self._threads = ThreadPoolExecutor(max_workers=min(len(self.groups), os.cpu_count() or 1))
        super().__init__(n, *spaces(self.contract, privileged.WIDTH if asymmetric else 0))
        self._actions: NDArray[np.int64] = np.zeros((n, len(HEADS)), np.int64)

    def _group(
        self, size: int, take: Take, residual: bool, objective: str | objectives.Objective, asymmetric: bool
    ) -> _Group:
        batch = Batch(take(size), self.contract, residual=residual)
        return _Group(batch, take, objectives.named(objective), asymmetric)

    def reset(self) -> Float32:
        return np.concatenate([group.reset(self.stagger) for group in self.groups])

    def step_async(self, actions: NDArray[np.int64]) -> None:
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Float32, Float32, NDArray[np.bool_], list[dict[str, Any]]]:
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        results = list(self._threads.map(_Group.step, self.groups, np.split(self._actions, self._begins[1:])))
        for begin, (_, _, _, ended) in zip(self._begins, results, strict=True):
            for row, info in ended.items():
                infos[begin + row] = info
        observations, rewards, dones = (np.concatenate([result[i] for result in results]) for i in range(3))
        return observations, rewards, dones, infos

    def close(self) -> None:
        self._threads.shutdown()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name, None)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"{attr_name}: the simulated environments share one setting; make another SimulatorVecEnv")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(f"{method_name}: the simulated environments are rows of arrays and have no methods")

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))
