"""The two levels of the simulator behind one interface."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.simulation import fluid, queues, requests
from rlscaler_rl.simulation.cluster import Cluster, Facts, Int
from rlscaler_rl.simulation.errors import ScenarioError
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.simulation.tables import tables

LevelName = Literal["fluid", "request"]
LEVELS: tuple[LevelName, ...] = get_args(LevelName)


class Level(Protocol):
    """How the clusters of N rows move. Both levels keep the same counters in `cluster`."""

    def begin(self, rows: NDArray[np.intp], scenarios: Scenarios) -> None:
        """Episodes begin in the given rows (M,); raises ScenarioError for what the level cannot play."""

    def scale(self, facts: Facts, cluster: Cluster, rows: Int, desired: Int, weights: Int) -> None:
        """Set target replicas (M, 2) and traffic weights (M, 2; any scale) of the given rows."""

    def advance(self, facts: Facts, cluster: Cluster, rows: Int, seconds: int) -> None:
        """Let time pass; no row may leave its load."""

    def count_latencies(self, facts: Facts, cluster: Cluster, rows: Int) -> None:
        """Bring `cluster.histogram` up to date; to be called at the end of every latency block, or never."""


class Fluid:
    """Formulas; see `simulation.fluid`."""

    def begin(self, rows: NDArray[np.intp], scenarios: Scenarios) -> None:
        """Nothing to prepare: all of its state is in the cluster."""

    def scale(self, facts: Facts, cluster: Cluster, rows: Int, desired: Int, weights: Int) -> None:
        fluid.scale(facts, cluster, rows, desired, weights)

    def advance(self, facts: Facts, cluster: Cluster, rows: Int, seconds: int) -> None:
        fluid.advance(facts, cluster, tables(), rows, seconds)

    def count_latencies(self, facts: Facts, cluster: Cluster, rows: Int) -> None:
        fluid.count_latencies(facts, cluster, tables(), rows)


class Request:
    """Every request; see `simulation.requests`."""

    def __init__(self, n: int) -> None:
        self.held = queues.no_requests(n)

    def begin(self, rows: NDArray[np.intp], scenarios: Scenarios) -> None:
        if (scenarios.arrivals != np.floor(scenarios.arrivals)).any():
            raise ScenarioError("arrivals: the request level needs whole requests a second; draw or round them")
        if (scenarios.queue_limit >= queues.HELD).any():
            raise ScenarioError(f"queue_limit: below {queues.HELD} at the request level")
        queues.forget(self.held, rows)

    def scale(self, facts: Facts, cluster: Cluster, rows: Int, desired: Int, weights: Int) -> None:
        requests.scale(facts, cluster, self.held, rows, desired, weights)

    def advance(self, facts: Facts, cluster: Cluster, rows: Int, seconds: int) -> None:
        requests.advance(facts, cluster, self.held, rows, seconds)

    def count_latencies(self, facts: Facts, cluster: Cluster, rows: Int) -> None:
        """They are counted one by one."""


def make(name: LevelName, n: int) -> Level:
    """A level for `n` rows."""
    if name not in LEVELS:
        raise ScenarioError(f"level: {name!r} is unknown; choose from {', '.join(LEVELS)}")
    return Fluid() if name == "fluid" else Request(n)
