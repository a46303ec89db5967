"""The causal planner on days: what it may know of each load before its day begins, and the day as it plays it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from rlscaler_core.decision.types import Float, Float32
from rlscaler_rl.evaluation.days.contenders import CAUSAL, Contender
from rlscaler_rl.evaluation.days.learned import HISTORY_DAYS, WINDOW, seed_of, sensed_day
from rlscaler_rl.evaluation.days.play import Days, Job, played_side_by_side
from rlscaler_rl.evaluation.days.processes import cores
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.planning.causal import CausalPlanner, CausalSettings, KnownService
from rlscaler_rl.planning.late import SETTLING_SECONDS, LateTable, choices
from rlscaler_rl.simulation.episode import Result
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios

LOADS = 96
"""Loads whose lateness is measured, evenly spaced in their square root."""

HIGHEST = 1.5
"""The highest of them, over the capacity of all replicas: more cannot be helped anyway."""

PIECES, PIECE_SECONDS = 6, 40
"""Stretches of the day before whose seconds say how far the requests of a second are from those measured."""


def causal(services: Sequence[KnownService], settings: CausalSettings | None = None) -> Contender:
    """The causal planner of these services, one for each day that it plays."""
    return Contender(CAUSAL, "Causal plan", "reference", partial(_planner, services, settings))


def _planner(services: Sequence[KnownService], settings: CausalSettings | None, rate: Float) -> CausalPlanner:
    """Make it without a look at the rates that will come."""
    return CausalPlanner(services, settings)


def known_services(days: Days, loads: Sequence[ServiceLoad], history_days: int = HISTORY_DAYS) -> list[KnownService]:
    """Give what is known of the service of each row of `days` from up to `history_days` days before.

    Raises EvaluationError for a day before which there is none.
    """
    named = {load.name: load for load in loads}
    known = []
    for row, (name, number) in enumerate(zip(days.loads, days.numbers, strict=True)):
        if number == 0:
            raise EvaluationError(
                f"{name}: no day before day 0, from which futures could be drawn; leave out --causal-plan"
            )
        load = named[name]
        before = range(max(number - history_days, 0), number)
        history = np.concatenate([sensed_day(load, one) for one in before])
        seed = seed_of(load, number, 0)
        known.append(KnownService(history, _table(days.scenarios, row, _seconds(load.day(number - 1), seed)), seed))
    return known


def _seconds(rate: Float32, seed: int) -> Float:
    """Give what `PIECES` stretches of a day's rates (T,) say of how seconds differ from what is measured around them.

    Each is relative to its mean over a rate window, so that neither trend nor level is in it.
    """
    smooth = np.convolve(rate, np.full(WINDOW, 1 / WINDOW), mode="same")
    relative = np.where(smooth > 0, rate / np.maximum(smooth, 1e-9), 1.0)
    begins = np.random.default_rng(seed).integers(WINDOW, len(rate) - PIECE_SECONDS - WINDOW, PIECES)
    pieces = [relative[begin : begin + PIECE_SECONDS] for begin in begins]
    return np.concatenate([np.ones(SETTLING_SECONDS), *pieces])


def played_causally(days: Days, services: Sequence[KnownService], level: LevelName = "fluid") -> Result:
    """Play all days with the causal planner, in as many processes as there are cores."""
    parts = np.array_split(np.arange(len(days.loads)), min(cores(), len(days.loads)))
    jobs = [Job(causal([services[row] for row in rows]).make, rows) for rows in parts]
    return Result.concat([figures.result for figures in played_side_by_side(days, jobs, level)])


def _table(scenarios: Scenarios, row: int, seconds: Float) -> LateTable:
    """Measure how late loads that stay are on one service."""
    pools = choices(scenarios, row)
    capacity = float(sum(pool[-1] * rps for pool, rps in zip(pools, scenarios.rps[row], strict=True)))
    return LateTable.of(scenarios, row, np.linspace(0.0, np.sqrt(HIGHEST * capacity), LOADS) ** 2, seconds)
