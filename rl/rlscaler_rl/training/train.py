"""A training run from begin to end, or until a signal stops it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Self

import click
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from rlscaler_core.decision.action import HEADS
from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import rule_of
from rlscaler_core.decision.types import OBSERVATIONS
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.training import checkpoint
from rlscaler_rl.training import device as devices
from rlscaler_rl.training.callbacks import EntropySchedule, ProgressBar, TimeLimitBootstrap
from rlscaler_rl.training.config import AgentConfig, ConfigError, TrainingConfig
from rlscaler_rl.training.export import FAMILIAR_EPISODES, bare_manifest, with_familiar, write
from rlscaler_rl.training.files import write_atomically
from rlscaler_rl.training.policy import GuardedPPO, ScalingPolicy, begin_with_near_misses, begin_with_no_change
from rlscaler_rl.training.recorder import Recorder
from rlscaler_rl.training.validation import best_of
from rlscaler_rl.workloads.stretches import StretchLoads, trained_recordings

RESULTS = Path("rl")

CALIBRATION_STEPS = 24
"""Intervals of random actions from which the inputs are standardised."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_CODE = 130
"""Exit code of a command that was interrupted."""


def new_folder(root: Path = RESULTS) -> Path:
    """rl/training_YYYYMMDD_HHMMSS."""
    return root / f"training_{datetime.now():%Y%m%d_%H%M%S}"


def make_env(config: TrainingConfig) -> SimulatorVecEnv:
    environment = config.environment
    return SimulatorVecEnv(
        environment.envs,
        config.agent.seed,
        contract=bare_manifest(config).contract,
        rule=rule_of(bare_manifest(config)),
        objective=environment.objective,
        ranges=environment.ranges(),
        loads=StretchLoads(trained_recordings(), environment.trace_share),
        hours=environment.past_hours(),
        asymmetric=environment.asymmetric,
        # The rule alone plays every episode too, and its reward is subtracted: the load's share of the variance goes.
        paired=environment.residual,
        # Episodes begin at different times, so that every rollout has all parts of an episode.
        stagger=True,
    )


def make_model(config: TrainingConfig, env: SimulatorVecEnv, folder: Path | None, *, device: str = "cpu") -> GuardedPPO:
    """Return an untrained model; TensorBoard files go to `folder`/tensorboard."""
    agent = config.agent
    model = GuardedPPO(
        ScalingPolicy,
        env,
        learning_rate=learning_rate(agent),
        n_steps=agent.buffer_size,
        # A minibatch cannot be larger than the rollout that it is drawn from.
        batch_size=min(agent.batch_size, agent.buffer_size * env.num_envs),
        n_epochs=agent.ppo_epochs,
        gamma=agent.gamma,
        gae_lambda=agent.gae_lambda,
        clip_range=agent.clip_epsilon,
        ent_coef=agent.entropy,
        max_grad_norm=agent.max_grad_norm,
        policy_kwargs={
            "actor_width": len(OBSERVATIONS) * config.environment.stack_size,
            "actor_units": agent.hidden_size,
            "critic_units": agent.critic_hidden_size,
        },
        tensorboard_log=str(folder / "tensorboard") if folder else None,
        seed=config.agent.seed,
        device=device,
    )
    model.folder = folder
    return model


def prepare(model: PPO, config: TrainingConfig) -> None:
    """Before the first update, standardise the inputs by the observations of random actions.

    In the residual mode the actor begins with the rule's own replicas, and with steps that last by near misses.
    """
    # Random actions reach more states than any trained actor, so hardly a column is constant.
    model.policy.mlp_extractor.calibrate(random_observations(model.get_env(), config.agent.seed))
    if config.environment.residual:
        begin = begin_with_near_misses if config.environment.lasting else begin_with_no_change
        begin(model.policy)


def random_observations(env: VecEnv, seed: int, steps: int = CALIBRATION_STEPS) -> NDArray[np.float32]:
    """Return the observations (steps * envs, width) of random actions."""
    rng = np.random.default_rng(seed)
    env.reset()
    return np.concatenate([env.step(rng.integers(0, HEADS, (env.num_envs, len(HEADS))))[0] for _ in range(steps)])


def set_up(config: TrainingConfig) -> None:
    """Set torch up for the whole process: its threads, and no checks of every distribution."""
    torch.set_num_threads(config.agent.torch_threads)
    # The checks cost time at every step and find nothing: `GuardedPPO` looks for numbers that are not finite.
    torch.distributions.Distribution.set_default_validate_args(False)


def learning_rate(agent: AgentConfig) -> Callable[[float], float]:
    """Return a learning rate that is linear in the rest of the training, 1 to 0."""
    first, last = agent.learning_rate, agent.final_learning_rate
    return lambda remaining: last + (first - last) * remaining


def train(
    config: TrainingConfig,
    folder: Path,
    *,
    resume: bool = False,
    progress: bool = True,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = print,
    label: str = "",
    prepare: Callable[[PPO, TrainingConfig], None] = prepare,
) -> Path:
    """Train into `folder`, where the best model so far is exported as soon as there is one; returns the folder.

    `prepare` sets the weights of an untrained model. `label` begins the lines of progress. `stop` is called after every
    update; when it returns True, and on Ctrl-C, KeyboardInterrupt is raised once the folder holds a network and, after
    `stop`, a checkpoint of this moment.
    Raises ConfigError for a configuration that cannot be used or resumed, DivergedError when a loss or a weight is not
    finite.
    """
    begun = checkpoint.newest(folder, say) if resume else None
    if begun is not None:
        checkpoint.check(begun, config)
    elif checkpoint.found(folder):
        raise ConfigError(f"{folder}: a training is in it; go on with --resume or choose another folder with --out")
    set_up(config)
    device = _device(config, begun)
    say(str(device))
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.json", config.model_dump_json(indent=1) + "\n")
    env = make_env(config)
    model = make_model(config, env, folder, device=device.name)
    recorder = Recorder(folder, config, device, stop)
    if begun is not None:
        recorder.restore(begun.state["progress"])
        checkpoint.put(begun, model)
        say(f"going on after {model.num_timesteps:,} of {config.agent.steps:,} steps")
    else:
        prepare(model, config)
    try:
        _learn(model, config, recorder, ProgressBar(recorder, label) if progress else None)
    except KeyboardInterrupt:
        if not recorder.rows:
            recorder.validate()
        raise
    finally:
        env.close()
    return folder


def _learn(model: PPO, config: TrainingConfig, recorder: Recorder, bar: ProgressBar | None) -> None:
    agent, done = config.agent, model.num_timesteps
    callbacks: list[BaseCallback] = [
        EntropySchedule(agent.entropy, agent.final_entropy),
        TimeLimitBootstrap(),
        recorder,
    ]
    try:
        model.learn(
            max(agent.steps - done, 0),
            callback=[*callbacks, bar] if bar else callbacks,
            reset_num_timesteps=model._last_obs is None,
            tb_log_name="ppo",
        )
    finally:
        if bar:
            bar.close()


def _device(config: TrainingConfig, begun: checkpoint.Checkpoint | None) -> devices.Choice:
    wanted, there = config.agent.device, devices.available()
    if begun is not None and wanted == devices.AUTO and begun.state["device"] in there:
        return devices.Choice(begun.state["device"], reason="as before the interruption")

    def make(device: str) -> PPO:
        return make_model(config, make_env(config), None, device=device)

    return devices.choose(wanted, there, lambda device: devices.time_update(make, device, TimeLimitBootstrap()))


def summary(folder: Path) -> str:
    """A few lines about the best validation of a run."""
    rows = json.loads((folder / "training_progress.json").read_text(encoding="utf-8"))
    best = best_of(rows)
    lines = [
        f"{workload:>14}  J {figures['j']:6.2f}  cost {figures['cost']:5.2f}  late {figures['late_percent']:5.2f} %"
        for workload, figures in {**best["validation"]["workloads"], "mean": best["validation"]["mean"]}.items()
    ]
    return "\n".join([f"best validation, at {best['steps']:,} steps:", *lines, f"{folder}"])


def install(folder: Path, models: Path, episodes: int = FAMILIAR_EPISODES) -> None:
    """Copy policy.onnx and manifest.json of a run to the package's models, as the bundled `ppo`.

    The manifest then has the distribution of its training observations, too (`familiar`, over so many `episodes`).
    Raises decision.exceptions.ModelError when the pair does not belong together.
    """
    manifest = Manifest.load(folder / "manifest.json")
    content = (folder / "policy.onnx").read_bytes()
    actor = Actor.load(content, manifest)
    write(models, "ppo", "ppo.json", content, with_familiar(actor, episodes))


class Stop:
    """Ctrl-C and SIGTERM: a training ends after its next update, with a checkpoint of that moment.

    While entered, true once a signal has come; a second one raises KeyboardInterrupt at once. Main thread only.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self) -> Self:
        self._before = {name: signal.signal(name, self._note) for name in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        click.echo(f"\n{signal.Signals(number).name}: stopping after this update; once more to stop at once")
