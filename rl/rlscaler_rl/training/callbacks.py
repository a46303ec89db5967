"""Callbacks of a training: schedules, bootstrapping at time limits, the critic's head start, the progress bar."""

from __future__ import annotations

import time

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback

from rlscaler_rl.training.policy import actor_parts
from rlscaler_rl.training.recorder import Recorder


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


class CriticFirst(BaseCallback):
    """Freezes the actor during the first `rollouts`, in which only the critic learns.

    A fine-tuned actor is good already; the advantages of an untrained critic would spoil it.
    """

    def __init__(self, rollouts: int) -> None:
        super().__init__()
        self.rollouts, self.done = rollouts, 0

    def _on_rollout_start(self) -> None:
        for part in actor_parts(self.model.policy):
            part.requires_grad_(self.done >= self.rollouts)
        self.done += 1

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
                values = self.model.policy.predict_values(torch.as_tensor(cut, device=self.model.device))
            rewards[rows] += self.model.gamma * values.cpu().numpy().ravel()
            for row in rows:
                infos[row]["TimeLimit.truncated"] = False
        return True


LINE_SECONDS = 30.0
"""Time between two lines of progress where there is no terminal to draw a bar on."""

PACE_SECONDS = 600.0
"""The time left is told from the pace of so many seconds: on a busy machine one rollout takes a minute."""


class ProgressBar(BaseCallback):
    """Steps, the last figures and the time left: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, recorder: Recorder, label: str = "") -> None:
        super().__init__()
        self.recorder, self.label = recorder, label
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            refresh_per_second=2,
            speed_estimate_period=PACE_SECONDS,
        )

    def _on_training_start(self) -> None:
        self.task = self.bar.add_task("training", total=self.model._total_timesteps, completed=self.num_timesteps)
        self.line_due = time.monotonic() + LINE_SECONDS
        if self.bar.console.is_terminal:
            self.bar.start()

    def _on_rollout_end(self) -> None:
        best = f"{self.recorder.best:.2f}" if np.isfinite(self.recorder.best) else "-"
        text = f"{self.label}J {self.recorder.recent_j():.2f}, best validation {best}"
        self.bar.update(self.task, completed=self.num_timesteps, description=text)
        if not self.bar.console.is_terminal and time.monotonic() >= self.line_due:
            self.line_due = time.monotonic() + LINE_SECONDS
            left = self.bar.tasks[0].time_remaining
            steps = f"{self.num_timesteps:,} of {self.model._total_timesteps:,} steps"
            self.bar.console.print(f"{text}; {steps}" + ("" if left is None else f", {left / 60:.0f} min left"))

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.close()

    def close(self) -> None:
        if self.bar.live.is_started:
            self.bar.stop()
