"""Several trained actors made into one: a network of their size that answers as their mean does.

Policy distillation (Rusu et al., 2016). Seeds of one training differ by chance, and the mean of their logits is better
than nearly every one of them; one network keeps the cost of a decision and of fine-tuning as before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import PPO
from torch.nn import functional

from rlscaler_core.decision.action import HEADS, PLACEMENT_HEAD, POOL_HEADS
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.types import OBSERVATIONS, Float32
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.training.config import TrainingConfig
from rlscaler_rl.training.export import NumpyActor, bare_manifest, export, set_actor_layers, write
from rlscaler_rl.training.files import write_atomically
from rlscaler_rl.training.network import weights_of
from rlscaler_rl.training.recorder import recorded_validation, save_model
from rlscaler_rl.training.train import make_env, make_model, random_observations, set_up
from rlscaler_rl.training.validation import validate

DISTILLED = "distilled"
"""Folder of the network, beside those of the seeds."""

SEED = 1_000_003
"""Seed of the episodes, which no training draws; added to that of the configuration."""

STEPS = 400
"""Intervals of every environment that the mean actor plays."""

EPOCHS, BATCH = 12, 2048
FIRST_RATE, LAST_RATE = 1e-3, 1e-5
"""Learning rates of Adam, linear between."""

LEAST = 1e-12
"""Probabilities are not below this, so that logarithms are finite."""


def distil(folder: Path, config: TrainingConfig, seeds: Sequence[int], best: int) -> dict[str, float]:
    """Make the networks in folder/seed_N into one in folder/distilled, as a training leaves it.

    Begins with the weights of the seed `best`. Return J, cost and late requests in percent of its validation.
    """
    set_up(config)
    actors = {seed: _actor(folder / f"seed_{seed}") for seed in seeds}
    model = distilled(list(actors.values()), actors[best].layers, config)
    figures = validate(NumpyActor.of(model.policy, bare_manifest(config)))
    steps = config.agent.steps * len(seeds)
    content, manifest = export(model.policy, config, steps)
    training = manifest.training.model_copy(update={"seed": None, "seeds": list(seeds)})
    out = folder / DISTILLED
    write(out, "policy", "manifest.json", content, manifest.model_copy(update={"training": training}))
    save_model(model, out / "best_model.zip")
    write_atomically(out / "config.json", config.model_dump_json(indent=1) + "\n")
    row = {"steps": steps, "validation": recorded_validation(figures)}
    write_atomically(out / "training_progress.json", json.dumps([row], indent=1) + "\n")
    return dict(figures["mean"])


def _actor(folder: Path) -> NumpyActor:
    manifest = Manifest.load(folder / "manifest.json")
    return NumpyActor(weights_of(folder / "policy.onnx", manifest), manifest)


def mean_log_probabilities(actors: Sequence[ActorLike], stacked: Float32) -> Float32:
    """Return the mean of the actors' logarithmic probabilities (N, 13) for observations (N, 10 k)."""
    return np.mean([np.log(np.maximum(actor.probabilities(stacked), LEAST)) for actor in actors], axis=0)


def distilled(actors: Sequence[ActorLike], first: Sequence[tuple[Float32, Float32]], config: TrainingConfig) -> PPO:
    """Return a model whose actor answers as the mean of `actors` on episodes that the mean plays.

    `first` are the layers that the network begins with, those of one of the actors.
    """
    config = config.model_copy(update={"agent": config.agent.model_copy(update={"seed": config.agent.seed + SEED})})
    env = make_env(config)
    model = make_model(config, env, None)
    model.policy.mlp_extractor.calibrate(random_observations(env, config.agent.seed))
    set_actor_layers(model.policy, first)
    observations, wanted = _played(env, actors, config.agent.seed)
    env.close()
    _fit(model, observations, wanted, config.agent.seed)
    return model


def _played(env: SimulatorVecEnv, actors: Sequence[ActorLike], seed: int) -> tuple[Float32, Float32]:
    """Return observations (M, width) and log-probabilities (M, 13) of episodes that the mean of the actors plays."""
    rng = np.random.default_rng(seed)
    width = len(OBSERVATIONS) * actors[0].manifest.stack_size
    seen, wanted = [], []
    observation = env.reset()
    for _ in range(STEPS):
        mean = mean_log_probabilities(actors, observation[:, :width])
        seen.append(observation)
        wanted.append(mean.astype(np.float32))
        # The Gumbel trick draws from each head's distribution.
        noisy = mean + rng.gumbel(size=mean.shape)
        actions = [noisy[:, head].argmax(axis=1) for head in (*POOL_HEADS, PLACEMENT_HEAD)]
        observation = env.step(np.stack(actions, axis=1))[0]
    return np.concatenate(seen), np.concatenate(wanted)


def _fit(model: PPO, observations: Float32, wanted: Float32, seed: int) -> None:
    """Move the actor's weights to the least divergence from the wanted distributions of all heads."""
    policy, generator = model.policy, torch.Generator().manual_seed(seed)
    parameters = [*policy.mlp_extractor.policy_net.parameters(), *policy.action_net.parameters()]
    optimiser = torch.optim.Adam(parameters, FIRST_RATE)
    seen, aims = torch.from_numpy(observations), torch.from_numpy(wanted)
    count = EPOCHS * -(-len(seen) // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, LAST_RATE / FIRST_RATE, count)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(seen), generator=generator).split(BATCH):
            logits = policy.action_net(policy.mlp_extractor.forward_actor(seen[rows]))
            loss = sum(
                functional.kl_div(
                    torch.log_softmax(own, dim=1), torch.log_softmax(aim, dim=1), reduction="batchmean", log_target=True
                )
                for own, aim in zip(logits.split(HEADS, dim=1), aims[rows].split(HEADS, dim=1), strict=True)
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
