"""One shared pool as a PettingZoo `ParallelEnv`, for tools and algorithms that expect one.

Agents are `tenant_I/accelerator` and `tenant_I/cpu` for every tenant and one `arbiter`. `roles` maps agents to roles;
agents of a role have the same spaces, so that they can share a network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from rlscaler_core.arbiter.features import FEATURES
from rlscaler_rl.tenants.environment import ACTIONS, AS_THE_RULE, SLOTS, TENANT_WIDTH, Setting, TenantsEnv

ARBITER = "arbiter"
HIGH = 10.0
"""Bound of observations; all inputs are clipped far below."""


def role_by_slot(agent: str) -> str:
    """Return the role of an agent by default: `accelerator`, `cpu` or `arbiter`."""
    return agent.rpartition("/")[2]


class SharedPoolEnv(ParallelEnv[str, NDArray[np.float32], Any]):
    """A pool of the setting's request. Agents of tenants act in Discrete(5), the arbiter in MultiDiscrete([5] * M).

    An agent of a tenant observes (TENANT_WIDTH,) float32, the arbiter (M * len(FEATURES),) float32: the columns of the
    first member, then those of the next. Rewards are the local ones; `infos` has the pool's `total` and, at the end,
    its figures.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "rlscaler_shared_pool_v0", "render_modes": []}

    def __init__(self, setting: Setting, roles: Callable[[str], str] = role_by_slot) -> None:
        """`setting.request.pools` is taken as 1. Where the setting names another arbiter, no agent is the arbiter."""
        self._env = TenantsEnv(replace(setting, request=replace(setting.request, pools=1)))
        tenants = setting.request.tenants
        self._slots = {f"tenant_{i}/{slot}": (i, j) for i in range(tenants) for j, slot in enumerate(SLOTS[:2])}
        self._shares = setting.arbiter == "agent"
        self.possible_agents = [*self._slots, *([ARBITER] if self._shares else [])]
        self.agents: list[str] = []
        self.roles = {agent: roles(agent) for agent in self.possible_agents}
        self._spaces = {agent: _space(TENANT_WIDTH) for agent in self._slots}
        self._actions: dict[str, spaces.Space[Any]] = {agent: spaces.Discrete(ACTIONS) for agent in self._slots}
        if self._shares:
            self._spaces[ARBITER] = _space(tenants * len(FEATURES))
            self._actions[ARBITER] = spaces.MultiDiscrete([ACTIONS] * tenants)
        self._rng = np.random.default_rng(setting.request.seed)

    def observation_space(self, agent: str) -> spaces.Box:
        return self._spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._actions[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, dict[str, Any]]]:
        """Begin an episode on a pool that is drawn from `seed`, or on the next of the request's seed."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        seen = self._env.reset(int(self._rng.integers(2**31)))
        self.agents = list(self.possible_agents)
        return self._told(seen), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Let an action interval pass; an agent without an action does as the rule does."""
        flat = np.full((1, self._env.shape[1], len(SLOTS)), AS_THE_RULE, np.int64)
        for agent, chosen in actions.items():
            if agent == ARBITER:
                flat[0, :, 2] = chosen
            else:
                flat[(0, *self._slots[agent])] = chosen
        seen, rewards, done = self._env.step(flat)
        acting, told = self.agents, self._told(seen)
        local = {agent: float(rewards.local[(0, *slot)]) for agent, slot in self._slots.items()}
        if self._shares:
            local[ARBITER] = float(rewards.local[0, 0, 2])
        info: dict[str, Any] = {"total": float(rewards.total[0])}
        if done:
            figures = self._env.figures()
            info |= {"j": figures.j.tolist(), "late_percent": figures.late_percent.tolist()}
            self.agents = []
        return (
            told,
            local,
            dict.fromkeys(acting, False),
            dict.fromkeys(acting, done),
            {agent: dict(info) for agent in acting},
        )

    def _told(self, seen: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        told = {agent: seen[(0, *slot)][:TENANT_WIDTH].copy() for agent, slot in self._slots.items()}
        if self._shares:
            told[ARBITER] = seen[0, :, 2, : len(FEATURES)].ravel()
        return told


def _space(width: int) -> spaces.Box:
    return spaces.Box(-HIGH, HIGH, (width,), np.float32)
