"""A service on a real cluster as a gymnasium.Env."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import HEADS, from_indices
from rlscaler_core.decision.observation import ObservationContract
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_core.decision.types import OBSERVATIONS, Float32, Samples, SignalState
from rlscaler_live.environment.config import EnvironmentConfig
from rlscaler_live.environment.counters import Totals
from rlscaler_live.environment.episode import Controller, Episode
from rlscaler_live.environment.exceptions import LiveEnvironmentError
from rlscaler_live.environment.load import OwnTraffic, make_load, offered_rate
from rlscaler_live.environment.service import LiveService

Facts = dict[str, Any]
Reward = Callable[[Facts, Facts, float], float]
"""(growth of the counters, facts of the service, changed replicas) -> reward of an interval."""

Step = tuple[Float32, float, bool, bool, dict[str, Any]]
T = TypeVar("T")


class BackgroundLoop:
    """An event loop in a thread, so that a synchronous `step` can drive the operator's asynchronous parts.

    It runs until `close`. Its tasks go on between two calls: the lease is renewed while an agent learns.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="environment", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; an interrupt cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread; its running tasks are cancelled."""
        if self._loop.is_closed():
            return
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class KubernetesEnv(gym.Env[Float32, NDArray[np.int64]]):
    """Two Deployments of a cluster under load; observation (10 k,) float32, action MultiDiscrete([5, 5, 3]).

    The spaces, the guards, the sensing ticks every 5 s and the objectives are those of `SimulatorEnv`; sensing and
    writing are the operator's own. With a `rule` actions are added to that forecast rule's replicas. An interval takes
    as long as it says. Episodes are truncated after `episode_duration`, never terminated. Values that Prometheus
    lacks are fed neutral and are NaN in `info["observation"]`. `close` restores the replicas and weights from before.

    `reset(options={"pattern": ..., "seed": ..., "start_replicas": (gpu, cpu)})` chooses the load and the replicas that
    the episode begins with; otherwise the patterns are taken in turn, with seeds from the environment's own generator.

    Raises LiveEnvironmentError (a ClickException) where the cluster, Prometheus or the load cannot be used.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        config: EnvironmentConfig | Mapping[str, Any] | None = None,
        *,
        contract: ObservationContract | None = None,
        rule: RuleSettings | None = None,
        reward: Reward | None = None,
    ) -> None:
        self.config = EnvironmentConfig.of(config)
        self.contract = contract or ObservationContract()
        width, clip = len(OBSERVATIONS) * self.contract.stack_size, self.contract.clip
        self.observation_space = gym.spaces.Box(-clip, clip, (width,), np.float32)
        self.action_space = gym.spaces.MultiDiscrete(HEADS)
        self._rule, self._reward = rule, reward or self._objective()
        self._load = make_load(self.config)
        self._loop: BackgroundLoop | None = None
        self._service: LiveService | None = None
        self._episode: Episode | None = None
        self._episodes, self._folders, self._running = 0, 0, False
        self._pattern, self._mean_rate = "", 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32, dict[str, Any]]:
        super().reset(seed=seed)
        # Equal seeds give equal loads, so that the rotation begins anew at the seed's pattern.
        self._episodes = self._episodes if seed is None else seed
        chosen, self._running = options or {}, False
        patterns = self.config.patterns
        self._pattern = str(chosen.get("pattern", patterns[self._episodes % len(patterns)]))
        drawn = int(chosen.get("seed", self.np_random.integers(2**31)))
        self._episodes, self._folders = self._episodes + 1, self._folders + 1
        self._mean_rate = self._offered(drawn)
        folder = self.config.results and self.config.results / f"episode_{self._folders:03d}"
        start = self._start(chosen.get("start_replicas", self.config.start))
        stacked = self._run(self._connected().begin(self._pattern, drawn, start, folder))
        self._running = True
        return stacked, {"seed": drawn, "folder": str(folder) if folder else None} | self._seen()

    def step(self, action: NDArray[np.int64]) -> Step:
        """Take the action (3,) of MultiDiscrete([5, 5, 3]) and let an interval pass."""
        episode = self._begun()
        base = episode.samples.spec_replicas
        decision = self._run(episode.act(from_indices(np.asarray(action)[None])))
        changed = float(np.abs(decision.desired - base).sum())
        stacked = self._run(episode.pass_interval())
        return self._outcome(stacked, changed)

    def hand_over(self, controller: Controller, rng: np.random.Generator) -> Step:
        """Let a controller scale instead of `step`, for the whole episode: an actor, asked once an interval and behind
        the shield, or another autoscaler, asked at every sensing tick and held by the bounds only.

        An actor's stack must be that of `contract`. Raises LiveEnvironmentError.
        """
        episode = self._begun()
        if not episode.intervals:
            episode.take_over(controller)
        base = episode.samples.spec_replicas
        self._run(episode.ask(controller, rng))
        stacked = self._run(episode.pass_interval(controller, rng))
        return self._outcome(stacked, float(np.abs(episode.samples.spec_replicas - base).sum()))

    @property
    def samples(self) -> Samples:
        """Measurements of the last sensing tick, one row."""
        if self._episode is None:
            raise LiveEnvironmentError("no episode has begun: call reset first")
        return self._episode.samples

    @property
    def timeline(self) -> list[dict[str, Any]]:
        """Measurements of every sensing tick of the episode."""
        return self._episode.timeline if self._episode else []

    def close(self) -> None:
        """Stop the load, restore replicas and weights, and let the cluster go."""
        if self._loop is None:
            return
        service, self._service, self._episode = self._service, None, None
        try:
            self._run(self._load.stop())
            if service is not None:
                try:
                    self._run(service.put_back())
                finally:
                    self._run(service.close())
        finally:
            self._loop.close()
            self._loop = None

    @property
    def params(self) -> Any:
        """The service as the decision function is told it, one row of `Params`. Connects where that was not done."""
        self._connected()
        assert self._service is not None
        return self._service.params

    def _outcome(self, stacked: Float32, changed: float) -> Step:
        episode = self._begun()
        total = episode.total
        # The mean of the users' own traffic is not known beforehand: the mean until now takes its place.
        rate = self._mean_rate or total.received / max(total.seconds, 1e-9)
        reward = self._reward(_spent(episode.spent, self.config), self._facts(max(rate, 1e-3)), changed)
        truncated = episode.intervals * self.config.action_interval >= self.config.episode_duration
        if truncated:
            self._run(episode.end())
        info = self._seen() | episode.figures()
        self._running = not truncated
        return stacked, float(reward), False, truncated, info

    def _seen(self) -> dict[str, Any]:
        """The observation as people read it, and the replicas."""
        episode = self._begun()
        observation, samples = episode.observation, episode.samples
        return {
            "pattern": self._pattern,
            "observation": dict(zip(OBSERVATIONS, observation.values[0].tolist(), strict=True)),
            "unknown": [
                name
                for name, status in zip(OBSERVATIONS, observation.status[0], strict=True)
                if status == SignalState.UNKNOWN
            ],
            "spec_replicas": samples.spec_replicas[0].tolist(),
            "ready_replicas": samples.ready_replicas[0].tolist(),
            "weights": episode.state.weights[0].tolist(),
            "placement": int(episode.state.placement[0]),
        }

    def _facts(self, mean_rate: float) -> Facts:
        params, config = self.params, self.config
        return {
            "cost_per_hour": params.cost_per_hour[0].tolist(),
            "max_replicas": params.max_replicas[0].tolist(),
            "mean_rate": mean_rate,
            "slo_seconds": config.slo_ms / 1000,
            "timeout": config.client_timeout_ms / 1000,
            "pattern": self._pattern,
        }

    def _start(self, wanted: Any) -> tuple[int, int]:
        gpu, cpu = (int(count) for count in wanted)
        low, high = self.config.min_replicas, self.config.max_replicas
        pools = zip(("gpu", "cpu"), (gpu, cpu), strict=True)
        if any(not low <= count <= high for pool, count in pools if pool in self.config.pools):
            raise LiveEnvironmentError(f"start_replicas {(gpu, cpu)}: outside min_replicas {low}..max_replicas {high}")
        return gpu, cpu

    def _offered(self, seed: int) -> float:
        """Requests/s that the load will ask for on average; 0 where that is the users' own affair."""
        if isinstance(self._load, OwnTraffic):
            return 0.0
        rate = offered_rate(self.config, self._pattern, seed, self.config.episode_duration)
        return float(np.mean(rate))

    def _objective(self) -> Reward:
        from rlscaler_rl.simulation.objectives import interval_reward

        try:
            return interval_reward(self.config.objective)
        except ValueError as error:
            raise LiveEnvironmentError(f"environment.objective: {error}") from error

    def _connected(self) -> Episode:
        if self._episode is None:
            self._loop = self._loop or BackgroundLoop()
            self._service = self._run(LiveService.connect(self.config))
            self._episode = Episode(self._service, self._load, self.config, self.contract, self._rule)
        return self._episode

    def _begun(self) -> Episode:
        if self._episode is None or not self._running:
            raise LiveEnvironmentError("no episode is running: call reset first")
        return self._episode

    def _run(self, work: Any) -> Any:
        assert self._loop is not None
        return self._loop.run(work)


def _spent(spent: Totals, config: EnvironmentConfig) -> Facts:
    in_time = spent.within(config.slo_ms / 1000)
    return {
        "seconds": spent.seconds,
        "requests": spent.received,
        "in_time": in_time,
        "missed": max(0.0, spent.timed - in_time) + spent.dropped,
        "dropped": spent.dropped,
        "billed": spent.billed.tolist(),
        "bounds_seconds": spent.bounds.tolist(),
        "within": spent.counts.tolist(),
    }
