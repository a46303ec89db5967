"""The actor and critic networks as stable-baselines3 wants them, and PPO that stops at a number that is not finite."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn

from rlscaler_core.decision.action import HEADS, REACH
from rlscaler_core.decision.types import OBSERVATIONS, Placement
from rlscaler_rl.training import checkpoint
from rlscaler_rl.training.errors import DivergedError

_REPLICAS = (OBSERVATIONS.index("gpu_replicas"), OBSERVATIONS.index("cpu_replicas"))
# Not -inf: the entropy multiplies logits by probabilities, and 0 * -inf is NaN.
_NEVER = -1e8

SURE = 3.5
"""Logit of "no change" in an untrained actor that is added to a rule: 89 % in a head of five, 94 % in one of three.

Steps that last add up: at 75 % their noise alone moved the headroom by 15 % and was dear."""

SMALLEST_DEVIATION = 0.02
"""Columns that hardly vary are not blown up beyond this."""


class Networks(nn.Module):
    """Two tanh layers each: the actor reads the first `actor_width` columns, the critic all of them.

    Inputs are standardised by constants that `calibrate` sets once; export folds them into the first layer.
    """

    def __init__(self, actor_width: int, width: int, actor_units: int, critic_units: int) -> None:
        super().__init__()
        self.actor_width = actor_width
        self.latent_dim_pi, self.latent_dim_vf = actor_units, critic_units
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.policy_net = _layers(actor_width, actor_units)
        self.value_net = _layers(width, critic_units)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        standard = self._standard(features)
        return self.policy_net(standard[:, : self.actor_width]), self.value_net(standard)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        return self.policy_net(self._standard(features)[:, : self.actor_width])

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        return self.value_net(self._standard(features))

    def _standard(self, features: torch.Tensor) -> torch.Tensor:
        return (features - self.shift) * self.scale

    def calibrate(self, observations: NDArray[np.float32]) -> None:
        """Standardise by the mean and deviation of each column of a sample (M, width)."""
        sample = observations.astype(np.float64)
        scale = 1 / np.maximum(sample.std(0), SMALLEST_DEVIATION)
        self.shift.copy_(torch.as_tensor(sample.mean(0), dtype=torch.float32))
        self.scale.copy_(torch.as_tensor(scale, dtype=torch.float32))


def _layers(width: int, units: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, units), nn.Tanh(), nn.Linear(units, units), nn.Tanh())


class ScalingPolicy(ActorCriticPolicy):
    """An actor-critic whose head of an absent pool holds nothing but "no change".

    A pool is absent where its replicas are fed as 0: training scenarios never scale a pool that is there below
    one. The exported graph has no mask; the decision function masks by the policy's spec.
    """

    def __init__(self, *args: Any, actor_width: int, actor_units: int, critic_units: int, **kwargs: Any) -> None:
        """Take the columns of the stacked observations, which the actor reads, and the units of each layer."""
        self._sizes = {"actor_width": actor_width, "actor_units": actor_units, "critic_units": critic_units}
        self._absent: torch.Tensor | None = None
        super().__init__(*args, **kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), **self._sizes}

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = Networks(width=self.features_dim, **self._sizes)

    def extract_features(self, obs: Any, features_extractor: Any = None) -> Any:
        self._note_absent(obs)
        return super().extract_features(obs, features_extractor)

    def get_distribution(self, obs: Any) -> Distribution:
        self._note_absent(obs)
        return super().get_distribution(obs)

    def _note_absent(self, obs: torch.Tensor) -> None:
        newest = self._sizes["actor_width"] - len(OBSERVATIONS)
        self._absent = obs[:, newest + _REPLICAS[0] : newest + _REPLICAS[1] + 1] == 0

    def _get_action_dist_from_latent(self, latent_pi: torch.Tensor) -> Distribution:
        logits = self.action_net(latent_pi)
        if self._absent is not None and bool(self._absent.any()):
            mask = torch.full_like(logits[:, : sum(HEADS[:2])], _NEVER)
            mask[:, REACH] = mask[:, HEADS[0] + REACH] = 0.0
            absent = self._absent.repeat_interleave(torch.tensor(HEADS[:2], device=logits.device), dim=1)
            logits = torch.cat([torch.where(absent, mask, logits[:, : sum(HEADS[:2])]), logits[:, sum(HEADS[:2]) :]], 1)
        return self.action_dist.proba_distribution(action_logits=logits)


BATCH = ("observations", "actions", "rewards", "returns", "advantages", "values", "log_probs", "episode_starts")
"""Arrays of the rollout buffer, (steps, envs, ...) before the update and (steps * envs, ...) after it."""

LOSSES = ("train/loss", "train/value_loss", "train/policy_gradient_loss", "train/entropy_loss")


class GuardedPPO(PPO):
    """PPO that stops at the first number that is not finite, and saves the batch that led to it.

    `folder` is the folder for that batch; None: a temporary one, made when it is needed.
    """

    folder: Path | None = None

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "folder"]

    def train(self) -> None:
        """One update. Raises DivergedError."""
        # Before the update: one NaN in the rollout would reach every weight.
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


def _finite(weight: torch.Tensor) -> bool:
    return bool(torch.isfinite(weight).all())


def actor_parts(policy: nn.Module) -> list[nn.Module]:
    """Return the modules whose weights only the actor uses."""
    return [policy.mlp_extractor.policy_net, policy.action_net]


NEAR_MIDDLE, NEAR_SLOPE = 0.19, 40.0
"""Fed latency in the middle between .6 and 1 of the objective, and the slope of the unit that tells them apart."""

RISING, FALLING = 1.75, 0.9
"""Logits of an untrained actor: of the step 2 at that middle, from nothing below to "no change" above, and of the step
-1, which gives back 4 % of its size in an interval."""


def begin_with_near_misses(policy: nn.Module) -> None:
    """Set the actor so that near misses of the objective raise the headroom of both pools, which else falls slowly.

    Where nothing is near, steps of all other sizes cancel. This feedback alone was 3.9 % ahead of the rule on eight
    recorded loads at commit a3e22df8, and level with it on drawn services. PPO starts from it.
    """
    begin_with_no_change(policy)
    networks, unit = policy.mlp_extractor, 0
    first, second = networks.policy_net[0], networks.policy_net[2]
    column = networks.actor_width - len(OBSERVATIONS) + OBSERVATIONS.index("p95_latency")
    with torch.no_grad():
        first.weight[unit] = 0.0
        # The layer reads (x - shift) * scale.
        first.weight[unit, column] = NEAR_SLOPE / networks.scale[column]
        first.bias[unit] = NEAR_SLOPE * (networks.shift[column] - NEAR_MIDDLE)
        second.weight[unit] = 0.0
        second.weight[unit, unit] = 2.0
        second.bias[unit] = 0.0
        for head in (0, HEADS[0]):
            policy.action_net.bias[head + 2 * REACH] = RISING
            policy.action_net.weight[head + 2 * REACH, unit] = RISING
            policy.action_net.bias[head + REACH - 1] = FALLING


def begin_with_no_change(policy: nn.Module) -> None:
    """Set the actor's last layer so that the most likely action changes nothing, whatever is observed."""
    still = torch.zeros(sum(HEADS))
    for begin, chosen in ((0, REACH), (HEADS[0], REACH), (HEADS[0] + HEADS[1], int(Placement.BALANCED))):
        still[begin + chosen] = SURE
    with torch.no_grad():
        policy.action_net.weight.zero_()
        policy.action_net.bias.copy_(still)
