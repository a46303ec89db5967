"""Plays every workload with every contender, on all cores, and collects scores, counters and time-lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.board import Board
from rlscaler_rl.evaluation.episodes import Fold, blocks_played, describe, digest, folds_of, joined, name_of
from rlscaler_rl.evaluation.invariants import Audit
from rlscaler_rl.evaluation.lineup import Entry, contenders
from rlscaler_rl.evaluation.processes import side_by_side
from rlscaler_rl.evaluation.schema import Workload
from rlscaler_rl.evaluation.settings import EvaluationSettings
from rlscaler_rl.simulation.episode import Run, run
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios

Progress = Callable[[str, str], None]
"""Called with the workload and the label of a contender that has been played."""


@dataclass(slots=True)
class Played:
    """Scores, checks and time-lines of an evaluation: the source of reports and pictures."""

    settings: EvaluationSettings
    entries: list[Entry]
    board: Board
    audit: Audit
    workloads: list[Workload] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    timelines: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """(workload, contender) -> the first episode of the first run, second by second."""

    outside: dict[str, str] = field(default_factory=dict)
    """Workload -> reason for which it is outside the model's trained envelope."""


@dataclass(frozen=True, slots=True)
class Task:
    """One contender on one workload, as another process gets it."""

    settings: EvaluationSettings
    models: tuple[tuple[str, str], ...]
    """Source and digest of each model: the other process loads them itself."""
    kind: str
    workload: str
    contender: str
    timeline: bool


@dataclass(slots=True)
class TaskResult:
    """Scores (runs, episodes) by metric, the audit of the meter, and the record of the first episode."""

    scores: dict[str, Float]
    audit: Audit
    timeline: dict[str, Any] | None


def play(
    settings: EvaluationSettings,
    kind: str,
    loaded: Sequence[models.Loaded],
    progress: Progress,
    *,
    timelines: Sequence[str] | None = None,
    workers: int | None = None,
) -> Played:
    """Play all workloads with all contenders.

    `loaded`: the shipped model first. `timelines`: contenders whose first episode is recorded (None: all). `workers`:
    processes (None: one for each core that this process may use).
    """
    entries = contenders(kind, loaded)
    played = Played(settings, entries, Board(entries, [name_of(name) for name in settings.apart]), Audit())
    for workload in settings.played:
        _note_workload(played, workload)

    known = tuple((model.source, model.digest) for model in loaded)
    tasks = [
        Task(settings, known, kind, workload, entry.name, timelines is None or entry.name in timelines)
        for workload in settings.played
        for entry in entries
    ]
    _collect(played, tasks, progress, workers)
    return played


def _collect(played: Played, tasks: Sequence[Task], progress: Progress, workers: int | None) -> None:
    """Play tasks and fill the board in their order, whichever was done first."""
    labels = {entry.name: entry.label for entry in played.entries}

    def done(number: int) -> None:
        progress(name_of(tasks[number].workload), labels[tasks[number].contender])

    results = side_by_side(play_one, [(task,) for task in tasks], done=done, workers=workers)
    for task, result in zip(tasks, results, strict=True):
        name, blocks = name_of(task.workload), blocks_played(_folds(task.workload, task.settings))
        played.board.add(name, task.contender, result.scores, blocks)
        played.audit.merge(result.audit)
        if result.timeline is not None:
            played.timelines[name, task.contender] = result.timeline


def _note_workload(played: Played, workload: str) -> None:
    folds = _folds(workload, played.settings)
    name = name_of(workload)
    played.workloads.append(describe(folds, played.settings))
    played.digests[name] = digest(*(fold.scenarios for fold in folds))
    policy = next(entry for entry in played.entries if entry.role == "policy")
    for fold in folds:
        manifest = getattr(policy.make(fold.scenarios.rate.astype(np.float64), 0), "manifest", None)
        for reason in filter(None, [] if manifest is None else manifest.outside(fold.scenarios.params())[1]):
            played.outside[name] = reason


@lru_cache(maxsize=32)
def _folds(workload: str, settings: EvaluationSettings) -> list[Fold]:
    return folds_of(workload, settings)


@lru_cache(maxsize=32)
def _entries(kind: str, known: tuple[tuple[str, str], ...], workload: str | None, fold: int | None) -> dict[str, Entry]:
    return {entry.name: entry for entry in contenders(kind, _models(known), workload, fold)}


@lru_cache(maxsize=1)
def _models(known: tuple[tuple[str, str], ...]) -> list[models.Loaded]:
    return [models.load_again(source, digest) for source, digest in known]


def play_one(task: Task) -> TaskResult:
    """Play every fold of a workload with one contender."""
    settings = task.settings
    finished: list[Run] = []
    audit, record = Audit(), None
    level: LevelName = "fluid" if settings.level == "fluid" else "request"
    for fold in _folds(task.workload, settings):
        entry = _entries(task.kind, task.models, task.workload, fold.number)[task.contender]
        scenarios = fold.scenarios
        first = task.timeline and not finished
        done = play_entry(entry, scenarios, name_of(task.workload), audit, level, settings.seed, timeline=first)
        finished.append(done)
        if first:
            record = _first_episode(done, scenarios)
    scores = scores_of(finished, settings.runs)
    scores["goodput_per_cost"] = scores["goodput_rps"] / scores["cost"]
    return TaskResult(scores, audit, record)


def play_entry(
    entry: Entry,
    scenarios: Scenarios,
    workload: str,
    audit: Audit,
    level: LevelName,
    seed: int = 0,
    *,
    timeline: bool = False,
) -> Run:
    """Play one contender on one batch of episodes; `audit` checks the counters of the meter."""
    controller = entry.make(scenarios.rate.astype(np.float64), seed)
    done = run(scenarios, controller, seed, timeline=int(timeline), level=level)
    audit.add(f"{workload}/{entry.name}", done.ledger, scenarios)
    return done


def scores_of(finished: Sequence[Run], runs: int) -> dict[str, Float]:
    """Return the figures (runs, episodes) of the folds of one workload by metric."""
    names = [column.name for column in fields(finished[0].result)]
    return {name: joined([getattr(run.result, name) for run in finished], runs).astype(np.float64) for name in names}


def _first_episode(done: Run, scenarios: Scenarios) -> dict[str, Any]:
    recorded = {name: np.asarray(values)[0] for name, values in done.timeline.items()}
    shown = ("j", "cost", "late_percent")
    return recorded | {name: float(getattr(done.result, name)[0]) for name in shown} | {"rps": scenarios.rps[0]}
