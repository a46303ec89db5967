"""The experiment: train the agent, and evaluate it on the four patterns beside the baselines of one pool."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers import RescaleObservation
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor

from rlscaler_core.decision.types import Float, Float32
from rlscaler_live.kisim.baselines import EPISODES, FIRST_SEED, PATTERNS
from rlscaler_live.kisim.config import KisimConfig
from rlscaler_live.kisim.env import KisimEnv, make_kisim
from rlscaler_live.kisim.world import FIRST_REPLICAS, Replicas
from rlscaler_rl.results.statistics import Interval, mean_interval, ratio_interval
from rlscaler_rl.results.table import Column, Table

CHOICE_EPISODES = 4
"""Episodes of each pattern on which a checkpoint is evaluated, with seeds of their own."""

CHOICE_SEED = 2_000_000

SPEEDUPS = {"ramp": 1.16, "spike": 1.27, "periodic": 1.0, "random": 1.96}
"""p95 latency of the CPU baseline over that of the GPU baseline, as KISim has measured them, by pattern."""

BASELINES: dict[str, Replicas] = {"gpu": (FIRST_REPLICAS, 0), "cpu": (0, FIRST_REPLICAS)}
"""Replicas that each baseline holds."""

UNCHANGED = np.array([2, 2, 1])
"""Action that leaves the replicas as they are."""

LEAST_CHANGE = 0.01
"""Mean change of an action's probability below which the actor counts as untrained."""

Say = Callable[[str], None]

Act = Callable[[Float32], Any]
"""Policy: an observation (10,) to an action (3,)."""


@dataclass(frozen=True, slots=True)
class Played:
    """Figures of a policy on episodes of one pattern, (N,) each."""

    reward: Float
    """Sum over the episode."""
    p95_ms: Float
    throughput: Float
    """Answers/s, late ones included."""
    replicas: Float
    """(N, 2) mean replicas of GPU and CPU."""


def played(act: Act, env: gym.Env[Any, Any], pattern: str, seeds: list[int], **options: Any) -> Played:
    """Play a policy on episodes of a pattern; `options` are those of the environment's `reset`."""
    rows = []
    for seed in seeds:
        observation, _ = env.reset(options={"pattern": pattern, "seed": seed, **options})
        total, truncated = 0.0, False
        while not truncated:
            observation, reward, _, truncated, _ = env.step(act(observation))
            total += float(reward)
        inner = env.unwrapped
        assert isinstance(inner, KisimEnv)
        replicas = np.mean([interval.replicas for interval in inner.intervals[1:]], axis=0)
        rows.append([total, *inner.whole_episode(), *replicas])
    table = np.array(rows, np.float64)
    return Played(table[:, 0], table[:, 1], table[:, 2], table[:, 3:])


def most_likely(model: PPO) -> Act:
    """Return the policy that takes the agent's most likely action."""
    return lambda observation: model.predict(observation, deterministic=True)[0]


class Log(BaseCallback):
    """Writes checkpoints and evaluations every so many episodes, and keeps the best network."""

    def __init__(self, config: KisimConfig, env: gym.Env[Any, Any], folder: Path, say: Say) -> None:
        super().__init__()
        self.config, self.env, self.folder, self.say = config, env, folder, say
        self.episodes: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []
        self.best = -np.inf

    def _on_training_start(self) -> None:
        self.evaluate()

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self._ended(info)
        return True

    def _ended(self, info: Mapping[str, Any]) -> None:
        self.episodes.append({"pattern": info["pattern"], "reward": info["episode"]["r"], "steps": self.num_timesteps})
        number, training = len(self.episodes), self.config.training
        if number % training.save_interval == 0:
            self.model.save(self.folder / f"model_episode_{number}.zip")
        if number % training.evaluation_interval == 0:
            self.evaluate()

    def evaluate(self) -> None:
        """Evaluate the present network on all patterns, and keep it where its mean reward is the highest so far."""
        number, seeds = len(self.episodes), list(range(CHOICE_SEED, CHOICE_SEED + CHOICE_EPISODES))
        assert isinstance(self.model, PPO)
        act = most_likely(self.model)
        rewards = {name: float(played(act, self.env, name, seeds).reward.mean()) for name in PATTERNS}
        mean = float(np.mean(list(rewards.values())))
        row = {"episode": number, "rewards": rewards, "mean": mean}
        self.evaluations.append(row)
        # Written as it comes, so that an interrupted run has its evaluations.
        (self.folder / f"evaluation_episode_{number}.json").write_text(json.dumps(row, indent=1) + "\n")
        if mean > self.best:
            self.best = mean
            self.model.save(self.folder / "best_model.zip")
        trained = np.mean([episode["reward"] for episode in self.episodes[-20:]]) if self.episodes else np.nan
        self.say(f"episode {number}: reward {trained:.2f} in training, {mean:.2f} in the evaluation")


def make_model(config: KisimConfig, env: gym.Env[Any, Any], seed: int) -> PPO:
    """Return an untrained agent with the hyperparameters of the file."""
    agent = config.agent
    layers = [agent.hidden_size] * agent.num_layers
    return PPO(
        "MlpPolicy",
        Monitor(env),
        learning_rate=agent.learning_rate,
        n_steps=config.update_steps,
        batch_size=min(agent.batch_size, config.update_steps),
        n_epochs=agent.ppo_epochs,
        gamma=agent.gamma,
        gae_lambda=agent.gae_lambda,
        clip_range=agent.clip_epsilon,
        ent_coef=agent.entropy_coef,
        vf_coef=agent.value_coef,
        max_grad_norm=agent.max_grad_norm,
        policy_kwargs={"net_arch": {"pi": layers, "vf": layers}, "activation_fn": torch.nn.ReLU},
        device="cuda" if config.use_gpu and torch.cuda.is_available() else "cpu",
        seed=seed,
    )


def run(
    config: KisimConfig, folder: Path, say: Say, *, seed: int = 1, cluster: Mapping[str, Any] | None = None
) -> Table:
    """Run the whole experiment into `folder`: checkpoints, evaluations, kisim.json and kisim.png; return the table.

    On a `cluster` (see `make_kisim`) it takes real time, and the agent plays one episode of each pattern there. The
    baselines and the evaluations in the course of the training are simulated.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config.model_dump_json(indent=1) + "\n")
    for text in config.remarks():
        say(text)
    # Evaluations between two steps of an episode would end it: they have an environment of their own.
    with _environment(config, cluster) as env, _environment(config, None) as apart:
        model = make_model(config, env, seed)
        seen = _seen(env, seed)
        before = _probabilities(model, seen)
        log = Log(config, apart, folder, say)
        model.learn(config.training.episodes * config.environment.intervals, callback=log)
        if log.evaluations[-1]["episode"] != len(log.episodes):
            log.evaluate()
        changed = float(np.abs(_probabilities(model, seen) - before).mean())
        best = PPO.load(folder / "best_model.zip", device="cpu")
        seeds = list(range(FIRST_SEED, FIRST_SEED + (EPISODES if cluster is None else 1)))
        figures = {"agent": {pattern: played(most_likely(best), env, pattern, seeds) for pattern in PATTERNS}}
        for name, replicas in BASELINES.items():
            # On a cluster a policy has no pool that may be empty.
            place, hold = env if cluster is None else apart, {"replicas": replicas}
            figures[name] = {
                pattern: played(lambda _: UNCHANGED, place, pattern, seeds, **hold) for pattern in PATTERNS
            }
    table = _table(figures)
    learned = _learned(model._n_updates // config.agent.ppo_epochs, changed)
    chosen = max(log.evaluations, key=lambda row: row["mean"])["episode"]
    sentence = f"{learned} The network after episode {chosen} has the highest reward in the evaluations and is shown."
    say(sentence)
    document = {
        "episodes": log.episodes,
        "evaluations": log.evaluations,
        "figures": {
            name: {
                pattern: {figure: values.tolist() for figure, values in asdict(of).items()}
                for pattern, of in by_pattern.items()
            }
            for name, by_pattern in figures.items()
        },
        "sentence": sentence,
    }
    (folder / "kisim.json").write_text(json.dumps(document, indent=1) + "\n")
    from rlscaler_live.kisim.picture import draw

    draw(log.episodes, log.evaluations, figures, folder / "kisim.png")
    return table


def _learned(updates: int, changed: float) -> str:
    text = f"{updates} updates changed the probability of an action by {changed:.3f} in the mean"
    if changed < LEAST_CHANGE:
        return f"The actor has not learned: {text}; train it for more episodes."
    return f"{text}."


@contextmanager
def _environment(config: KisimConfig, cluster: Mapping[str, Any] | None) -> Iterator[gym.Env[Any, Any]]:
    """Yield the environment with observations from 0 to 1: a network learns nothing from milliseconds beside shares."""
    env = make_kisim(config, cluster)
    try:
        yield RescaleObservation(env, np.float32(0.0), np.float32(1.0))
    finally:
        env.close()


def _seen(env: gym.Env[Any, Any], seed: int) -> Float32:
    """Return the observations (N, 10) of random actions in one episode of each pattern."""
    env.action_space.seed(seed)
    seen = []
    for pattern in PATTERNS:
        seen.append(env.reset(options={"pattern": pattern, "seed": seed})[0])
        truncated = False
        while not truncated:
            observation, _, _, truncated, _ = env.step(env.action_space.sample())
            seen.append(observation)
    return np.stack(seen).astype(np.float32)


def _probabilities(model: PPO, observations: Float32) -> Float:
    """Return the probabilities (N, 13) of all actions."""
    with torch.no_grad():
        heads = model.policy.get_distribution(torch.as_tensor(observations, device=model.device)).distribution
    return np.concatenate([head.probs.cpu().numpy() for head in heads], axis=1).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Row:
    """One pattern of the table: the agent beside the baselines, on the same episodes."""

    pattern: str
    agent: Played
    gpu: Played
    cpu: Played

    @property
    def speedup(self) -> Interval:
        """p95 latency of the CPU baseline over that of the GPU baseline."""
        percent = ratio_interval(self.cpu.p95_ms, self.gpu.p95_ms)
        return Interval(1 + percent.mean / 100, 1 + percent.low / 100, 1 + percent.high / 100)

    @property
    def ahead(self) -> Interval:
        """Reward of the agent above that of the better baseline."""
        better = max(self.gpu, self.cpu, key=lambda baseline: float(baseline.reward.mean()))
        return mean_interval(self.agent.reward - better.reward)

    @property
    def slower(self) -> Interval:
        """p95 latency of the agent above that of the GPU baseline, %."""
        return ratio_interval(self.agent.p95_ms, self.gpu.p95_ms)

    @property
    def replicas(self) -> tuple[float, float]:
        """Mean replicas of the agent."""
        gpu, cpu = self.agent.replicas.mean(axis=0).tolist()
        return gpu, cpu


def _mean(policy: str, figure: str, form: str) -> Callable[[Row], str]:
    return lambda row: format(float(getattr(getattr(row, policy), figure).mean()), form)


COLUMNS: dict[str, Column] = {
    "pattern": "{0.pattern}",
    "reward: agent": _mean("agent", "reward", ".2f"),
    "3 GPU": _mean("gpu", "reward", ".2f"),
    "3 CPU": _mean("cpu", "reward", ".2f"),
    "agent ahead of the better": "{0.ahead:+.2f}",
    "p95 ms: agent": _mean("agent", "p95_ms", ".0f"),
    "of 3 GPU": _mean("gpu", "p95_ms", ".0f"),
    "of 3 CPU": _mean("cpu", "p95_ms", ".0f"),
    "agent against 3 GPU": "{0.slower:+.0f %}",
    "3 CPU over 3 GPU": "{0.speedup:.2f}",
    "KISim": lambda row: f"{SPEEDUPS[row.pattern]:.2f}",
    "agent's replicas": "{0.replicas[0]:.1f}+{0.replicas[1]:.1f}",
}


def _table(figures: Mapping[str, Mapping[str, Played]]) -> Table:
    rows = [Row(pattern, **{policy: figures[policy][pattern] for policy in figures}) for pattern in PATTERNS]
    title = "The agent beside three GPU replicas and three CPU replicas alone, the same episodes"
    return Table.of(COLUMNS, rows, title)
