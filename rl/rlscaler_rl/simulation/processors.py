"""Levels of the simulator whose arrays are NumPy's."""

from __future__ import annotations

from typing import Any, TypeVar

from numpy.typing import NDArray

from rlscaler_rl.simulation import cluster as clusters
from rlscaler_rl.simulation import fluid, sensing
from rlscaler_rl.simulation.cluster import ClusterFacts, ClusterState, Int
from rlscaler_rl.simulation.tables import tables

T = TypeVar("T")


class OnProcessors:
    """What all of them have in common."""

    formulas = False
    """Whether latencies are kept as what they follow from."""

    measure = staticmethod(sensing.measure)

    def empty(self, n: int) -> ClusterState:
        return clusters.empty(n, formulas=self.formulas)

    def place(self, table: T) -> T:
        return table

    def fetch(self, kept: T) -> T:
        return kept

    def start(self, cluster: ClusterState, rows: Int, *begin: Any) -> None:
        clusters.begin(cluster, rows, *begin)


class FluidLevel(OnProcessors):
    """The `levels.Level` of `fluid`; its whole state is in the cluster."""

    formulas = True

    def __init__(self) -> None:
        self.tables = tables()

    def begin(self, facts: ClusterFacts, rows: NDArray[Any]) -> None:
        """Nothing to prepare."""

    def scale(self, facts: ClusterFacts, cluster: ClusterState, rows: Int, desired: Int, weights: Int) -> None:
        fluid.scale(facts, cluster, rows, desired, weights)

    def advance(self, facts: ClusterFacts, cluster: ClusterState, rows: Int, seconds: int) -> None:
        fluid.advance(facts, cluster, self.tables, rows, seconds)

    def count_latencies(self, facts: ClusterFacts, cluster: ClusterState, rows: Int) -> None:
        fluid.count_latencies(facts, cluster, self.tables, rows)
