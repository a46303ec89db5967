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
from rlscaler_rl.placement.thesis import POLICIES, judged

ID = "rlscaler/Placement-v0"


class PlacementEnv(gym.Env[Float32, np.int64]):
    """A step is one pod. Observation (nodes, columns) float32, the inputs of networks; action Discrete(nodes), the
    node.

    A node that may not take the pod refuses it. `action_masks` and the info's `action_mask`, (nodes,) bool, mark the
    nodes that may; where none may, any action refuses. Episodes are truncated after `pods` of them, and terminated only
    with `thesis_reward`, where the thesis ends them; then a reset without a seed goes on with the same cluster.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self, policy: str = "EE", nodes: int = 12, pods: int = 500, thesis_reward: bool = False, **setting: Any
    ) -> None:
        """`setting` has further fields of `Setting`, such as lifetimes_known."""
        chosen = Policy(policy)
        if thesis_reward and chosen not in POLICIES:
            raise ValueError(f"thesis_reward: the thesis has {', '.join(POLICIES)}, and no {chosen}: leave it out")
        as_thesis = {"failures_per_day": 0.0, "hard_refuses": False} if thesis_reward else {}
        self._setting = Setting(chosen, nodes, 1, **{"load": LOADS[chosen], **as_thesis, **setting})
        self._cluster: Placement | None = None
        self._goes_on = False
        self._pods, self._thesis_reward = pods, thesis_reward
        self.observation_space = spaces.Box(-MOST, MOST, (nodes, len(columns(chosen))), np.float32)
        self.action_space = spaces.Discrete(nodes)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or not self._goes_on or self._cluster is None:
            self._cluster = Placement(self._setting, int(self.np_random.integers(2**31)))
        self._placed, self._goes_on = 0, False
        return self._observation(), {"action_mask": self.action_masks()}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, dict[str, Any]]:
        cluster, node = self._there(), np.array([action], np.int64)
        if self._thesis_reward:
            taken = np.where(cluster.mask()[0, action], node, -1)
            reward, ended = judged(self._setting.policy, cluster.nodes, cluster.pods, taken)
            outcome = cluster.step(node)
        else:
            outcome = cluster.step(node)
            reward, ended = outcome.reward, np.zeros(1, bool)
        self._placed += 1
        self._goes_on = bool(ended[0])
        info = {"action_mask": self.action_masks(), "placed": bool(outcome.placed[0])}
        return self._observation(), float(reward[0]), self._goes_on, self._placed >= self._pods, info

    def action_masks(self) -> Bool:
        """(nodes,): which may take the pod; sb3-contrib's MaskablePPO asks by this name."""
        return self._there().mask()[0]

    def _there(self) -> Placement:
        if self._cluster is None:
            raise RuntimeError("PlacementEnv: call reset before the first step")
        return self._cluster

    def _observation(self) -> Float32:
        cluster = self._there()
        return features(self._setting.policy, cluster.nodes, cluster.pods, cluster.mask())[0]


gym.register(ID, entry_point=PlacementEnv)
