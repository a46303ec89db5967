"""PPO from a trained network on one load or service, and the choice of the best checkpoint on the tune part."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from stable_baselines3.common.callbacks import BaseCallback

from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import rule_of
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.objectives import Objective
from rlscaler_rl.simulation.scenario_buffer import ScenarioSource
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.training.callbacks import CriticFirst, EntropySchedule, TimeLimitBootstrap
from rlscaler_rl.training.config import AgentConfig, EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.export import NumpyActor, to_onnx
from rlscaler_rl.training.train import make_model, random_observations

Progress = Callable[[str], None]

Judge = Callable[[NumpyActor, LevelName], float]
"""Mean J of an actor on the episodes that checkpoints are chosen by, never those of the test part."""


@dataclass(frozen=True, slots=True)
class FineTuning:
    """Settings of fine-tuning; the defaults keep a run within five minutes on two cores."""

    steps: int = 2_000_000
    """Environment steps (action intervals)."""

    seconds: float = 150.0
    """Wall-clock seconds after which training ends, however many steps were made."""

    seed: int = 1
    envs: int = 512
    buffer_size: int = 24
    """Steps of every environment between two updates."""

    batch_size: int = 3072
    epochs: int = 4
    learning_rate: float = 3e-4
    """A tenth of the general training's; linear to `final_learning_rate`."""

    final_learning_rate: float = 1e-5
    entropy: float = 0.002
    gamma: float = 0.95
    critic_rollouts: int = 8
    """Rollouts at the beginning in which only the critic learns: it knows nothing yet, and its first advantages would
    tear the actor apart."""

    candidates: int = 12
    """Checkpoints that are tried on the tune part at the fluid level, evenly over the training."""

    finalists: int = 4
    """The best of them are tried again request by request."""

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Return the defaults with the given values, except None."""
        return cls(**{name: value for name, value in given.items() if value is not None})

    def config(self, stack_size: int, residual: bool, hidden_size: int, interval: int, episode: int) -> TrainingConfig:
        """The configuration that `training.train.make_model` takes; `interval` and `episode` in seconds."""
        return TrainingConfig(
            environment=EnvironmentConfig(
                envs=self.envs,
                stack_size=stack_size,
                residual=residual,
                action_interval=interval,
                episode_duration=episode,
            ),
            agent=AgentConfig(
                steps=self.steps,
                seed=self.seed,
                hidden_size=hidden_size,
                learning_rate=self.learning_rate,
                final_learning_rate=self.final_learning_rate,
                buffer_size=self.buffer_size,
                batch_size=self.batch_size,
                ppo_epochs=self.epochs,
                gamma=self.gamma,
                entropy=self.entropy,
                final_entropy=self.entropy / 4,
            ),
        )


class Start(Protocol):
    """The network to begin with."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def hidden_size(self) -> int: ...

    def put_into(self, policy: torch.nn.Module) -> None:
        """Overwrite the actor of a `training.policy.ScalingPolicy` of the same sizes."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """Episodes of a training: every source serves a part of the environments, simulated in a thread of its own."""

    sources: Sequence[ScenarioSource]
    interval_seconds: int
    duration_seconds: int
    objective: str | Objective = "slo_cost"


@dataclass(slots=True)
class Candidate:
    """A checkpoint: the actor's weights as an ONNX graph, and J on the tune part."""

    steps: int
    onnx: bytes
    actor: NumpyActor
    fluid: float
    request: float = float("nan")


@dataclass(slots=True)
class FineTuned:
    """Result of fine-tuning; `best.steps` is 0 where no checkpoint was better than the start."""

    best: Candidate
    candidates: list[Candidate] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    cut_short: bool = False
    """The time was over before the steps were."""


def fine_tune(
    start: Start,
    episodes: Episodes,
    judge: Judge,
    settings: FineTuning,
    progress: Progress,
    *,
    level: LevelName = "request",
    folder: Path | None = None,
) -> FineTuned:
    """Train on `episodes` and choose by `judge`: every checkpoint at the fluid level, the best of them at `level`.

    The start itself is a candidate. Raises training.errors.DivergedError; `folder` then has the batch.
    """
    torch.set_num_threads(len(episodes.sources))
    torch.distributions.Distribution.set_default_validate_args(False)
    manifest = start.manifest.model_copy(update={"envelope": None, "digest": ""})
    config = settings.config(
        manifest.stack_size,
        manifest.residual,
        start.hidden_size,
        episodes.interval_seconds,
        episodes.duration_seconds,
    )
    env = SimulatorVecEnv(
        settings.envs,
        settings.seed,
        contract=manifest.contract,
        rule=rule_of(manifest),
        objective=episodes.objective,
        sources=episodes.sources,
        asymmetric=True,
        stagger=True,
    )
    model = make_model(config, env, None)
    model.folder = folder
    model.policy.mlp_extractor.calibrate(random_observations(env, settings.seed))
    start.put_into(model.policy)
    chooser = Chooser(manifest, judge, settings, progress)
    callbacks: list[BaseCallback] = [
        EntropySchedule(config.agent.entropy, config.agent.final_entropy),
        TimeLimitBootstrap(),
        CriticFirst(settings.critic_rollouts),
        chooser,
    ]
    model.learn(settings.steps, callback=callbacks)
    env.close()
    finalists = sorted(chooser.candidates, key=lambda candidate: candidate.fluid)[: settings.finalists]
    if chooser.candidates[0] not in finalists:
        finalists.append(chooser.candidates[0])
    for candidate in finalists:
        candidate.request = judge(candidate.actor, level)
    return FineTuned(
        best=_best(finalists),
        candidates=chooser.candidates,
        steps=model.num_timesteps,
        seconds=chooser.seconds,
        cut_short=chooser.cut_short,
    )


def _best(finalists: Sequence[Candidate]) -> Candidate:
    return min(finalists, key=lambda candidate: (candidate.request, candidate.steps))


class Chooser(BaseCallback):
    """Tries the policy on the tune part now and then, beginning with the start itself, and ends training in time."""

    def __init__(self, manifest: Manifest, judge: Judge, settings: FineTuning, progress: Progress) -> None:
        super().__init__()
        self.manifest, self.judge = manifest, judge
        self.settings, self.progress = settings, progress
        self.candidates: list[Candidate] = []
        self.seconds, self.cut_short = 0.0, False

    def _on_training_start(self) -> None:
        self.began = time.monotonic()
        self.every = max(self.settings.steps // self.settings.candidates, 1)
        self._try()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= len(self.candidates) * self.every:
            self._try()

    def _on_step(self) -> bool:
        self.seconds = time.monotonic() - self.began
        self.cut_short = self.seconds > self.settings.seconds
        return not self.cut_short

    def _on_training_end(self) -> None:
        self._try()

    def _try(self) -> None:
        actor = NumpyActor.of(self.model.policy, self.manifest)
        j = self.judge(actor, "fluid")
        self.candidates.append(Candidate(self.num_timesteps, to_onnx(actor.layers), actor, j))
        share = 100 * self.num_timesteps / self.settings.steps
        self.progress(f"{min(share, 100):3.0f} % of the training: J {j:.3f} on the tune part")
