"""One drawn cluster as a gymnasium.Env, registered as `rlscaler/Placement-v0`, for agents that are not of this project.

`gymnasium.make("rlscaler_rl.placement.gym_env:rlscaler/Placement-v0", policy="EE")` needs no other import.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlscaler_core.placement.features import MOST, Float32, columns, features
from rlscaler_core.placement.policies import Policy
from rlscaler_core.placement.types import Bool
from rlscaler_rl.placement.drawn import LOADS, Setting
from rlscaler_rl.placement.environment import Placement

ID = "rlscaler/Placement-v0"


class PlacementEnv(gym.Env[Float32, np.int64]):
    """A step is one pod. Observation (nodes, columns) float32, the inputs of networks; action Discrete(nodes), the
    node.

    A node that may not take the pod refuses it. `action_masks` and the info's `action_mask`, (nodes,) bool, mark the
    nodes that may; where none may, any action refuses. Episodes are truncated after `pods` of them, never terminated.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self, policy: str = "EE", nodes: int = 12, pods: int = 500, thesis_reward: bool = False, **setting: Any
    ) -> None:
        """`setting` has further fields of `Setting`, such as lifetimes_known."""
        chosen = Policy(policy)
        self._setting = Setting(chosen, nodes, 1, **{"load": LOADS[chosen], **setting})
        self._pods, self._thesis_reward = pods, thesis_reward
        self.observation_space = spaces.Box(-MOST, MOST, (nodes, len(columns(chosen))), np.float32)
        self.action_space = spaces.Discrete(nodes)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32, dict[str, Any]]:
        super().reset(seed=seed)
        self._cluster = Placement(self._setting, int(self.np_random.integers(2**31)))
        self._placed = 0
        return self._observation(), {"action_mask": self.action_masks()}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, dict[str, Any]]:
        outcome = self._cluster.step(np.array([action], np.int64))
        self._placed += 1
        reward = outcome.thesis if self._thesis_reward else outcome.reward
        info = {"action_mask": self.action_masks(), "placed": bool(outcome.placed[0])}
        return self._observation(), float(reward[0]), False, self._placed >= self._pods, info

    def action_masks(self) -> Bool:
        """(nodes,): which may take the pod; sb3-contrib's MaskablePPO asks by this name."""
        return self._cluster.mask()[0]

    def _observation(self) -> Float32:
        cluster = self._cluster
        return features(self._setting.policy, cluster.nodes, cluster.pods, cluster.mask())[0]


gym.register(ID, entry_point=PlacementEnv)
