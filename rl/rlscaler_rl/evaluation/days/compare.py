"""Comparison on days: prepares them, tunes contenders, plays all of them on the same days, and returns a table."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.days import contenders as lineup
from rlscaler_rl.evaluation.days.contenders import Contender, Policy
from rlscaler_rl.evaluation.days.past import TRIALS, Chosen, cheapest_static, tuned
from rlscaler_rl.evaluation.days.play import Days, Figures, Job, played_side_by_side
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.days.setting import EXACT, World
from rlscaler_rl.evaluation.days.table import DayTable, PlayedLoad, Score
from rlscaler_rl.evaluation.days.world import prepared_in
from rlscaler_rl.evaluation.episodes import digest
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.results.document import Progress
from rlscaler_rl.simulation.episode import Result
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.days import NOMINAL_SHARE

RULE = "rule"

ROWS = 160
"""Days in all their settings that are played at a time; a day takes some megabytes."""


@dataclass(frozen=True, slots=True)
class Request:
    """Loads, contenders and service of a comparison."""

    kind: Literal["transfer", "own"]
    loads: Sequence[ServiceLoad]
    policies: Sequence[Policy] = ()
    """Networks beside the forecast rule."""

    days: int = 4
    """Most days of the test part of each load that are played, the last ones."""

    hours: int | None = None
    """Hours of each of these days that are played, the first ones; None: the whole day."""

    tuned: tuple[str, ...] = ()
    """Contenders that are also tuned on each load's tune days."""

    tune_days: int = 2
    trials: int = TRIALS
    level: LevelName = "fluid"
    share: float = NOMINAL_SHARE
    """As in `DayTable.share`."""
    world: World = EXACT
    service: dict[str, Any] = field(default_factory=dict)
    """Columns of `Scenarios` that differ from the nominal service."""

    def judged(self, loads: Sequence[ServiceLoad]) -> list[tuple[ServiceLoad, int]]:
        return [(load, day) for load in loads for day in load.parts[Part.TEST][-self.days :]]

    def batches(self) -> Iterator[list[ServiceLoad]]:
        """Yield loads whose days have one length and fit into memory together."""
        for length in dict.fromkeys(load.length for load in self.loads):
            batch, rows = [], 0
            for load in (load for load in self.loads if load.length == length):
                batch.append(load)
                rows += sum(len(self.world.settings(load.by_second, 0)) for _ in self.judged([load]))
                if rows >= ROWS:
                    yield batch
                    batch, rows = [], 0
            if batch:
                yield batch


def compare(request: Request, progress: Progress) -> DayTable:
    """Play all contenders on all days. Raises WorkloadError for a load that is not there."""
    began = time.monotonic()
    if request.tuned and (without := [load.name for load in request.loads if not load.parts[Part.TUNE]]):
        raise EvaluationError(f"{', '.join(without)}: no past that a contender could be tuned on; leave them out")
    loads: dict[str, PlayedLoad] = {}
    scores: list[Score] = []
    coverage: dict[str, list[list[float | None]]] = {}
    settings: dict[str, dict[str, dict[str, Any]]] = {}
    for batch in request.batches():
        days, tune = _prepared(request, batch, progress)
        days = days if request.hours is None else days.first(3600 * request.hours)
        loads |= {load.name: _described(load, days) for load in batch}
        for contender, figures in _untuned(request, days, progress):
            scores += score_rows(contender, days, figures.result)
            if contender.name == RULE:
                coverage |= _coverage(days, figures.coverage)
        for chosen in _chosen(request, tune, progress):
            own = settings.setdefault(chosen.name, {})
            own |= {
                load: {key: value.item() if isinstance(value, np.generic) else value for key, value in values.items()}
                for load, values in chosen.settings.items()
            }
            scores += score_rows(chosen, days, chosen.play(days, request.level))
    order = [load.name for load in request.loads]
    return DayTable(
        kind=request.kind,
        level=request.level,
        share=request.share,
        version=version("rlscaler"),
        loads=[loads[name] for name in order],
        scores=sorted(scores, key=lambda row: order.index(row.load)),
        settings=settings,
        networks=_networks(request.policies),
        coverage=coverage,
        seconds=round(time.monotonic() - began, 1),
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def _untuned(request: Request, days: Days, progress: Progress) -> Iterator[tuple[Contender, Figures]]:
    """Yield the contenders that nothing is tuned for, with their figures."""
    everywhere = [*lineup.untuned(request.policies), lineup.hindsight()]
    progress(f"{len(everywhere)} contenders")
    jobs = [Job(contender.make) for contender in everywhere]
    plays = played_side_by_side(days, jobs, request.level, lambda number: progress(everywhere[number].label))
    yield from zip(everywhere, plays, strict=True)


def _networks(policies: Sequence[Policy]) -> dict[str, str]:
    """Return the digest of each network by the name of its policy; a rule has none."""
    digests = {policy.name: policy.load().manifest.digest for policy in policies}
    return {name: digest for name, digest in digests.items() if digest}


def _prepared(request: Request, loads: Sequence[ServiceLoad], progress: Progress) -> tuple[Days, Days | None]:
    """Prepare the judged days and the days to tune on, None where no contender is tuned."""
    judged = request.judged(loads)
    tune = [(load, day) for load in loads for day in load.parts[Part.TUNE][-request.tune_days :]]
    count = len(judged) + len(tune) * bool(request.tuned)
    progress(f"the past of {count} days of {len(loads)} loads")
    days = prepared_in(request.world, judged, **request.service)
    return days, prepared_in(request.world, tune, **request.service) if request.tuned else None


def _chosen(request: Request, tune: Days | None, progress: Progress) -> Iterator[Chosen]:
    """Yield the contenders that are tuned on the past of each load."""
    if tune is None:
        return
    progress("best constant replicas of the past")
    yield cheapest_static(tune)
    for name in request.tuned:
        progress(f"{name}, tuned on the past")
        yield tuned(name, tune, trials=request.trials)


def score_rows(contender: Contender | Chosen, days: Days, result: Result) -> list[Score]:
    """Return a row for each load, its days in order."""
    hours = {"gpu_hours": result.gpu_replica_seconds / 3600, "cpu_hours": result.cpu_replica_seconds / 3600}
    starts = {"gpu_starts": result.gpu_starts, "cpu_starts": result.cpu_starts}
    metrics = {"j": result.j, "cost": result.cost, "late_percent": result.late_percent, **hours, **starts}
    names = {"contender": contender.name, "label": contender.label, "role": contender.role}
    return [
        Score.model_validate(
            {"load": load, **names}
            | {name: [round(float(value), 5) for value in values[rows]] for name, values in metrics.items()}
        )
        for load, rows in days.by_load().items()
    ]


def _coverage(days: Days, share: Float) -> dict[str, list[list[float | None]]]:
    """Return the mean over each load's days of the share (N, 2, levels) of forecasts that held, by pool and level."""
    return {
        load: [
            [None if np.isnan(value) else round(float(value), 4) for value in pool] for pool in share[rows].mean(axis=0)
        ]
        for load, rows in days.by_load().items()
    }


def _described(load: ServiceLoad, days: Days) -> PlayedLoad:
    rows = days.by_load()[load.name]
    scenarios = days.scenarios.take(rows)
    return PlayedLoad(
        name=load.name,
        group=load.group,
        drawn=load.drawn,
        by_second=load.by_second,
        days=[days.numbers[i] for i in rows],
        settings=[days.settings[i] for i in rows],
        seconds=int(scenarios.duration[0]),
        requests=float(scenarios.arrivals.sum(dtype=np.float64)),
        digest=digest(scenarios),
    )
