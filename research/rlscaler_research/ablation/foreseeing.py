"""Actors that are shown what no actor can know, and how they play: tests of the training, of no other use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlscaler_core.decision.action import from_indices
from rlscaler_core.decision.types import Float, Float32, Int
from rlscaler_rl.simulation import ledger
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.privileged import hidden, reveal
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.training.config import AgentConfig, EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.imitation import CriticFirst, advice

Act = Callable[[Batch, Float32], Int]
"""The clusters and the network's input with `privileged.WIDTH` more columns -> the action (N, 3)."""


def by_the_rule(batch: Batch, inputs: Float32) -> Int:
    """What the hindsight rule would do within the reach of one action."""
    return from_indices(advice(batch))


def trained(seed: int, steps: int, columns: int, interval: int | None = None) -> Act:
    """An actor of the default configuration that reads so many of the critic's columns; `interval`: the only one that
    it is trained with, all of the default by default.
    """
    from rlscaler_rl.training.callbacks import EntropySchedule, TimeLimitBootstrap
    from rlscaler_rl.training.train import make_env, make_model, prepare, set_up

    agent = AgentConfig(seed=seed, steps=steps)
    config = TrainingConfig(environment=EnvironmentConfig(action_interval=interval), agent=agent)
    set_up(config)
    model: Any = make_model(config, make_env(config), None, foresight=columns)
    prepare(model, config)
    entropy = EntropySchedule(config.agent.entropy, config.agent.final_entropy)
    model.learn(steps, callback=[entropy, TimeLimitBootstrap(), CriticFirst(config.agent.critic_rollouts)])
    return lambda batch, inputs: from_indices(model.predict(inputs, deterministic=True)[0])


def play(episodes: Scenarios, act: Act) -> Float:
    """(N,) J of the scenarios at the fluid level."""
    batch, facts = Batch(episodes, TrainingConfig().environment.contract()), hidden(episodes)
    for _ in range(int(episodes.duration[0]) // batch.interval):
        samples, observation, stacked = batch.observe()
        inputs = np.concatenate([stacked, reveal(facts, batch.cluster, batch.scenarios, batch.rows)], axis=1)
        batch.act(samples, observation, act(batch, inputs))
        batch.finish_interval()
    books = ledger.check(ledger.read(batch.cluster), episodes)
    return books.cost(episodes.price_ratio) + LATE_WEIGHT * books.late_percent()
