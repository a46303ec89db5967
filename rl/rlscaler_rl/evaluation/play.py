"""Play every workload with every contender, on all cores, and collect scores, counters and pictures' raw material."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, fields
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation import equal_cost, models
from rlscaler_rl.evaluation.board import Board
from rlscaler_rl.evaluation.contenders import contenders
from rlscaler_rl.evaluation.invariants import Audit
from rlscaler_rl.evaluation.scenes import Stage, blocks_played, describe, digest, joined, name_of, stages
from rlscaler_rl.evaluation.schema import Workload
from rlscaler_rl.evaluation.settings import Settings
from rlscaler_rl.evaluation.tuning.lineup import Entry
from rlscaler_rl.simulation.episode import Run, run
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios

Progress = Callable[[str, str], None]


@dataclass(slots=True)
class Played:
    """Everything that reports and plots are made of."""

    settings: Settings
    entries: list[Entry]
    board: Board
    audit: Audit
    workloads: list[Workload] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    timelines: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """(workload, contender) -> second by second, of the first episode of the first run: never a chosen one."""

    outside: dict[str, str] = field(default_factory=dict)
    """workload -> why it is outside the model's trained envelope."""


@dataclass(frozen=True, slots=True)
class Task:
    """One contender on one workload; small, because it travels to another process."""

    settings: Settings
    models: tuple[tuple[str, str], ...]
    """Source and digest of each: the other process loads them itself."""
    kind: str
    workload: str
    contender: str
    timeline: bool
    cost: float | None = None
    """What a static pool of equal cost may spend."""


@dataclass(slots=True)
class Outcome:
    """What comes back: scores (runs, episodes) per metric, the audit of the meter, the first episode's record."""

    scores: dict[str, Float]
    audit: Audit
    timeline: dict[str, Any] | None


def play(
    settings: Settings,
    kind: str,
    loaded: Sequence[models.Loaded],
    progress: Progress,
    *,
    timelines: Sequence[str] | None = None,
    workers: int | None = None,
) -> Played:
    """All workloads with all contenders; `timelines` names those whose first episode is recorded (None: all).

    `loaded`: the shipped model first. The static pools of equal cost come last: they need the policy's. `workers` None:
    one per core this process may use.
    """
    everybody = contenders(kind, loaded)
    played = Played(settings, everybody, Board(everybody, [name_of(name) for name in settings.apart]), Audit())
    for workload in settings.played:
        _note_workload(played, workload)
    common = {"settings": settings, "models": tuple((one.source, one.digest) for one in loaded), "kind": kind}
    with _pool(workers) as do:
        static = [entry.name for entry in everybody if entry.role == equal_cost.ROLE]
        names = [entry.name for entry in everybody if entry.name not in static]
        _collect(played, do, _tasks(common, settings, names, timelines), progress)
        policy = played.board.policy.name
        costs = {name: played.board.mean(name_of(name), policy, "cost") for name in settings.played}
        _collect(played, do, _tasks(common, settings, static, timelines, costs), progress)
    return played


def _tasks(
    common: dict[str, Any],
    settings: Settings,
    names: Sequence[str],
    timelines: Sequence[str] | None,
    costs: dict[str, float] | None = None,
) -> Iterator[Task]:
    for workload in settings.played:
        if costs is not None and workload in settings.apart:
            continue
        for name in names:
            recorded = timelines is None or name in timelines
            cost = costs[workload] if costs else None
            yield Task(**common, workload=workload, contender=name, timeline=recorded, cost=cost)


Do = Callable[[Sequence[Task]], Iterator[tuple[Task, Outcome]]]


class _pool:  # noqa: N801 - used as a function
    """Tasks in processes of their own, or here where one core is all there is."""

    def __init__(self, workers: int | None) -> None:
        count = workers or len(os.sched_getaffinity(0))
        # Not forked: threads of ONNX Runtime do not survive a fork.
        self.pool = ProcessPoolExecutor(count, mp_context=get_context("spawn")) if count > 1 else None

    def __enter__(self) -> Do:
        return self._here if self.pool is None else self._there

    def __exit__(self, *error: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def _here(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Outcome]]:
        for task in tasks:
            yield task, play_one(task)

    def _there(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Outcome]]:
        assert self.pool is not None
        waiting: dict[Future[Outcome], Task] = {self.pool.submit(play_one, task): task for task in tasks}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _collect(played: Played, do: Do, tasks: Iterator[Task], progress: Progress) -> None:
    """The board is filled in the order of the tasks, whichever was done first."""
    listed = list(tasks)
    labels = {entry.name: entry.label for entry in played.entries}
    found = {}
    for task, outcome in do(listed):
        progress(name_of(task.workload), labels[task.contender])
        found[task] = outcome
    for task in listed:
        outcome, name = found[task], name_of(task.workload)
        blocks = blocks_played(_stages(task.workload, task.settings))
        played.board.add(name, task.contender, outcome.scores, blocks)
        played.audit.merge(outcome.audit)
        if outcome.timeline is not None:
            played.timelines[name, task.contender] = outcome.timeline


def _note_workload(played: Played, workload: str) -> None:
    made = _stages(workload, played.settings)
    name = name_of(workload)
    played.workloads.append(describe(made, played.settings))
    played.digests[name] = digest(made)
    policy = next(entry for entry in played.entries if entry.role == "policy")
    for stage in made:
        manifest = getattr(policy.make(stage.scenarios.rate.astype(np.float64), 0), "manifest", None)
        for reason in filter(None, [] if manifest is None else manifest.outside(stage.scenarios.params())[1]):
            played.outside[name] = reason


@lru_cache(maxsize=32)
def _stages(workload: str, settings: Settings) -> list[Stage]:
    return stages(workload, settings)


@lru_cache(maxsize=32)
def _entries(kind: str, known: tuple[tuple[str, str], ...], workload: str | None, fold: int | None) -> dict[str, Entry]:
    return {entry.name: entry for entry in contenders(kind, _models(known), workload, fold)}


@lru_cache(maxsize=1)
def _models(known: tuple[tuple[str, str], ...]) -> list[models.Loaded]:
    return [models.load_again(source, digest) for source, digest in known]


def play_one(task: Task) -> Outcome:
    """Every stage of a workload with one contender."""
    settings = task.settings
    finished: list[Run] = []
    audit, record = Audit(), None
    level: LevelName = "fluid" if settings.level == "fluid" else "request"
    for stage in _stages(task.workload, settings):
        entry = _entries(task.kind, task.models, task.workload, stage.fold)[task.contender]
        scenarios = _fitting(stage.scenarios, task)
        controller = entry.make(scenarios.rate.astype(np.float64), settings.seed)
        first = task.timeline and not finished
        done = run(scenarios, controller, settings.seed, timeline=first, level=level)
        audit.add(f"{name_of(task.workload)}/{task.contender}", done.ledger, scenarios)
        finished.append(done)
        if first:
            record = _first_episode(done, scenarios)
    return Outcome(_scores(finished, settings.runs), audit, record)


def _fitting(scenarios: Scenarios, task: Task) -> Scenarios:
    if task.cost is None:
        return scenarios
    return equal_cost.scenarios_at(scenarios, equal_cost.POOLS[task.contender], task.cost)


def _scores(finished: list[Run], runs: int) -> dict[str, Float]:
    names = [column.name for column in fields(finished[0].result)]
    scores = {name: joined([getattr(one.result, name) for one in finished], runs).astype(np.float64) for name in names}
    scores["goodput_per_cost"] = scores["goodput_rps"] / scores["cost"]
    return scores


def _first_episode(done: Run, scenarios: Scenarios) -> dict[str, Any]:
    recorded = {name: np.asarray(values)[0] for name, values in done.timeline.items()}
    shown = ("j", "cost", "late_percent")
    return recorded | {name: float(getattr(done.result, name)[0]) for name in shown} | {"rps": scenarios.rps[0]}
