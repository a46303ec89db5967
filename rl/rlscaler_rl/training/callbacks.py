"""What happens beside learning: schedules, progress, checkpoints, validation."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback

from rlscaler_rl.training.config import TrainingConfig
from rlscaler_rl.training.export import NumpyActor, bare_manifest
from rlscaler_rl.training.plot import plot_progress
from rlscaler_rl.training.validation import validate


class EntropySchedule(BaseCallback):
    """Linear from `entropy` to `final_entropy`; stable-baselines3 schedules the learning rate only."""

    def __init__(self, first: float, last: float) -> None:
        super().__init__()
        self.first, self.last = first, last

    def _on_rollout_start(self) -> None:
        remaining = max(1.0 - self.num_timesteps / self.model._total_timesteps, 0.0)
        self.model.ent_coef = self.last + (self.first - self.last) * remaining

    def _on_step(self) -> bool:
        return True


class TimeLimitBootstrap(BaseCallback):
    """Value of the observations at which the time limit cut episodes off, in one forward pass.

    stable-baselines3 asks the critic once for every ended episode, which costs more than the simulation itself.
    """

    def _on_step(self) -> bool:
        infos, rewards = self.locals["infos"], self.locals["rewards"]
        rows = [row for row, info in enumerate(infos) if info.get("TimeLimit.truncated")]
        if rows:
            cut = np.stack([infos[row]["terminal_observation"] for row in rows])
            with torch.no_grad():
                values = self.model.policy.predict_values(torch.as_tensor(cut))
            rewards[rows] += self.model.gamma * values.numpy().ravel()
            for row in rows:
                infos[row]["TimeLimit.truncated"] = False
        return True


LINE_SECONDS = 30.0
"""Time between two lines of progress where there is no terminal to draw a bar on."""


class ProgressBar(BaseCallback):
    """Steps, the last figures and the time left: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            refresh_per_second=2,
        )

    def _on_training_start(self) -> None:
        self.task = self.bar.add_task("training", total=self.model._total_timesteps, completed=self.num_timesteps)
        self.line_due = time.monotonic() + LINE_SECONDS
        if self.bar.console.is_terminal:
            self.bar.start()

    def _on_rollout_end(self) -> None:
        best = f"{self.recorder.best:.2f}" if np.isfinite(self.recorder.best) else "-"
        text = f"J {self.recorder.recent_j():.2f}, best validation {best}"
        self.bar.update(self.task, completed=self.num_timesteps, description=text)
        if not self.bar.console.is_terminal and time.monotonic() >= self.line_due:
            self.line_due = time.monotonic() + LINE_SECONDS
            left = (self.bar.tasks[0].time_remaining or 0) / 60
            steps = f"{self.num_timesteps:,} of {self.model._total_timesteps:,} steps"
            self.bar.console.print(f"{steps}, {left:.0f} min left; {text}")

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.close()

    def close(self) -> None:
        self.bar.stop()


class Recorder(BaseCallback):
    """Checkpoints and validation, counted in episodes per environment, and training_progress.json/.png."""

    def __init__(self, folder: Path, config: TrainingConfig) -> None:
        super().__init__()
        self.folder, self.config = folder, config
        self.rows: list[dict[str, Any]] = []
        self.best = float("inf")
        self.episodes = 0
        self.seconds_before = 0.0
        self.ended: list[tuple[float, float, float]] = []
        self.recent: tuple[float, float, float] = (float("nan"),) * 3

    @property
    def path(self) -> Path:
        return self.folder / "training_progress.json"

    def restore(self) -> None:
        """Go on where an earlier run of this folder stopped."""
        if self.path.exists():
            self.rows = json.loads(self.path.read_text(encoding="utf-8"))
            self.episodes = self.rows[-1]["episodes"] if self.rows else 0
            self.seconds_before = self.rows[-1]["seconds"] if self.rows else 0.0
            scores = [row["validation"]["mean"]["j"] for row in self.rows if row["validation"]]
            self.best = min(scores, default=self.best)

    def recent_j(self) -> float:
        """Of the episodes that ended in the last rollout; their scenarios are randomised."""
        return self.recent[1] + 0.5 * self.recent[2]

    def _on_training_start(self) -> None:
        self.started = time.monotonic()
        self.checkpoint_due = self._next(self.config.agent.checkpoint_episodes)
        self.validation_due = self._next(self.config.agent.evaluation_episodes)

    def _next(self, every: int) -> int:
        return (self._per_env() // every + 1) * every

    def _per_env(self) -> int:
        return self.episodes // self.training_env.num_envs

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if info:
                self.ended.append((info["episode"]["r"], info["cost"], info["late_percent"]))
        return True

    def _on_rollout_end(self) -> None:
        self.episodes += len(self.ended)
        if self.ended:
            reward, cost, late = np.mean(self.ended, axis=0)
            self.recent = float(reward), float(cost), float(late)
            for name, value in zip(("reward", "cost", "late_percent"), self.recent, strict=True):
                self.logger.record(f"episode/{name}", value)
            self.ended.clear()
        if self._per_env() >= self.checkpoint_due:
            self.checkpoint_due = self._next(self.config.agent.checkpoint_episodes)
            self.model.save(self.folder / f"model_episode_{self._per_env()}.zip")
        if self._per_env() >= self.validation_due:
            self.validation_due = self._next(self.config.agent.evaluation_episodes)
            self.validate()

    def validate(self) -> None:
        """Validate, keep the best model, write the progress files."""
        actor = NumpyActor.of(self.model.policy, bare_manifest(self.config))
        figures = validate(actor)
        name = f"evaluation_episode_{self._per_env()}.json"
        (self.folder / name).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        for workload, row in figures["workloads"].items():
            self.logger.record(f"validation/{workload}", row["j"])
        self.logger.record("validation/j", figures["mean"]["j"])
        if figures["mean"]["j"] < self.best:
            self.best = figures["mean"]["j"]
            self.model.save(self.folder / "best_model.zip")
        self.rows.append(
            {
                "steps": self.num_timesteps,
                "episodes": self.episodes,
                "seconds": round(self.seconds_before + time.monotonic() - self.started, 1),
                "reward": self.recent[0],
                "cost": self.recent[1],
                "late_percent": self.recent[2],
                "validation": {key: figures[key] for key in ("mean", "workloads")},
            }
        )
        self.path.write_text(json.dumps(self.rows, indent=1) + "\n", encoding="utf-8")
        plot_progress(self.rows, self.folder / "training_progress.png")

    def _on_training_end(self) -> None:
        self.validate()
