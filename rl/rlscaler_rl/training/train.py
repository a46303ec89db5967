"""A training run from begin to end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from rlscaler_rl.decision.action import HEADS
from rlscaler_rl.decision.actor import Actor
from rlscaler_rl.decision.manifest import Manifest
from rlscaler_rl.decision.types import OBSERVATIONS
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.training.callbacks import EntropySchedule, ProgressBar, Recorder, TimeLimitBootstrap
from rlscaler_rl.training.config import AgentConfig, ConfigError, TrainingConfig
from rlscaler_rl.training.export import export, write
from rlscaler_rl.training.imitation import CriticFirst, imitate
from rlscaler_rl.training.policy import ScalingPolicy
from rlscaler_rl.training.weighted import objective_of
from rlscaler_rl.workloads import TraceLoads

RESULTS = Path("rl")

CALIBRATION_STEPS = 24
"""Intervals of random actions from which the inputs are standardised."""


def new_folder(root: Path = RESULTS) -> Path:
    """rl/training_YYYYMMDD_HHMMSS."""
    return root / f"training_{datetime.now():%Y%m%d_%H%M%S}"


def newest_checkpoint(folder: Path) -> Path:
    """model_episode_N.zip with the highest N. Raises ConfigError where there is none."""
    found = {int(match[1]): path for path in folder.glob("model_episode_*.zip") if (match := _NUMBER.search(path.name))}
    if not found:
        raise ConfigError(f"{folder}: no model_episode_*.zip to go on from; start a new run without --resume")
    return found[max(found)]


_NUMBER = re.compile(r"model_episode_(\d+)\.zip$")


def make_env(config: TrainingConfig) -> SimulatorVecEnv:
    environment = config.environment
    return SimulatorVecEnv(
        environment.envs,
        config.agent.seed,
        contract=environment.contract(),
        residual=environment.residual,
        objective=objective_of(environment),
        ranges=environment.ranges(),
        loads=TraceLoads().draw if environment.trace_share else None,
        asymmetric=environment.asymmetric,
        stagger=True,
    )


def make_model(config: TrainingConfig, env: SimulatorVecEnv, folder: Path | None, *, foresight: bool = False) -> PPO:
    """An untrained model; TensorBoard files go to `folder`/tensorboard.

    With `foresight` the actor reads the critic's columns too, the near future among them: a test of the optimiser, of
    no use to anybody else.
    """
    agent, stack_width = config.agent, len(OBSERVATIONS) * config.environment.stack_size
    return PPO(
        ScalingPolicy,
        env,
        learning_rate=learning_rate(agent),
        n_steps=agent.buffer_size,
        batch_size=min(agent.batch_size, agent.buffer_size * env.num_envs),
        n_epochs=agent.ppo_epochs,
        gamma=agent.gamma,
        gae_lambda=agent.gae_lambda,
        clip_range=agent.clip_epsilon,
        ent_coef=agent.entropy,
        max_grad_norm=agent.max_grad_norm,
        policy_kwargs={
            "actor_width": env.observation_space.shape[0] if foresight else stack_width,
            "stack_width": stack_width,
            "actor_units": agent.hidden_size,
            "critic_units": agent.critic_hidden_size,
        },
        tensorboard_log=str(folder / "tensorboard") if folder else None,
        seed=config.agent.seed,
        device="cpu",
    )


def prepare(model: PPO, config: TrainingConfig) -> None:
    """Before the first update: standardise the inputs by what random actions get to see, and imitate."""
    env, agent = model.get_env(), config.agent
    model.policy.mlp_extractor.calibrate(random_observations(env, agent.seed))
    imitate(model, env, rounds=agent.imitation_rounds, seed=agent.seed)


def random_observations(env: VecEnv, seed: int, steps: int = CALIBRATION_STEPS) -> NDArray[np.float32]:
    """(steps * envs, width): what random actions get to see."""
    rng = np.random.default_rng(seed)
    env.reset()
    return np.concatenate([env.step(rng.integers(0, HEADS, (env.num_envs, len(HEADS))))[0] for _ in range(steps)])


def set_up(config: TrainingConfig) -> None:
    """Of torch, for the whole process."""
    torch.set_num_threads(config.agent.torch_threads)
    torch.distributions.Distribution.set_default_validate_args(False)


def learning_rate(agent: AgentConfig) -> Callable[[float], float]:
    """Linear in what remains of the training, 1 to 0."""
    first, last = agent.learning_rate, agent.final_learning_rate
    return lambda remaining: last + (first - last) * remaining


def train(config: TrainingConfig, folder: Path, *, resume: bool = False, progress: bool = True) -> Path:
    """Train into `folder` and export its best model; returns the folder.

    Interrupted by Ctrl-C it saves a checkpoint to `resume` from, exports what it has, and returns as usual.
    """
    set_up(config)
    env = make_env(config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config.model_dump_json(indent=1) + "\n", encoding="utf-8")
    recorder = Recorder(folder, config)
    if resume:
        recorder.restore()
        model = PPO.load(newest_checkpoint(folder), env=env, device="cpu")
    else:
        model = make_model(config, env, folder)
        prepare(model, config)
    entropy = EntropySchedule(config.agent.entropy, config.agent.final_entropy)
    callbacks: list[BaseCallback] = [entropy, TimeLimitBootstrap(), recorder]
    if config.agent.imitation_rounds and not resume:
        callbacks.append(CriticFirst(config.agent.critic_rollouts))
    bar = ProgressBar(recorder)
    left = config.agent.steps - model.num_timesteps if resume else config.agent.steps
    try:
        model.learn(
            max(left, 0),
            callback=[*callbacks, bar] if progress else callbacks,
            reset_num_timesteps=not resume,
            tb_log_name="ppo",
        )
    except KeyboardInterrupt:
        bar.close()
        model.save(folder / f"model_episode_{recorder._per_env()}.zip")
        recorder.validate()
    best = PPO.load(folder / "best_model.zip", device="cpu")
    content, manifest = export(best.policy, config, best.num_timesteps)
    write(folder, "policy", "manifest.json", content, manifest)
    return folder


def summary(folder: Path) -> str:
    """A few lines about the best validation of a run."""
    rows = json.loads((folder / "training_progress.json").read_text(encoding="utf-8"))
    best = min(rows, key=lambda row: row["validation"]["mean"]["j"])
    lines = [
        f"{workload:>14}  J {figures['j']:6.2f}  cost {figures['cost']:5.2f}  late {figures['late_percent']:5.2f} %"
        for workload, figures in {**best["validation"]["workloads"], "mean": best["validation"]["mean"]}.items()
    ]
    return "\n".join([f"best validation, at {best['steps']:,} steps:", *lines, f"{folder}"])


def install(folder: Path, models: Path) -> None:
    """Copy policy.onnx and manifest.json of a run to the package's models, as the bundled `ppo`.

    Raises decision.exceptions.ModelError when the pair does not belong together.
    """
    manifest = Manifest.load(folder / "manifest.json")
    content = (folder / "policy.onnx").read_bytes()
    Actor.load(content, manifest)
    write(models, "ppo", "ppo.json", content, manifest)
