"""The planner: what the load would have cost with its whole future known, and a cost below which no contender comes.

`Planner` plays the cheapest plan of `stages` through the simulator, with the cold starts as they are drawn, so its
score is one that was reached. `certain_cost` is a lower bound: it keeps the prices, the limits and the shortest cold
start and counts only those requests as late that nothing could have answered in time. The best score that is possible
lies between the two; their distance is the optimality gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Int as Int32
from rlscaler_core.decision.types import Params, Samples, State
from rlscaler_rl.planning.late import LateTable, choices
from rlscaler_rl.planning.stages import Stages, cheapest_plan, least_cost_with_slack
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.simulation.episode import LATE_WEIGHT, Run, run
from rlscaler_rl.simulation.scenario import Scenarios

Float = NDArray[np.float64]
Int = NDArray[np.int64]

STAGE_SECONDS = SENSE_SECONDS
"""Replicas can be changed once a sensing tick, so a stage is one tick."""

LOAD_LEVELS = 64
"""Levels of load, evenly spaced in their square root, for which late shares are measured; a load is rounded up."""

ROUNDS = 3
"""Times that a plan is made and played."""

STATES_OF_PAIRS = 600
"""Up to so many states the lower bound tries all pairs; beyond, it gives every stage the slack of all replicas."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """One way of planning; the best of several is played, since the whole future is known anyway."""

    smooth_stages: int = 1
    """The load of a stage is the mean over so many, centred: shorter peaks wait in the queue."""

    caution: float = 1.0
    """Factor on the price of a late request while planning, for what the steady state does not show of queues."""


VARIANTS = tuple(PlanSettings(smooth, caution) for smooth in (1, 3, 5) for caution in (1.0, 2.0))


class Planner:
    """Plays fixed targets (N, K, 2) and placements (N, K), one for each stage, whatever is measured."""

    def __init__(self, targets: Int, placements: Int) -> None:
        self.targets, self.placements = targets.astype(np.int32), placements.astype(np.int32)

    def reset(self, params: Params) -> None:
        """Nothing is remembered."""

    def __call__(self, params: Params, state: State, samples: Samples, rng: np.random.Generator) -> tuple[Int32, Int32]:
        stage = min(int(samples.time[0]) // STAGE_SECONDS, self.targets.shape[1] - 1)
        return self.targets[:, stage], self.placements[:, stage]


def best_plan(scenarios: Scenarios, variants: Sequence[PlanSettings] = VARIANTS, seed: int = 0) -> tuple[Planner, Run]:
    """Give the planner whose plan scored best for each episode (N), and its run.

    Every variant is planned and played `ROUNDS` times. What was seen to wait at the begin of a stage is added to the
    load of that stage in the next round, since a plan has to work off what it let wait.
    """
    tables = [_late_table(scenarios, row) for row in range(len(scenarios))]
    best: tuple[Float, Planner] | None = None
    for settings in variants:
        waiting = np.zeros((len(scenarios), int(scenarios.duration[0]) // STAGE_SECONDS))
        for _ in range(ROUNDS):
            planner = _planned(scenarios, tables, settings, waiting)
            played = run(scenarios, planner, seed, timeline=1)
            best = _better(best, (played.result.j, planner))
            waiting = played.timeline["queue"].sum(axis=2)[:, STAGE_SECONDS - 1 :: STAGE_SECONDS]
            waiting = np.concatenate([np.zeros((len(scenarios), 1)), waiting[:, :-1]], axis=1)
    if best is None:
        raise ValueError("variants: at least one is needed")
    return best[1], run(scenarios, best[1], seed)


def planned(scenarios: Scenarios, settings: PlanSettings = VARIANTS[0]) -> Planner:
    """Give a plan for each episode (N), made once and not played: what a pupil is shown, where no score is claimed.

    What waits from one stage to the next is left out, so that a plan is a little too lean after a jump.
    """
    tables = [_late_table(scenarios, row) for row in range(len(scenarios))]
    return _planned(
        scenarios, tables, settings, np.zeros((len(scenarios), int(scenarios.duration[0]) // STAGE_SECONDS))
    )


def _better(best: tuple[Float, Planner] | None, other: tuple[Float, Planner]) -> tuple[Float, Planner]:
    """Give the better of two planners for each episode, with its score."""
    if best is None:
        return other
    wins = other[0] < best[0]
    targets = np.where(wins[:, None, None], other[1].targets, best[1].targets)
    placements = np.where(wins[:, None], other[1].placements, best[1].placements)
    return np.minimum(best[0], other[0]), Planner(targets, placements)


def certain_cost(scenarios: Scenarios) -> Float:
    """Give a score J (N,) that no contender undercuts at the fluid level; see the module and `least_cost_with_slack`.

    A second is added to the objective as slack, since the fluid level averages the waiting time within a second. Where
    objective and slack are longer than a stage nothing is certain to be late, and the bound is that of the replicas.
    """
    return np.array([_certain_cost(scenarios, row) for row in range(len(scenarios))])


def _certain_cost(scenarios: Scenarios, row: int) -> float:
    gpu, cpu = choices(scenarios, row)
    arrived = _arrivals(scenarios, row).sum(axis=1)
    seconds = float(scenarios.duration[row])
    rps, price = scenarios.rps[row], scenarios.price_ratio[row]
    capacity = gpu[:, None] * rps[0] + cpu[None, :] * rps[1]
    holding = (gpu[:, None] + price * cpu[None, :]) * float(STAGE_SECONDS)
    slack = scenarios.slo_ms[row] / 1000 + 1.0
    late_price = _late_price(scenarios, row) if slack <= STAGE_SECONDS else 0.0
    if capacity.size > STATES_OF_PAIRS:
        arrived, slack = np.maximum(arrived - capacity.max() * slack, 0.0), 0.0
    prices = np.array([late_price, *_ordering(scenarios, row, scenarios.cold_start_low[row])])
    start = np.array(_start(scenarios, row, gpu, cpu))
    total = least_cost_with_slack(arrived, capacity, holding, float(STAGE_SECONDS), slack, prices, start)
    return float(total / seconds)


def _planned(scenarios: Scenarios, tables: Sequence[LateTable], settings: PlanSettings, waiting: Float) -> Planner:
    """Plan all episodes; `waiting` (N, K) are requests that wait when a stage begins."""
    rows = [_plan_row(scenarios, row, tables[row], settings, waiting[row]) for row in range(len(scenarios))]
    return Planner(np.stack([targets for targets, _ in rows]), np.stack([placements for _, placements in rows]))


def _plan_row(
    scenarios: Scenarios, row: int, table: LateTable, settings: PlanSettings, waiting: Float
) -> tuple[Int, Int]:
    """Give targets (K, 2) and placements (K,) for one episode."""
    gpu, cpu = choices(scenarios, row)
    load = _smoothed(_arrivals(scenarios, row).sum(axis=1), settings.smooth_stages) + waiting
    level = np.searchsorted(table.loads, load / STAGE_SECONDS - 1e-9).clip(0, len(table.loads) - 1)
    late = table.late_share * (table.loads * STAGE_SECONDS).astype(np.float32)[:, None, None]
    price = scenarios.price_ratio[row]
    lead = np.ceil(scenarios.cold_start_high[row] / STAGE_SECONDS).astype(int)
    stages = Stages(
        gpu=gpu,
        cpu=cpu,
        level=level,
        late=late,
        holding=(gpu[:, None] + price * cpu[None, :]) * float(STAGE_SECONDS),
        late_price=settings.caution * _late_price(scenarios, row),
        ordering=_ordering(scenarios, row, scenarios.cold_start_high[row]),
        start=_start(scenarios, row, gpu, cpu),
        earliest=(int(lead[0]), int(lead[1])),
    )
    _, plan = cheapest_plan(stages)
    ready = np.stack([gpu[plan[:, 0]], cpu[plan[:, 1]]], axis=1)
    placements = table.placement[level, plan[:, 0], plan[:, 1]]
    targets = np.stack([_ordered_ahead(ready[:, pool], lead[pool]) for pool in range(2)], axis=1)
    return targets, placements


def _ordered_ahead(ready: Int, lead: int) -> Int:
    """Give the targets (K,) that make so many replicas `ready` (K,): the highest of the next `lead` stages."""
    padded = np.concatenate([ready, np.full(lead, ready[-1])])
    highest: Int = np.lib.stride_tricks.sliding_window_view(padded, lead + 1).max(axis=1)
    return highest


def _late_table(scenarios: Scenarios, row: int) -> LateTable:
    """Measure the late shares up to the highest load of the episode."""
    highest = max(float(_arrivals(scenarios, row).mean(axis=1).max()), 1e-3)
    return LateTable.of(scenarios, row, np.linspace(0.0, np.sqrt(highest), LOAD_LEVELS) ** 2)


def _start(scenarios: Scenarios, row: int, gpu: Int, cpu: Int) -> tuple[int, int]:
    initial = scenarios.initial[row]
    return int(np.clip(initial[0] - gpu[0], 0, len(gpu) - 1)), int(np.clip(initial[1] - cpu[0], 0, len(cpu) - 1))


def _arrivals(scenarios: Scenarios, row: int) -> Float:
    """Give the requests of each second, (K, STAGE_SECONDS)."""
    counted = scenarios.arrivals[row, : int(scenarios.duration[row])].astype(np.float64)
    return counted.reshape(-1, STAGE_SECONDS)


def _late_price(scenarios: Scenarios, row: int) -> float:
    """Give the replica-seconds that one late request is worth in J."""
    seconds = float(scenarios.duration[row])
    total = max(float(scenarios.arrivals[row, : int(seconds)].sum()), 1.0)
    return 100 * LATE_WEIGHT * seconds / total


def _ordering(scenarios: Scenarios, row: int, cold_start: Float) -> tuple[float, float]:
    """Give the replica-seconds, in GPU equivalents, for which a new replica of each pool is billed before it serves."""
    stages = np.floor(cold_start / STAGE_SECONDS) * STAGE_SECONDS
    return float(stages[0]), float(stages[1] * scenarios.price_ratio[row])


def _smoothed(load: Float, stages: int) -> Float:
    if stages == 1:
        return load
    half = stages // 2
    padded = np.pad(load, half, mode="edge")
    return np.convolve(padded, np.full(stages, 1 / stages), mode="valid")
