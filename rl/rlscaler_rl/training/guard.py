"""PPO that stops at the first number that is not finite, and keeps what it was learning from."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import PPO

from rlscaler_rl.training import checkpoint
from rlscaler_rl.training.errors import DivergedError

BATCH = ("observations", "actions", "rewards", "returns", "advantages", "values", "log_probs", "episode_starts")
"""Arrays of the rollout buffer, (steps, envs, ...) before the update and (steps * envs, ...) after it."""


class GuardedPPO(PPO):
    """`folder` is where a batch is saved that led to no number; None: a temporary one, made when it is needed."""

    folder: Path | None = None

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "folder"]

    def train(self) -> None:
        """One update. Raises DivergedError."""
        self._check("the rollout's ", {name: getattr(self.rollout_buffer, name) for name in BATCH})
        super().train()
        self._check(
            "", {name: np.asarray(value) for name, value in self.logger.name_to_value.items() if name in LOSSES}
        )
        weights = {name: weight.detach() for name, weight in self.policy.named_parameters()}
        self._check("weight ", {name: weight.cpu().numpy() for name, weight in weights.items() if not _finite(weight)})

    def _check(self, kind: str, arrays: dict[str, np.ndarray]) -> None:
        broken = next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
        if broken is None:
            return
        message = f"after {self.num_timesteps:,} steps {kind}{broken} is not finite"
        remedy = "lower agent.learning_rate or agent.max_grad_norm"
        folder = self.folder or Path(tempfile.mkdtemp(prefix="rlscaler-diverged-"))
        path = folder / f"diverged_{self.num_timesteps}.npz"
        np.savez_compressed(path, **{name: getattr(self.rollout_buffer, name) for name in BATCH})
        message += f"; the batch is in {path}"
        if self.folder is not None:
            good = checkpoint.found(self.folder)
            message += f", the last good checkpoint is {good[0] if good else 'none yet'}"
            remedy += ", and go on with --resume" if good else ""
        raise DivergedError(f"{message}; {remedy}")


LOSSES = ("train/loss", "train/value_loss", "train/policy_gradient_loss", "train/entropy_loss")


def _finite(weight: torch.Tensor) -> bool:
    return bool(torch.isfinite(weight).all())
