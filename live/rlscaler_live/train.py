"""PPO on a live service: fine-tunes a network in real time, one action interval after the other."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from rlscaler_core.decision.manifest import Training
from rlscaler_live.ground import Json, Say, ground, make_env, read_parts
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import Start, load_start
from rlscaler_rl.training.config import AgentConfig, EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.export import actor_layers, to_onnx, trained_on, versions, write
from rlscaler_rl.training.finetune import given
from rlscaler_rl.training.train import make_model, new_folder

AGENT: Json = {
    "steps": 100,
    "learning_rate": 1e-4,
    "final_learning_rate": 1e-5,
    "buffer_size": 20,
    "batch_size": 20,
    "entropy": 0.001,
    "final_entropy": 0.0,
}
"""The network is good already and has hundreds of steps at most: small steps, an update every two episodes."""

FEWEST_STEPS = 2
"""Fewest steps of an update: advantages are standardised over it."""

PROGRESS = "training_progress.json"


def train(
    config: Path | None, out: Path | None, say: Say, *, steps: int | None = None, seed: int | None = None
) -> Path:
    """Fine-tune the bundled network; returns the folder with best_model.zip, policy.onnx and manifest.json.

    Interrupted by Ctrl-C it exports the network of that moment. Raises EvaluationError, or a ClickException of the
    environment.
    """
    live, simulated, agent = read_parts(config)
    start = load_start(None)
    settings = _settings(start, simulated, AGENT | agent | given({"steps": steps, "seed": seed}))
    folder = out or new_folder()
    folder.mkdir(parents=True, exist_ok=True)
    # A rollout takes minutes of real time, so one thread is enough for the updates between them.
    torch.set_num_threads(settings.agent.torch_threads)
    with ground(live, folder, settings.agent.seed, say) as place:
        env = make_env(place, start.manifest)
        try:
            seconds = settings.agent.steps * env.config.action_interval
            say(f"{settings.agent.steps} steps of {env.config.action_interval} s: {seconds / 60:.0f} min and more")
            (folder / "config.json").write_text(
                json.dumps({"environment": place | simulated, "agent": settings.agent.model_dump()}, indent=1) + "\n"
            )
            model = _learn(env, settings, start, folder, say)
        finally:
            env.close()
    model.save(folder / "best_model.zip")
    # The envelope of the network that training began with holds for the trained one.
    content = to_onnx(actor_layers(model.policy.state_dict()))
    origin = _origin(start, settings, model.num_timesteps, live)
    trained = trained_on(start.manifest, content, f"{start.manifest.name}-live", origin)
    write(folder, "policy", "manifest.json", trained.content, trained.manifest)
    return folder


def _settings(start: Start, simulated: Json, agent: Json) -> TrainingConfig:
    """Sizes are the network's that is fine-tuned; an update takes no more steps than the whole training has."""
    manifest = start.manifest
    acts = {"residual": manifest.residual, "lasting": manifest.lasting}
    shape = {"stack_size": manifest.stack_size, **acts, "envs": 1, "asymmetric": False}
    try:
        wanted = AgentConfig(**(agent | {"hidden_size": start.hidden_size}))
        shorter = {"buffer_size": min(wanted.buffer_size, max(wanted.steps, FEWEST_STEPS))}
        return TrainingConfig(
            environment=EnvironmentConfig(**(simulated | shape)), agent=wanted.model_copy(update=shorter)
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise EvaluationError(f"--config: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _learn(env: Any, settings: TrainingConfig, start: Start, folder: Path, say: Say) -> PPO:
    model = make_model(settings, DummyVecEnv([lambda: env]), folder)
    start.put_into(model.policy)
    progress = EpisodeLog(folder, say)
    try:
        model.learn(settings.agent.steps, callback=progress, tb_log_name="ppo")
    except KeyboardInterrupt:
        say(f"interrupted after {model.num_timesteps} steps: what was learned so far is kept")
    return model


def _origin(start: Start, settings: TrainingConfig, steps: int, live: Json) -> Training:
    return Training(
        seed=settings.agent.seed,
        steps=steps,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions("torch", "stable-baselines3", "numpy"),
        hyperparameters={
            "environment": live,
            "agent": settings.agent.model_dump(),
            "started_from": start.manifest.digest,
        },
    )


class EpisodeLog(BaseCallback):
    """One row an episode in training_progress.json, and a checkpoint beside it."""

    def __init__(self, folder: Path, say: Say) -> None:
        super().__init__()
        self.folder, self.say = folder, say
        self.rows: list[Json] = []
        self._reward, self._began = 0.0, time.monotonic()

    def _on_step(self) -> bool:
        self._reward += float(self.locals["rewards"][0])
        if self.locals["dones"][0]:
            self._end(self.locals["infos"][0])
        return True

    def _end(self, info: Json) -> None:
        row = {
            "episode": len(self.rows) + 1,
            "steps": self.num_timesteps,
            "seconds": round(time.monotonic() - self._began, 1),
            "reward": self._reward,
            **{name: info[name] for name in ("pattern", "cost", "late_percent", "p95_ms", "requests")},
        }
        self.rows.append(row)
        self._reward = 0.0
        (self.folder / PROGRESS).write_text(json.dumps(self.rows, indent=1) + "\n", encoding="utf-8")
        self.model.save(self.folder / f"model_episode_{row['episode']}.zip")
        self.say(
            f"episode {row['episode']} ({row['pattern']}): {row['steps']} steps, cost {row['cost']:.2f}, "
            f"late {row['late_percent']:.2f} %, reward {row['reward']:.3f}"
        )
