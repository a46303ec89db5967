"""The experiment of KISim (https://github.com/GuilinDev/KISim): PPO acts on the present replicas, unshielded.

No rule plans, no guard holds: the network scales alone, as in that work. The import registers the environments with
Gymnasium, so that `gymnasium.make("rlscaler_live.kisim:rlscaler/KISim-v0")` makes one; it imports no simulator.
"""

from __future__ import annotations

import gymnasium

ENVIRONMENTS = {
    "rlscaler/KISim-v0": "rlscaler_live.kisim.env:make_kisim",
    "rlscaler/Service-v0": "rlscaler_rl.simulation.gym_env:SimulatorEnv",
    "rlscaler/KubernetesService-v0": "rlscaler_live.environment:KubernetesEnv",
}
"""Entry point of each environment by its name."""

for _name, _entry_point in ENVIRONMENTS.items():
    gymnasium.register(_name, _entry_point)
