"""Where the networks are trained: on the CPU, or on a CUDA GPU where that is faster.

The simulation always runs on the CPU, and every step copies its observations to the device; at the sizes that ship the
network is small, so a GPU need not win. It is tried, not guessed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from rlscaler_rl.training.config import ConfigError

CPU, CUDA, AUTO = "cpu", "cuda", "auto"


@dataclass(frozen=True, slots=True)
class Choice:
    """A device, and the measurements that it was chosen by."""

    name: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds of one rollout with its update, by device; empty where nothing had to be tried."""
    reason: str = ""

    def record(self) -> dict[str, Any]:
        """The choice as the manifest has it."""
        return {"name": self.name, "seconds_per_update": dict(self.seconds), "reason": self.reason}

    def __str__(self) -> str:
        return f"device: {self.name} ({self.reason})"


def available() -> list[str]:
    return [CPU, CUDA] if torch.cuda.is_available() else [CPU]


def choose(wanted: str, devices: list[str], time_update: Callable[[str], float]) -> Choice:
    """`wanted` is auto, cpu or cuda; `time_update` is asked for seconds only where auto has a choice.

    Raises ConfigError for a device that is not there.
    """
    if wanted != AUTO:
        if wanted not in devices:
            raise ConfigError(f"agent.device: {wanted} is not available here; use auto or {' or '.join(devices)}")
        return Choice(wanted, reason="as configured")
    if devices == [CPU]:
        return Choice(CPU, reason="no CUDA device")
    return fastest({device: time_update(device) for device in devices})


def fastest(seconds: Mapping[str, float]) -> Choice:
    """The device with the least seconds; the one named first where two are equal."""
    name = min(seconds, key=lambda device: seconds[device])
    compared = ", ".join(f"{device} {taken:.2f} s" for device, taken in seconds.items())
    return Choice(name, {device: round(taken, 3) for device, taken in seconds.items()}, f"an update takes {compared}")


def time_update(make: Callable[[str], PPO], device: str, callback: BaseCallback | None = None) -> float:
    """Seconds of one rollout with its update on `device`; the first one warms up and does not count."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are trying to run .* on the GPU")
        model = make(device)
    steps = model.n_steps * model.n_envs
    # The first rollout compiles the simulator and fills caches.
    model.learn(steps, callback=callback)
    begun = time.perf_counter()
    model.learn(steps, callback=callback, reset_num_timesteps=False)
    return time.perf_counter() - begun
