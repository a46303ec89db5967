"""Play of days: the forecaster gets the history before them, then every contender meets the same day.

A row is one day of one load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.api.spec import Spec
from rlscaler_core.decision.forecaster.memory import LEVELS, is_kept, recent_of
from rlscaler_core.decision.forecaster.rises import coverage
from rlscaler_core.decision.types import Float
from rlscaler_rl.baselines.contender import cheapest_mix
from rlscaler_rl.evaluation.days.learned import HISTORY_DAYS, past_of, seed_of
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.days.setting import Setting
from rlscaler_rl.evaluation.processes import side_by_side
from rlscaler_rl.simulation.batch import Past
from rlscaler_rl.simulation.episode import Result, Run, run
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios, from_rate

INTERVAL_SECONDS = float(Spec.model_fields["interval_seconds"].default)
"""Default time between two actions, that of a policy without `intervalSeconds`."""

INITIAL_UTILIZATION = 0.8
"""Utilization of the replicas at the begin of a day, 0 to 1."""

Bind = Callable[[Scenarios], Scenarios]


@dataclass(frozen=True, slots=True)
class Days:
    """N days ready to be played, all of one length."""

    scenarios: Scenarios
    past: Past
    loads: tuple[str, ...]
    """Name of the load of each day, (N,)."""

    numbers: tuple[int, ...]
    """Number of the day within its load, (N,)."""

    settings: tuple[Setting, ...] = ()
    """Setting of each day, (N,); empty where all are of the nominal service."""

    def by_load(self) -> dict[str, NDArray[np.intp]]:
        """Return the rows of the days of each load."""
        return {load: np.flatnonzero(np.array(self.loads) == load) for load in dict.fromkeys(self.loads)}

    def first(self, seconds: int) -> Days:
        """Return the first `seconds` of each day."""
        whole = self.scenarios
        cut = {name: np.ascontiguousarray(getattr(whole, name)[:, :seconds]) for name in ("rate", "arrivals")}
        duration = np.minimum(whole.duration, seconds)
        return replace(self, scenarios=replace(whole, duration=duration, **cut))

    def take(self, rows: NDArray[np.integer[Any]]) -> Days:
        """Return the days in `rows`, in that order."""
        names, numbers = tuple(self.loads[i] for i in rows), tuple(self.numbers[i] for i in rows)
        settings = tuple(self.settings[i] for i in rows) if self.settings else ()
        past = _rows_of(self.past, rows)
        return Days(self.scenarios.take(rows), past, names, numbers, settings)


def prepared(
    chosen: Sequence[tuple[ServiceLoad, int]],
    *,
    bind: Bind | None = None,
    seed: int = 0,
    history_days: int = HISTORY_DAYS,
    **service: Any,
) -> Days:
    """Prepare days (load, number), with up to `history_days` of history. `service` are columns of `Scenarios`.

    `bind` sets the spec. `seed` draws other arrivals and cold starts under the same rates.
    """
    rate = np.stack([load.day(number) for load, number in chosen])
    seeds = [seed_of(load, number, seed) for load, number in chosen]
    scenarios = from_rate(rate, seeds, pattern="day", **{"interval_seconds": INTERVAL_SECONDS} | service)
    scenarios = bind(scenarios) if bind else scenarios
    params = scenarios.params()
    scenarios.initial[...] = cheapest_mix(params, scenarios.past_rate / INITIAL_UTILIZATION)
    past = past_of(chosen, scenarios, history_days)
    return Days(scenarios, past, tuple(load.name for load, _ in chosen), tuple(number for _, number in chosen))


def played(
    days: Days, make: Callable[[Float], Any], *, level: LevelName = "fluid", timeline: int = 0, seed: int = 0
) -> Run:
    """Play all days with the controller that `make` returns for their rates (N, T), and check the counters."""
    past = _rows_of(days.past, np.arange(len(days.loads)))
    controller = make(days.scenarios.rate.astype(np.float64))
    return run(days.scenarios, controller, seed, past=past, level=level, timeline=timeline)


class Figures(NamedTuple):
    """The part of a run that a comparison keeps."""

    result: Result
    coverage: Float
    """(N, 2, LEVELS) as `covered` returns it."""

    acted: dict[str, Float]
    """As in `Run.acted`."""

    timeline: dict[str, NDArray[Any]]
    """Points of the last day alone (1, T) or (1, T, 2), as in `Run.timeline`; empty unless asked for."""


class Job(NamedTuple):
    """Controller and days of one batch."""

    make: Callable[[Float], Any]
    """Argument `make` of `played`."""

    rows: NDArray[np.integer[Any]] | None = None
    """Rows of the played days; a row may occur several times. None: all of them."""

    timeline: int = 0
    """As `played` takes it."""


def played_side_by_side(
    days: Days, jobs: Sequence[Job], level: LevelName = "fluid", done: Callable[[int], None] = lambda number: None
) -> list[Figures]:
    """Play each job on its rows of `days`, in processes side by side; `done` is called with the number of each job."""
    # Each process takes its rows itself, so that memory holds only the days that are played at a time.
    seconds = len(jobs) * float(days.scenarios.duration[0])
    return side_by_side(_figures, [(days, job, level) for job in jobs], seconds, done)


def _figures(days: Days, job: Job, level: LevelName) -> Figures:
    done = played(days if job.rows is None else days.take(job.rows), job.make, level=level, timeline=job.timeline)
    last = {name: points[-1:] for name, points in done.timeline.items()}
    return Figures(done.result, covered(done), done.acted, last)


def covered(run: Run) -> Float:
    """Return the share (N, 2, LEVELS) of the forecasts of each day that held; NaN where there was none."""
    recent = run.state.load_recent
    if not is_kept(recent):
        return np.full((len(run.result.j), 2, len(LEVELS)), np.nan)
    return coverage(recent_of(recent))


def _rows_of(past: Past, rows: NDArray[np.integer[Any]]) -> Past:
    """Return copies of the rows, because playing writes into them."""
    return past._replace(**{name: column[rows] for name, column in past._asdict().items()})
