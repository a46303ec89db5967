"""The simulator as a stable-baselines3 VecEnv: numpy arrays straight through, no processes, no copies per env."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from rlscaler_core.decision.action import HEADS, from_indices
from rlscaler_core.decision.observation import ObservationContract
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_core.decision.types import OBSERVATIONS, Float32, Observation, Placement, Samples
from rlscaler_rl.simulation import objectives, privileged
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.generative import draw
from rlscaler_rl.simulation.randomisation import Loads
from rlscaler_rl.simulation.ranges import RANGES, Ranges, interval_shares
from rlscaler_rl.simulation.scenario_buffer import (
    RandomisedSource,
    RememberedSource,
    ScenarioBuffer,
    ScenarioSource,
    sources_of,
)

HISTORY = 64
"""Rates that are remembered, one a sensing tick: more than the forecast's memory."""

NO_CHANGE = np.array([0, 0, Placement.BALANCED], np.int32)

_NOTHING: Mapping[str, Any] = MappingProxyType({})
"""The info of an episode that goes on."""

Float = NDArray[np.float64]


def spaces(contract: ObservationContract, extra: int = 0) -> tuple[gym.spaces.Box, gym.spaces.MultiDiscrete]:
    """Observation (10 k + extra,) float32 and action spaces."""
    width = len(OBSERVATIONS) * contract.stack_size + extra
    return gym.spaces.Box(-contract.clip, contract.clip, (width,), np.float32), gym.spaces.MultiDiscrete(HEADS)


class Group:
    """The environments that one thread steps; those of longer action intervals come first."""

    def __init__(
        self, batch: Batch, objective: objectives.Objective, asymmetric: bool, twin: Batch | None = None
    ) -> None:
        n = len(batch.rows)
        self.batch, self.objective, self.asymmetric = batch, objective, asymmetric
        self.twin = twin
        """The same episodes under the rule alone; None: rewards are not compared with it."""
        self.recount()
        self.counters = objectives.read(batch.cluster)
        self.twin_counters = self.counters.copy()
        self._nothing = self.counters.take(slice(0, 1))
        self.returns, self.steps = np.zeros(n), np.zeros(n, np.int64)
        self.samples: Samples
        self.observation: Observation

    def recount(self) -> None:
        """Compute the values that follow from the scenarios again."""
        self.norms, self.hidden = objectives.norms(self.batch.scenarios), privileged.hidden(self.batch.scenarios)

    def begin(self, rows: NDArray[np.intp], buffer: ScenarioBuffer, which: NDArray[np.intp]) -> None:
        """Episodes `which` (M,) of the buffer in the given rows (M,)."""
        self.batch.restart_with(rows, buffer.prepared, which)
        self.norms.put(rows, buffer.norms, which)
        self.hidden.put(rows, buffer.hidden, which)
        self.counters.put(rows, self._nothing)
        if self.twin is not None:
            self.twin.restart_with(rows, buffer.prepared, which)
            self.twin_counters.put(rows, self._nothing)
        self.returns[rows], self.steps[rows] = 0, 0

    def observe(self) -> Float32:
        """(N, 10 k + extra) after the sensing tick at which the actor acts."""
        self.samples, self.observation, stacked = self.batch.observe()
        return self._with_extra(self.batch.rows, stacked)

    def peek(self, rows: NDArray[np.intp]) -> Float32:
        """(M, 10 k + extra) observations of the rows (M,), without a change of the state."""
        return self._with_extra(rows, self.batch.observe_rows(rows))

    def _with_extra(self, rows: NDArray[np.intp], stacked: Float32) -> Float32:
        if not self.asymmetric:
            return stacked
        extra = privileged.reveal(self.hidden, self.batch.cluster, self.batch.scenarios, rows)
        return np.concatenate([stacked, extra], axis=1)

    def play(self, indices: NDArray[np.int64]) -> tuple[Float, NDArray[np.bool_]]:
        """Rewards (N,) and whose episode is over (N,), one action interval on."""
        batch, base = self.batch, self.samples.spec_replicas
        of_the_rule = 0.0 if self.twin is None else self._of_the_rule(self.twin)
        made = batch.act(self.samples, self.observation, from_indices(indices))
        batch.finish_interval()
        now = objectives.read(batch.cluster)
        changed = np.abs(made.desired - base)
        rewards = self.objective(now.since(self.counters), self.norms, changed[:, 0] + changed[:, 1])
        self.counters = now
        self.returns += rewards
        self.steps += 1
        ended = now.time >= batch.scenarios.duration
        return rewards - of_the_rule, ended

    def _of_the_rule(self, twin: Batch) -> Float:
        """Rewards (N,) of the rule in the same interval of the same episode, with its own replicas.

        The same requests arrive in both, so that the forecasters of `batch` speak for both.
        """
        samples, observation, _ = twin.observe()
        still = np.broadcast_to(NO_CHANGE, (len(self.steps), len(HEADS)))
        made = twin.act(samples, observation, still, learned_by=self.batch)
        twin.finish_interval()
        now = objectives.read(twin.cluster)
        changed = np.abs(made.desired - samples.spec_replicas)
        rewards = self.objective(now.since(self.twin_counters), self.norms, changed[:, 0] + changed[:, 1])
        self.twin_counters = now
        return rewards

    def infos(self, rows: NDArray[np.intp]) -> list[dict[str, Any]]:
        """The infos of the episodes in the given rows (M,), which have just ended."""
        if not rows.size:
            return []
        now, seen = self.counters.take(rows), self.peek(rows)
        cost = (now.billed[:, 0] + self.norms.price_ratio[rows] * now.billed[:, 1]) / now.time
        late = 100 * now.missed / np.maximum(now.requests, 1)
        figures = zip(self.returns[rows].tolist(), self.steps[rows].tolist(), cost.tolist(), late.tolist(), strict=True)
        return [
            {
                "TimeLimit.truncated": True,
                "terminal_observation": last,
                "episode": {"r": total, "l": length},
                "cost": cost,
                "late_percent": late,
            }
            for last, (total, length, cost, late) in zip(seen, figures, strict=True)
        ]


def _sizes(n: int, shares: Sequence[float]) -> list[int]:
    """(len(shares),) whole numbers that add up to `n`, in proportion to `shares`."""
    bounds = np.rint(n * np.cumsum([0.0, *shares]) / np.sum(shares))
    return [int(size) for size in np.diff(bounds)]


class ArrayVecEnv(VecEnv):
    """Environments that are rows of arrays: they share attributes, and none can be changed or called by itself."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name, None)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        name = type(self).__name__
        raise AttributeError(f"{attr_name}: the simulated environments share one setting; make another {name}")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(f"{method_name}: the simulated environments are rows of arrays and have no methods")

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))


class SimulatorVecEnv(ArrayVecEnv):
    """`n` randomised episodes side by side; observation (n, 10 k) float32, action (n, 3) int64, reward (n,) float32.

    Environments of one source lie side by side, the longest action interval first. Episodes end by time limit only:
    infos carry `TimeLimit.truncated` and `terminal_observation`; those of the others are empty and read-only.

    :param rule: the actions are added to this forecast rule's replicas instead of the present ones (residual mode).
    :param loads: draws the load.
    :param hours: the services have been there for up to so many hours, and their forecasters know them.
    :param sources: draw the episodes instead of `ranges`, `loads` and `hours`; each serves a part of the environments.
    :param threads: step the environments together, by default as many as the process has cores; their number changes no
        result.
    :param paired: rewards are those of the actor less those of the `rule` alone in the same episode (common random
        numbers): the noise that no policy influences cancels, and the best policy stays the best.
    :param asymmetric: appends `privileged.WIDTH` columns for the critic.
    :param stagger: cuts the episodes after `reset` to random lengths, so that an update sees every phase of an episode.
    """

    def __init__(
        self,
        n: int = 768,
        seed: int = 0,
        *,
        contract: ObservationContract | None = None,
        rule: RuleSettings | None = None,
        objective: str | objectives.Objective = "slo_cost",
        ranges: Ranges = RANGES,
        loads: Loads = draw,
        sources: Sequence[ScenarioSource] = (),
        hours: float = 0.0,
        asymmetric: bool = False,
        paired: bool = False,
        stagger: bool = False,
        threads: int | None = None,
    ) -> None:
        self.contract = contract or ObservationContract()
        self.stagger = np.random.default_rng([seed, 1]) if stagger else None
        rngs = np.random.default_rng(seed).spawn(len(ranges.intervals))
        self.own_sources: Sequence[RandomisedSource | RememberedSource] = ()
        if not sources:
            self.own_sources = sources_of(rngs, ranges, loads, hours)
        takes = sources or [source.take for source in self.own_sources]
        self.buffer = ScenarioBuffer(takes, _sizes(n, [1.0] * len(sources) or interval_shares(ranges)))
        self._ends = np.cumsum(self.buffer.counts)
        self._count = min(threads or len(os.sched_getaffinity(0)), n)
        named, template = objectives.named(objective), self.buffer.template()
        if paired and rule is None:
            raise ValueError("paired: the actor is compared with the rule under it, and there is none; give a rule")

        def batch(i: int, learns: bool) -> Batch:
            return Batch(template.take(self.rows_of(i)), self.contract, rule=rule, history=HISTORY, learns=learns)

        self.groups = [
            Group(batch(i, True), named, asymmetric, batch(i, False) if paired else None) for i in range(self._count)
        ]
        self._threads = ThreadPoolExecutor(max_workers=self._count)
        super().__init__(n, *spaces(self.contract, privileged.WIDTH if asymmetric else 0))
        self._actions: NDArray[np.int64] = np.zeros((n, len(HEADS)), np.int64)

    def rows_of(self, group: int) -> slice:
        """The environments of a group: every so many, so that all groups have as much of every interval."""
        return slice(group, None, self._count)

    def together(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """(n, ...) row by row, from an array of each group."""
        rows = np.empty((self.num_envs, *parts[0].shape[1:]), parts[0].dtype)
        for i, part in enumerate(parts):
            rows[self.rows_of(i)] = part
        return rows

    def _each(self, call: Callable[[int, Group], Any]) -> list[Any]:
        """`call` for every group, each in its own thread."""
        if self._count == 1:
            return [call(0, self.groups[0])]
        return list(self._threads.map(call, range(self._count), self.groups))

    def reset(self) -> Float32:
        self._begin(np.arange(self.num_envs))
        if self.stagger is not None:
            left = 1 - np.asarray(self.stagger.random(self.num_envs))
            for i, group in enumerate(self.groups):
                scenarios = group.batch.scenarios
                intervals = np.ceil(scenarios.duration // scenarios.interval_seconds * left[self.rows_of(i)])
                scenarios.duration[:] = scenarios.interval_seconds * intervals
                group.recount()
        return self._observe()

    def _begin(self, rows: NDArray[np.intp]) -> None:
        """New episodes in the given rows, which rise."""
        asking = np.split(rows, np.searchsorted(rows, self._ends[:-1]))
        given = np.zeros(len(asking), np.int64)
        for chosen in self.buffer.take(np.array([len(asked) for asked in asking])):
            count = np.array([len(which) for which in chosen])
            served = [asked[first:last] for asked, first, last in zip(asking, given, given + count, strict=True)]
            given += count
            row, which = np.concatenate(served), np.concatenate(chosen)
            for i, group in enumerate(self.groups):
                mine = np.flatnonzero(row % self._count == i)
                if mine.size:
                    group.begin(row[mine] // self._count, self.buffer, which[mine])

    def _observe(self) -> Float32:
        observations = np.empty((self.num_envs, *self.observation_space.shape), np.float32)

        def observe(i: int, group: Group) -> None:
            observations[self.rows_of(i)] = group.observe()

        self._each(observe)
        return observations

    def step_async(self, actions: NDArray[np.int64]) -> None:
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Float32, Float32, NDArray[np.bool_], list[Any]]:
        rewards, dones = np.empty(self.num_envs, np.float32), np.empty(self.num_envs, np.bool_)
        played = self._each(lambda i, group: group.play(self._actions[self.rows_of(i)]))
        for i, (reward, done) in enumerate(played):
            rewards[self.rows_of(i)], dones[self.rows_of(i)] = reward, done
        infos: list[Any] = [_NOTHING] * self.num_envs
        ended = np.flatnonzero(dones)
        if ended.size:
            for i, group in enumerate(self.groups):
                mine = ended[ended % self._count == i]
                for row, info in zip(mine.tolist(), group.infos(mine // self._count), strict=True):
                    infos[row] = info
            self._begin(ended)
        return self._observe(), rewards, dones, infos

    def close(self) -> None:
        self._threads.shutdown()
