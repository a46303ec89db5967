"""The two levels of the simulator behind one interface, and the fluid one on a GPU."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation import cuda
from rlscaler_rl.simulation.cluster import ClusterFacts, ClusterState, Int
from rlscaler_rl.simulation.processors import FluidLevel
from rlscaler_rl.simulation.requests import RequestLevel
from rlscaler_rl.simulation.scenario import ScenarioError

LevelName = Literal["fluid", "request"]
LEVELS: tuple[LevelName, ...] = get_args(LevelName)

PlaceName = LevelName | Literal["cuda", "fastest"]
"""Also the fluid level on a GPU, and the fluid level where it is fastest: on a GPU where there is one."""

T = TypeVar("T")


class Level(Protocol):
    """Moves the clusters of N episodes, row by row. All levels keep the same counters in `cluster`.

    Arrays are where the level is: NumPy's, or those of a GPU, which `place` and `fetch` copy to and fro.
    """

    def empty(self, n: int) -> ClusterState:
        """N rows to be filled by `start`."""

    def place(self, table: T) -> T:
        """An array, or a table of arrays, where the level is; itself on the processors."""

    def fetch(self, kept: T) -> T:
        """An array as NumPy's, or a cluster whose counters are; itself on the processors.

        Of a cluster `row`, `pool` and `histogram` are copied, and the other columns are left without rows.
        """

    def start(self, cluster: ClusterState, rows: NDArray[np.intp], *begin: Any) -> None:
        """`cluster.begin` in the given rows (M,), with the arguments that follow them there, all NumPy's."""

    def measure(self, *args: Any) -> None:
        """Fill readings as `sensing.measure` does."""

    def begin(self, facts: ClusterFacts, rows: NDArray[np.intp]) -> None:
        """Episodes begin in the given rows (M,). Raises ScenarioError for what the level cannot simulate."""

    def scale(self, facts: ClusterFacts, cluster: ClusterState, rows: Int, desired: Int, weights: Int) -> None:
        """Set the target replicas (M, 2) and the traffic weights (M, 2; any scale) of the given rows (M,)."""

    def advance(self, facts: ClusterFacts, cluster: ClusterState, rows: Int, seconds: int) -> None:
        """Let `seconds` pass in the given rows (M,), none of which may reach the end of its load."""

    def count_latencies(self, facts: ClusterFacts, cluster: ClusterState, rows: Int) -> None:
        """Bring `cluster.histogram` up to date; to be called at the end of every latency block, or never."""


def chosen(name: PlaceName) -> PlaceName:
    """The name itself; for "fastest" what that is here."""
    if name == "fastest":
        return "fluid" if cuda.missing() else "cuda"
    return name


def make(name: PlaceName, n: int) -> Level:
    """A level for `n` rows. Raises ScenarioError for an unknown name, and for a GPU that cannot be used."""
    name = chosen(name)
    if name == "cuda":
        if missing := cuda.missing():
            raise ScenarioError(
                f"level: 'cuda' needs a GPU: {missing}; or choose 'fluid', which runs on the processors"
            )
        return cuda.CudaLevel()
    if name not in LEVELS:
        raise ScenarioError(f"level: {name!r} is unknown; choose from {', '.join(LEVELS)}, cuda, fastest")
    return FluidLevel() if name == "fluid" else RequestLevel(n)
