"""N simulated clusters and the decision function around them, tick by tick as the operator drives real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import traffic_weights
from rlscaler_core.decision.budget import within_budget
from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.error_budget import steers
from rlscaler_core.decision.forecaster.memory import is_kept
from rlscaler_core.decision.observation import ObservationContract, observe, sense, stacked_input
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_core.decision.situation import Capacity, capacity_of
from rlscaler_core.decision.tables import initial_state
from rlscaler_core.decision.types import (
    RATE_HISTORY,
    Decision,
    Float,
    Float32,
    Int,
    Observation,
    Params,
    Samples,
    State,
)
from rlscaler_rl.simulation import cluster as clusters
from rlscaler_rl.simulation import levels, sensing
from rlscaler_rl.simulation.cluster import ClusterFacts, Sensors
from rlscaler_rl.simulation.scenario import ScenarioError, Scenarios

SENSE_SECONDS = sensing.SENSE_SECONDS

CAPACITY_SECONDS = 60
"""Seconds between two changes of the capacity of a replica, where it moves."""

COUNT_SECONDS = 60
"""Seconds between two counts of late requests, where an objective steers."""


class PreparedScenarios(NamedTuple):
    """N scenarios and everything that is computed from them before an episode can begin."""

    scenarios: Scenarios
    facts: ClusterFacts
    sensors: Sensors
    params: Params
    capacity: Capacity
    memory: sensing.RateMemory

    @classmethod
    def of(cls, scenarios: Scenarios) -> PreparedScenarios:
        """Columns that are the same as in `scenarios` are not copied."""
        params = scenarios.params()
        sensors = scenarios.sensors()
        memory = sensing.remembered(sensors, scenarios.past)
        return cls(scenarios, scenarios.facts(), sensors, params, capacity_of(params), memory)

    @classmethod
    def concat(cls, parts: Sequence[PreparedScenarios]) -> PreparedScenarios:
        """All rows of `parts`, in order."""
        facts, sensors = (
            [np.concatenate(columns) for columns in zip(*tables, strict=True)]
            for tables in ([part.facts for part in parts], [part.sensors for part in parts])
        )
        return cls(
            Scenarios.concat([part.scenarios for part in parts]),
            ClusterFacts(*facts),
            Sensors(*sensors),
            Params.concat([part.params for part in parts]),
            Capacity.concat([part.capacity for part in parts]),
            sensing.RateMemory.concat([part.memory for part in parts]),
        )

    def put(self, rows: Any, other: PreparedScenarios, which: Any = slice(None)) -> None:
        """Overwrite the given rows in place with the rows `which` of `other`."""
        self.scenarios.put(rows, other.scenarios, which)
        pairs: list[tuple[Any, Any]] = [*zip(self.facts, other.facts, strict=True)]
        for column, value in [*pairs, *zip(self.sensors, other.sensors, strict=True)]:
            column[rows] = value[which]
        self.params.put(rows, other.params, which)
        self.capacity.put(rows, other.capacity, which)
        self.memory.put(rows, other.memory, which)


class Past(NamedTuple):
    """History of N services before their episodes begin."""

    epoch: Float  # (N,) Unix seconds at which they begin
    rate_time: Float  # (N, H) as in `State`
    rate_value: Float  # (N, H)
    load_recent: Float32  # (N, ...) as in `State`
    load_calendar: Float32  # (N, ...)
    counted_requests: Float  # (N,) this and the following as in `State`
    counted_late: Float  # (N,)
    counted_time: Float  # (N,)
    counted_slo_ms: Float  # (N,)
    price_factor: Float  # (N,)


class Batch:
    """N clusters side by side, in the order of falling action intervals.

    Between two calls of `act` the batch does everything that the operator does live: the sensing ticks every 5 s with
    the reactive floor and the traffic weights. Rows may be at different times of different episodes.

    :param history: rates that are remembered. Fewer are quicker; with no `behavior` nothing reads further back than
        `forecast.MEMORY_LIMIT_SECONDS`.
    :param past: history of the services. Forecasters learn only with a `past`, or where the scenarios bring learned
        state: ten minutes teach nothing.
    :param learns: False: forecasters never learn, and `act` takes `learned_by`.
    :param faults: removes unmeasured values from the samples of every `sense`.
    """

    def __init__(
        self,
        scenarios: Scenarios,
        contract: ObservationContract | None = None,
        *,
        rule: RuleSettings | None = None,
        level: levels.LevelName = "fluid",
        history: int = RATE_HISTORY,
        past: Past | None = None,
        learns: bool = True,
        faults: Callable[[Samples], Samples] | None = None,
    ) -> None:
        intervals = scenarios.interval_seconds.astype(np.int64)
        if (intervals % SENSE_SECONDS).any() or (np.diff(intervals) > 0).any():
            raise ScenarioError(
                f"interval_seconds: multiples of {SENSE_SECONDS} s are needed, the longest in the first rows, got "
                f"{list(dict.fromkeys(intervals.tolist()))}; sort the rows"
            )
        self.contract = contract or ObservationContract()
        self.rule = rule
        """Forecast rule to whose replicas the actions of `act` are added; None: to the present replicas."""
        self.interval = int(intervals[0])
        """Action interval of the first row in seconds, the longest of all."""
        self.rows = np.arange(len(scenarios))
        self.cluster = clusters.empty(len(scenarios), formulas=level == "fluid")
        self.level = levels.make(level, len(scenarios))
        self._prepared = PreparedScenarios.of(scenarios.copy())
        self.scenarios, self.facts, self.sensors = self._prepared[:3]
        self._acting = [int((intervals > second).sum()) for second in range(0, self.interval, SENSE_SECONDS)]
        self.params = self._prepared.params
        self._learns = learns and is_kept(scenarios.load_recent)
        self._fresh = initial_state(1, self.contract.stack_size, history, forecaster=self._learns)
        self.state = initial_state(len(scenarios), self.contract.stack_size, history, forecaster=self._learns)
        self._faults = faults
        self._counted = np.zeros((len(scenarios), 2))
        self._moving = np.zeros(len(scenarios), np.bool_)
        if past is not None:
            self.scenarios.epoch[:] = past.epoch
            self.state = replace(self.state, **{name: getattr(past, name) for name in past._fields if name != "epoch"})
        self._begin(self.rows)

    @property
    def params(self) -> Params:
        """The specs of the policies, one row for each episode."""
        return self._prepared.params

    @params.setter
    def params(self, params: Params) -> None:
        capacity = capacity_of(params)
        self._prepared = self._prepared._replace(params=params, capacity=capacity)
        self._first = {
            count: (params.view(slice(0, count)), capacity.view(slice(0, count))) for count in set(self._acting)
        }

    @property
    def capacity(self) -> Capacity:
        """Capacities that follow from the specs, computed once."""
        return self._prepared.capacity

    def restart(self, rows: NDArray[np.intp], scenarios: Scenarios) -> None:
        """Begin other episodes, (M,) of them, in the given rows; their action intervals stay."""
        self.restart_with(rows, PreparedScenarios.of(scenarios))

    def restart_with(self, rows: NDArray[np.intp], prepared: PreparedScenarios, which: Any = slice(None)) -> None:
        """`restart` with the rows `which` (M,) of `prepared`."""
        self._prepared.put(rows, prepared, which)
        self.state.put(rows, self._fresh)
        self._begin(rows)

    def _move_capacity(self, rows: NDArray[np.intp]) -> None:
        """Set the present capacity of a replica in those of the given rows where it moves."""
        if not self._moving.any():
            return
        time = self.cluster.row["time"]
        rows = rows[self._moving[rows] & (time[rows] % CAPACITY_SECONDS == 0)]
        if rows.size:
            rps = self.scenarios.true_rps(rows, time[rows])
            self.facts.pool["rps"][rows] = rps
            self.facts.positions[rows] = clusters.bucket_positions(rps, self.facts.row["slo"][rows])

    def _begin(self, rows: NDArray[np.intp]) -> None:
        scenarios, memory = self.scenarios, self._prepared.memory
        self._moving[rows] = ((scenarios.drift[rows] > 0) | (scenarios.fall[rows] > 0)).any(axis=1)
        clusters.begin(
            self.cluster,
            rows,
            scenarios.initial[rows],
            scenarios.past_rate[rows],
            scenarios.rps[rows],
            scenarios.past[rows],
        )
        # Of these rows alone: that of the others moves with their next second, whichever episodes end beside them.
        self._move_capacity(rows)
        columns = min(memory.time.shape[1], self.state.rate_time.shape[1])
        known = rows[~np.isnan(memory.time[rows, -1])]
        self.state.rate_time[known, -columns:] = scenarios.epoch[known, None] + memory.time[known, -columns:]
        self.state.rate_value[known, -columns:] = memory.value[known, -columns:]
        if self._learns:
            self.state.load_recent[rows] = scenarios.load_recent[rows]
            self.state.load_calendar[rows] = scenarios.load_calendar[rows]
        self.level.begin(self.facts, rows)
        self._counted[rows] = 0.0

    def sense(self, *, latency: bool = True) -> Samples:
        """Take one sensing tick; the measured rate goes into the rate history."""
        samples = sensing.sense(self.facts, self.sensors, self.cluster, self.rows, latency=latency)
        if self._faults is not None:
            samples = self._faults(samples)
        samples.time = samples.time + self.scenarios.epoch
        if steers(self.params).any():
            self._count(samples)
        self.state = sense(self.params, self.state, samples)
        return samples

    def observe(self) -> tuple[Samples, Observation, Float32]:
        """The sensing tick at which the actor acts; the last is the network's input (N, 10 k)."""
        samples = self.sense()
        observation, self.state = observe(self.params, self.state, samples, self.contract)
        return samples, observation, stacked_input(self.state)

    def observe_rows(self, rows: NDArray[np.intp]) -> Float32:
        """(M, 10 k) network inputs of the given rows (M,); the state of the batch does not change."""
        params, samples = self.params.take(rows), sensing.sense(self.facts, self.sensors, self.cluster, rows)
        samples.time = samples.time + self.scenarios.epoch[rows]
        state = sense(params, self.state.take(rows), samples)
        return stacked_input(observe(params, state, samples, self.contract)[1])

    def _count(self, samples: Samples) -> None:
        """Fill `counted_requests` and `counted_late` of the samples with the requests since the last count, once a
        minute."""
        row = self.cluster.row
        counted = np.stack([row["requests"], row["late"] + row["dropped"]], axis=1)
        due = row["time"] % COUNT_SECONDS == 0
        requests, late = (counted - self._counted).T
        samples.counted_requests[due], samples.counted_late[due] = requests[due], late[due]
        self._counted[due] = counted[due]

    def act(
        self,
        samples: Samples,
        observation: Observation,
        action: Int,
        probabilities: Float32 | None = None,
        *,
        learned_by: Batch | None = None,
    ) -> Decision:
        """Take the action (N, 3) of `decision.types.Decision.action` through the shield; no time passes.

        `learned_by` is a batch of the same episodes at the same moment that has learned of their loads; None: this one.
        """
        proposal = Proposal(observation, action, self.rule, probabilities)
        own = self.state
        known = own if learned_by is None else _knowing(own, learned_by.state)
        decision, _, after = decide(self.params, known, samples, proposal, capacity=self.capacity)
        self.state = after if learned_by is None else _knowing(after, own)
        self.scale(decision.desired, decision.weights)
        return decision

    def floor_tick(self) -> Decision:
        """Take one of the sensing ticks between two actions: the reactive floor and the traffic weights."""
        samples = self.sense(latency=False)
        decision, _, self.state = decide(self.params, self.state, samples, kind="floor", capacity=self.capacity)
        self.scale(decision.desired, decision.weights)
        return decision

    def scale_unshielded(self, desired: NDArray[Any], placement: NDArray[Any]) -> Int:
        """Set the replicas (N, 2) and the placement (N,) of a contender: within bounds and budget, without the shield.

        Returns the replicas (N, 2) that were set.
        """
        bounded = np.clip(desired, self.params.min_replicas, self.params.max_replicas)
        bounded = np.where(self.params.present, bounded, 0).astype(np.int32)
        if np.isfinite(self.params.budget_per_hour).any():
            running = self.cluster.pool["target"].astype(np.int32)
            bounded, _, self.state.budget_kept = within_budget(self.params, self.state, running, bounded, self.capacity)
        staying = np.minimum(self.cluster.pool["ready"], bounded)
        chosen = np.asarray(placement, dtype=np.int32)
        weights = traffic_weights(staying, self.params.requests_per_second, chosen, self.state.weights)
        self.state.weights, self.state.placement = weights, chosen
        self.scale(bounded, weights)
        return bounded

    def scale(self, desired: NDArray[Any], weights: NDArray[Any]) -> None:
        """Set the replicas (M, 2) and traffic weights (M, 2) of the first M rows."""
        self.level.scale(
            self.facts,
            self.cluster,
            self.rows[: len(desired)],
            np.asarray(desired, dtype=np.int64),
            np.asarray(weights, dtype=np.int64),
        )

    def advance(self, seconds: int = SENSE_SECONDS) -> None:
        """Let time pass; the caller sees to it that no row leaves its load."""
        self._move_capacity(self.rows)
        self.level.advance(self.facts, self.cluster, self.rows, seconds)

    def finish_interval(self) -> None:
        """Let every row's own action interval pass, from just after `act` to just before the next `observe`."""
        for tick, count in enumerate(self._acting):
            if tick:
                self._unexplained_tick(count)
            self._move_capacity(self.rows[:count])
            self.level.advance(self.facts, self.cluster, self.rows[:count], SENSE_SECONDS)

    def _unexplained_tick(self, count: int) -> None:
        """Run `floor_tick` for the first `count` rows, without the reasons of changed replicas."""
        params, capacity = self._first[count]
        samples = sensing.sense(self.facts, self.sensors, self.cluster, self.rows[:count], latency=False)
        samples.time = samples.time + self.scenarios.epoch[:count]
        before = self.state if count == len(self.rows) else self.state.view(slice(0, count))
        sensed = sense(params, before, samples)
        decision, _, after = decide(params, sensed, samples, kind="floor", capacity=capacity, explain=False)
        if before is self.state:
            self.state = after
        else:
            self.state.put_changed(slice(0, count), before, after)
        self.scale(decision.desired, decision.weights)


def _knowing(state: State, other: State) -> State:
    """Return the state with the forecasters' memory of the `other` state."""
    return replace(state, load_recent=other.load_recent, load_calendar=other.load_calendar)
