"""N simulated clusters and the decision function around them, tick by tick as the operator drives real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.decision.contract import ObservationContract
from rlscaler_rl.decision.observation import observe, sense, stacked_input
from rlscaler_rl.decision.shield import act, floor_tick
from rlscaler_rl.decision.state import initial_state
from rlscaler_rl.decision.traffic import traffic_weights
from rlscaler_rl.decision.types import Decision, Float32, Int, Observation, Samples
from rlscaler_rl.simulation import cluster as clusters
from rlscaler_rl.simulation import levels, sensing
from rlscaler_rl.simulation.errors import ScenarioError
from rlscaler_rl.simulation.scenario import Scenarios

SENSE_SECONDS = 5


class Batch:
    """Clusters of one common action interval.

    Between two calls of `act` everything live does happens: the sensing ticks every 5 s with the reactive
    floor and the traffic weights. Rows may be at different times of different episodes.
    """

    def __init__(
        self,
        scenarios: Scenarios,
        contract: ObservationContract | None = None,
        *,
        residual: bool = False,
        level: levels.LevelName = "fluid",
    ) -> None:
        intervals = np.unique(scenarios.interval_seconds)
        if len(intervals) != 1 or intervals[0] % SENSE_SECONDS:
            raise ScenarioError(
                f"interval_seconds: one common multiple of {SENSE_SECONDS} s is needed, got {intervals.tolist()}; "
                "run every interval as a batch of its own"
            )
        self.contract = contract or ObservationContract()
        self.residual = residual
        self.interval = int(intervals[0])
        self.rows = np.arange(len(scenarios))
        self.cluster = clusters.empty(len(scenarios), formulas=level == "fluid")
        self.level = levels.make(level, len(scenarios))
        self.scenarios = scenarios.copy()
        self.facts, self.sensors, self.params = (
            self.scenarios.facts(),
            self.scenarios.sensors(),
            self.scenarios.params(),
        )
        self.state = initial_state(len(scenarios), self.contract.stack_size)
        self._begin(self.rows, self.scenarios)

    def restart(self, rows: NDArray[np.intp], scenarios: Scenarios) -> None:
        """Begin other episodes, (M,) of them, in the given rows."""
        self.scenarios.put(rows, scenarios)
        for kept, new in ((self.facts, scenarios.facts()), (self.sensors, scenarios.sensors())):
            for name, array in new._asdict().items():
                getattr(kept, name)[rows] = array
        self.params.put(rows, scenarios.params())
        self.state.put(rows, initial_state(len(rows), self.contract.stack_size))
        self._begin(rows, scenarios)

    def _begin(self, rows: NDArray[np.intp], scenarios: Scenarios) -> None:
        clusters.begin(self.cluster, rows, scenarios.initial, scenarios.past_rate, scenarios.rps)
        self.level.begin(rows, scenarios)

    def sense(self, *, latency: bool = True) -> Samples:
        """One sensing tick: what is measured now goes into the rate history."""
        samples = sensing.sense(self.facts, self.sensors, self.cluster, self.rows, latency=latency)
        if self.contract.sees_time:
            samples.time_in_episode = np.minimum(self.cluster.row["time"] / self.scenarios.duration, 1.0)
        self.state = sense(self.params, self.state, samples)
        return samples

    def observe(self) -> tuple[Samples, Observation, Float32]:
        """The sensing tick at which the actor acts; the last is the network's input (N, 10 k)."""
        samples = self.sense()
        observation, self.state = observe(self.params, self.state, samples, self.contract)
        return samples, observation, stacked_input(self.state)

    def observe_rows(self, rows: NDArray[np.intp]) -> tuple[Samples, Observation, Float32]:
        """`observe` for the given rows (M,) only: for episodes that have just begun."""
        params, state = self.params.take(rows), self.state.take(rows)
        samples = sensing.sense(self.facts, self.sensors, self.cluster, rows)
        observation, state = observe(params, sense(params, state, samples), samples, self.contract)
        self.state.put(rows, state)
        return samples, observation, stacked_input(state)

    def act(
        self, samples: Samples, observation: Observation, action: Int, probabilities: Float32 | None = None
    ) -> Decision:
        """Take the action (N, 3) of `decision.types.Decision.action` through the shield; no time passes."""
        trusted = np.ones(len(self.rows), dtype=np.bool_)
        made, self.state = act(
            self.params, self.state, samples, observation, action, trusted, probabilities, self.residual
        )
        self.scale(made.desired, made.weights)
        return made

    def floor_tick(self) -> Decision:
        """What happens at the sensing ticks between two actions."""
        samples = self.sense(latency=False)
        made, self.state = floor_tick(self.params, self.state, samples)
        self.scale(made.desired, made.weights)
        return made

    def place(self, desired: NDArray[Any], placement: NDArray[Any]) -> Int:
        """Scale without the shield, within the bounds only; returns the replicas (N, 2) that were set."""
        bounded = np.clip(desired, self.params.min_replicas, self.params.max_replicas)
        bounded = np.where(self.params.present, bounded, 0).astype(np.int32)
        staying = np.minimum(self.cluster.pool["ready"], bounded)
        chosen = np.asarray(placement, dtype=np.int32)
        weights = traffic_weights(staying, self.params.requests_per_second, chosen, self.state.weights)
        self.state.weights, self.state.placement = weights, chosen
        self.scale(bounded, weights)
        return bounded

    def scale(self, desired: NDArray[Any], weights: NDArray[Any]) -> None:
        self.level.scale(
            self.facts,
            self.cluster,
            self.rows,
            np.asarray(desired, dtype=np.int64),
            np.asarray(weights, dtype=np.int64),
        )

    def advance(self, seconds: int = SENSE_SECONDS) -> None:
        """Let time pass; the caller sees to it that no row leaves its load."""
        self.level.advance(self.facts, self.cluster, self.rows, seconds)

    def finish_interval(self) -> None:
        """From just after `act` to just before the next `observe`."""
        for tick in range(self.interval // SENSE_SECONDS):
            if tick:
                self.floor_tick()
            self.advance()
