"""The two levels of the simulator behind one interface."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation.cluster import ClusterFacts, ClusterState, Int
from rlscaler_rl.simulation.fluid import FluidLevel
from rlscaler_rl.simulation.requests import RequestLevel
from rlscaler_rl.simulation.scenario import ScenarioError

LevelName = Literal["fluid", "request"]
LEVELS: tuple[LevelName, ...] = get_args(LevelName)


class Level(Protocol):
    """Moves the clusters of N episodes, row by row. Both levels keep the same counters in `cluster`."""

    def begin(self, facts: ClusterFacts, rows: NDArray[np.intp]) -> None:
        """Begin episodes in the given rows (M,). Raises ScenarioError for a scenario that the level cannot simulate."""

    def scale(self, facts: ClusterFacts, cluster: ClusterState, rows: Int, desired: Int, weights: Int) -> None:
        """Set the target replicas (M, 2) and the traffic weights (M, 2; any scale) of the given rows (M,)."""

    def advance(self, facts: ClusterFacts, cluster: ClusterState, rows: Int, seconds: int) -> None:
        """Let `seconds` pass in the given rows (M,), none of which may reach the end of its load."""

    def count_latencies(self, facts: ClusterFacts, cluster: ClusterState, rows: Int) -> None:
        """Bring `cluster.histogram` up to date; to be called at the end of every latency block, or never."""


def make(name: LevelName, n: int) -> Level:
    """A level for `n` rows. Raises ScenarioError for an unknown name."""
    if name not in LEVELS:
        raise ScenarioError(f"level: {name!r} is unknown; choose from {', '.join(LEVELS)}")
    return FluidLevel() if name == "fluid" else RequestLevel(n)
