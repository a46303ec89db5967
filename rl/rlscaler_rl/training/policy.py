"""The actor and critic networks, as stable-baselines3 wants them."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn

from rlscaler_rl.decision.action import HEADS, REACH
from rlscaler_rl.decision.types import OBSERVATIONS

_REPLICAS = (OBSERVATIONS.index("gpu_replicas"), OBSERVATIONS.index("cpu_replicas"))
_NEVER = -1e8


class Networks(nn.Module):
    """Two tanh layers each: the actor reads the first `actor_width` columns, the critic all of them."""

    def __init__(self, actor_width: int, width: int, actor_units: int, critic_units: int) -> None:
        super().__init__()
        self.actor_width = actor_width
        self.latent_dim_pi, self.latent_dim_vf = actor_units, critic_units
        self.policy_net = _layers(actor_width, actor_units)
        self.value_net = _layers(width, critic_units)

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        return self.policy_net(features[:, : self.actor_width])

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        return self.value_net(features)


def _layers(width: int, units: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, units), nn.Tanh(), nn.Linear(units, units), nn.Tanh())


class ScalingPolicy(ActorCriticPolicy):
    """An actor-critic whose head of an absent pool holds nothing but "no change".

    A pool is absent where its replicas are fed as 0: training scenarios never scale a pool that is there below
    one. The exported graph has no mask; the decision function masks by the policy's spec.
    """

    def __init__(self, *args: Any, actor_width: int, actor_units: int, critic_units: int, **kwargs: Any) -> None:
        self._sizes = actor_width, actor_units, critic_units
        self._absent: torch.Tensor | None = None
        super().__init__(*args, **kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        width, actor_units, critic_units = self._sizes
        own = {"actor_width": width, "actor_units": actor_units, "critic_units": critic_units}
        return {**super()._get_constructor_parameters(), **own}

    def _build_mlp_extractor(self) -> None:
        actor_width, actor_units, critic_units = self._sizes
        self.mlp_extractor = Networks(actor_width, self.features_dim, actor_units, critic_units)

    def extract_features(self, obs: Any, features_extractor: Any = None) -> Any:
        newest = self._sizes[0] - len(OBSERVATIONS)
        self._absent = obs[:, newest + _REPLICAS[0] : newest + _REPLICAS[1] + 1] == 0
        return super().extract_features(obs, features_extractor)

    def _get_action_dist_from_latent(self, latent_pi: torch.Tensor) -> Distribution:
        logits = self.action_net(latent_pi)
        if self._absent is not None and bool(self._absent.any()):
            kept = torch.full_like(logits[:, : sum(HEADS[:2])], _NEVER)
            kept[:, REACH] = kept[:, HEADS[0] + REACH] = 0.0
            absent = self._absent.repeat_interleave(torch.tensor(HEADS[:2]), dim=1)
            logits = torch.cat([torch.where(absent, kept, logits[:, : sum(HEADS[:2])]), logits[:, sum(HEADS[:2]) :]], 1)
        return self.action_dist.proba_distribution(action_logits=logits)
