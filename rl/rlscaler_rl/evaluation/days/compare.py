"""A comparison on days: it prepares them, tunes contenders, plays all of them on the same days, and writes a table."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.evaluation.days import contenders as who
from rlscaler_rl.evaluation.days.contenders import Contender, Policy
from rlscaler_rl.evaluation.days.past import TRIALS, Chosen, cheapest_static, tuned
from rlscaler_rl.evaluation.days.play import Days, Job, played_side_by_side, prepared
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.days.table import FILE, DayTable, PlayedLoad, Score
from rlscaler_rl.evaluation.episodes import digest
from rlscaler_rl.simulation.episode import Result
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.days import NOMINAL_SHARE

Kind = Literal["transfer", "own"]
Progress = Callable[[str], None]

RULE = "rule"


@dataclass(frozen=True, slots=True)
class Request:
    """What is compared."""

    kind: Kind
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
    service: dict[str, Any] = field(default_factory=dict)
    """Columns of `Scenarios` that differ from the nominal service."""


def compare(request: Request, progress: Progress) -> DayTable:
    """Play everything that was asked for. Raises WorkloadError for a load that is not there."""
    began = time.monotonic()
    days, tune = _prepared(request, progress)
    days = days if request.hours is None else days.first(3600 * request.hours)
    scores: list[Score] = []
    coverage: dict[str, list[list[float | None]]] = {}
    everywhere = [*who.untuned(request.policies), who.hindsight()]
    progress(f"{len(everywhere)} contenders")
    plays = played_side_by_side(
        days, [Job(one.make) for one in everywhere], request.level, lambda number: progress(everywhere[number].label)
    )
    for contender, figures in zip(everywhere, plays, strict=True):
        scores += score_rows(contender, days, figures.result)
        if contender.name == RULE:
            coverage = _coverage(days, figures.coverage)
    settings: dict[str, dict[str, dict[str, Any]]] = {}
    for chosen in _chosen(request, tune, progress):
        settings[chosen.name] = {
            load: {key: _plain(value) for key, value in found.items()} for load, found in chosen.settings.items()
        }
        scores += score_rows(chosen, days, chosen.play(days, request.level))
    return DayTable(
        kind=request.kind,
        level=request.level,
        share=request.share,
        version=version("rlscaler"),
        loads=[described(load, days) for load in request.loads],
        scores=_by_load(scores, request.loads),
        settings=settings,
        networks=_networks(request.policies),
        coverage=coverage,
        seconds=round(time.monotonic() - began, 1),
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def _networks(policies: Sequence[Policy]) -> dict[str, str]:
    """Give the digest of each network by the name of its policy; a rule has none."""
    digests = {policy.name: policy.load().manifest.digest for policy in policies}
    return {name: digest for name, digest in digests.items() if digest}


def _prepared(request: Request, progress: Progress) -> tuple[Days, Days]:
    """Prepare the judged days and the days to tune on, which are none where no contender is tuned.

    All pasts are learned side by side, which takes hardly longer than one.
    """
    judged = [(load, day) for load in request.loads for day in load.parts[Part.TEST][-request.days :]]
    tune = [(load, day) for load in request.loads for day in load.parts[Part.TUNE][-request.tune_days :]]
    chosen = [*judged, *(tune if request.tuned else [])]
    progress(f"the past of {len(chosen)} days of {len(request.loads)} loads")
    everything = prepared(chosen, **request.service)
    days, tuning = (everything.take(rows) for rows in np.split(np.arange(len(chosen)), [len(judged)]))
    return days, tuning


def _chosen(request: Request, tune: Days, progress: Progress) -> Iterator[Chosen]:
    """Yield the contenders that are tuned on the past of each load."""
    if not request.tuned:
        return
    progress("best constant replicas of the past")
    yield cheapest_static(tune)
    for name in request.tuned:
        progress(f"{name}, tuned on the past")
        yield tuned(name, tune, trials=request.trials)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def score_rows(contender: Contender | Chosen, days: Days, result: Result) -> list[Score]:
    """Give one row for each load, its days in order."""
    made = []
    for load in dict.fromkeys(days.loads):
        rows = np.flatnonzero(np.array(days.loads) == load)
        made.append(
            Score(
                load=load,
                contender=contender.name,
                label=contender.label,
                role=contender.role,
                j=_figures(result.j, rows),
                cost=_figures(result.cost, rows),
                late_percent=_figures(result.late_percent, rows),
                gpu_hours=_figures(result.gpu_replica_seconds / 3600, rows),
                cpu_hours=_figures(result.cpu_replica_seconds / 3600, rows),
            )
        )
    return made


def _coverage(days: Days, share: NDArray[np.float64]) -> dict[str, list[list[float | None]]]:
    """Give the mean over each load's days of the share (N, 2, levels) of forecasts that held, by pool and level."""
    found: dict[str, list[list[float | None]]] = {}
    for load in dict.fromkeys(days.loads):
        mean = share[np.array(days.loads) == load].mean(axis=0)
        found[load] = [[None if np.isnan(value) else round(float(value), 4) for value in pool] for pool in mean]
    return found


def _figures(values: NDArray[np.float64], rows: NDArray[np.intp]) -> list[float]:
    return [round(float(value), 5) for value in values[rows]]


def described(load: ServiceLoad, days: Days) -> PlayedLoad:
    rows = np.flatnonzero(np.array(days.loads) == load.name)
    some = days.scenarios.take(rows)
    return PlayedLoad(
        name=load.name,
        group=load.group,
        drawn=load.drawn,
        days=[days.numbers[i] for i in rows],
        requests=float(some.arrivals.sum(dtype=np.float64)),
        digest=digest(some),
    )


def _by_load(scores: Sequence[Score], loads: Sequence[ServiceLoad]) -> list[Score]:
    order = {load.name: index for index, load in enumerate(loads)}
    return sorted(scores, key=lambda row: order[row.load])


def write(table: DayTable, folder: Path, lines: Sequence[str]) -> None:
    """Write `days.json` and `days.md` into a folder, which is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(table.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (folder / "days.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
