"""Files that a run writes while it learns: validations, the best model so far, checkpoints, progress and its picture.

All of it happens between an update and the next rollout, so that a run goes on from a checkpoint bit by bit.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.training import checkpoint
from rlscaler_rl.training.config import TrainingConfig
from rlscaler_rl.training.device import Choice
from rlscaler_rl.training.export import NumpyActor, bare_manifest, export, write
from rlscaler_rl.training.files import write_atomically
from rlscaler_rl.training.validation import validate


class Recorder(BaseCallback):
    """Checkpoints and validations, counted in episodes per environment, and training_progress.json/.png.

    `stop` is asked after every update; once it says so, a checkpoint is written and KeyboardInterrupt raised.
    """

    def __init__(self, folder: Path, config: TrainingConfig, device: Choice, stop: Callable[[], bool]) -> None:
        super().__init__()
        self.folder, self.config, self.device, self.stop = folder, config, device, stop
        self.rows: list[dict[str, Any]] = []
        self.best = float("inf")
        self.episodes = 0
        self.seconds_before = 0.0
        self.ended: list[tuple[float, float, float]] = []
        self.recent: tuple[float, float, float] = (float("nan"),) * 3

    def restore(self, progress: dict[str, Any]) -> None:
        """Go on from the `progress` of a checkpoint; files that were written after it are written again."""
        self.rows, self.best, self.episodes = progress["rows"], progress["best"], progress["episodes"]
        self.seconds_before, self.recent = progress["seconds"], tuple(progress["recent"])

    def recent_j(self) -> float:
        """J of the episodes that ended in the last rollout; their scenarios are randomised."""
        return self.recent[1] + LATE_WEIGHT * self.recent[2]

    def seconds(self) -> float:
        """Seconds spent on the whole run, before an interruption too."""
        return round(self.seconds_before + time.monotonic() - self.started, 1)

    def _on_training_start(self) -> None:
        self.started = time.monotonic()
        self.checkpoint_due = self._next(self.config.agent.checkpoint_episodes)
        self.validation_due = self._next(self.config.agent.evaluation_episodes)

    def _next(self, every: int) -> int:
        return (self.per_env() // every + 1) * every

    def per_env(self) -> int:
        """Episodes that every environment has ended, on average."""
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

    def _on_rollout_start(self) -> None:
        stopping = self.stop()
        validation, model = self.per_env() >= self.validation_due, self.per_env() >= self.checkpoint_due
        if validation:
            self.validation_due = self._next(self.config.agent.evaluation_episodes)
            self.validate()
        if model:
            self.checkpoint_due = self._next(self.config.agent.checkpoint_episodes)
            save_model(self.model, self.folder / f"model_episode_{self.per_env()}.zip")
        if validation or model or stopping:
            self.save_checkpoint()
        if stopping:
            raise KeyboardInterrupt

    def save_checkpoint(self) -> None:
        progress = {
            "rows": self.rows,
            "best": self.best,
            "episodes": self.episodes,
            "seconds": self.seconds(),
            "recent": self.recent,
        }
        checkpoint.save(self.folder, self.per_env(), self.model, self.config, progress)

    def validate(self) -> None:
        """Validate, keep and export the best model, write the progress files."""
        figures = validate(NumpyActor.of(self.model.policy, bare_manifest(self.config)))
        name = f"evaluation_episode_{self.per_env()}.json"
        write_atomically(self.folder / name, json.dumps(figures, indent=1) + "\n")
        for workload, row in figures["workloads"].items():
            self.logger.record(f"validation/{workload}", row["j"])
        self.logger.record("validation/j", figures["mean"]["j"])
        self.logger.record("validation/against_rule_percent", figures["against_rule"]["mean"])
        if figures["against_rule"]["high"] < self.best:
            self.best = figures["against_rule"]["high"]
            save_model(self.model, self.folder / "best_model.zip")
            content, manifest = export(self.model.policy, self.config, self.num_timesteps, device=self.device.record())
            write(self.folder, "policy", "manifest.json", content, manifest)
        self.rows.append(
            {
                "steps": self.num_timesteps,
                "episodes": self.episodes,
                "seconds": self.seconds(),
                "device": self.device.name,
                "reward": self.recent[0],
                "cost": self.recent[1],
                "late_percent": self.recent[2],
                "validation": recorded_validation(figures),
            }
        )
        write_atomically(self.folder / "training_progress.json", json.dumps(self.rows, indent=1) + "\n")
        plot_progress(self.rows, self.folder / "training_progress.png")

    def _on_training_end(self) -> None:
        if not self.rows or self.rows[-1]["steps"] != self.num_timesteps:
            self.validate()
            self.save_checkpoint()


def recorded_validation(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of `validate` that training_progress.json has."""
    return {key: figures[key] for key in ("mean", "workloads", "against_rule")}


def save_model(model: BaseAlgorithm, path: Path) -> None:
    """Write the model as stable-baselines3 saves it; a reader sees the whole file or none."""
    content = io.BytesIO()
    model.save(content)
    write_atomically(path, content.getvalue())


def plot_progress(rows: list[dict[str, Any]], path: Path) -> None:
    """Validation J per workload, and cost against lateness, over the steps."""
    steps = [row["steps"] / 1e6 for row in rows]
    figure = Figure(figsize=(10, 4), layout="constrained")
    scores, parts = figure.subplots(1, 2)
    for workload in rows[-1]["validation"]["workloads"]:
        scores.plot(steps, [row["validation"]["workloads"][workload]["j"] for row in rows], label=workload)
    scores.plot(steps, [row["validation"]["mean"]["j"] for row in rows], "k", label="mean")
    scores.set(xlabel="million steps", ylabel="J = cost + 0.5 x late %", title="validation", yscale="log")
    scores.legend()
    parts.plot(steps, [row["validation"]["mean"]["cost"] for row in rows], label="cost, GPU replica equivalents")
    parts.plot(steps, [row["validation"]["mean"]["late_percent"] for row in rows], label="late requests, %")
    parts.set(xlabel="million steps", title="what it is made of", ylim=(0, None))
    parts.legend()
    figure.savefig(path, dpi=110)
