"""Tune one contender on one workload: search at the fluid level, judge the finalists on other draws, keep the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.episodes import digest
from rlscaler_rl.evaluation.tuning.cache import Key, Record, space_digest
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, Tunable
from rlscaler_rl.evaluation.tuning.score import ALL, FOLDS, WORKLOADS, Score, general_j, scores, tune_part
from rlscaler_rl.evaluation.tuning.search import Trial, search
from rlscaler_rl.evaluation.tuning.spaces import Point
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.workloads import HELD_OUT

BUDGET = 300
EPISODES = 12
FINALISTS = 8
FORBIDDEN = 1e6
"""J of settings that the caller rules out."""

JUDGED_SEED = 1
"""Seed of the draws that judge the finalists. The search saw other draws of the tune part."""


@dataclass(frozen=True, slots=True)
class SearchTask:
    """Search of one contender on one workload, here or as a Ray task; equal tasks have equal results."""

    contender: str
    workload: str | None
    """None: all loads that policies learn from."""

    fold: int | None = None
    budget: int = BUDGET
    """Trials at the fluid level."""

    finalists: int = FINALISTS
    """Best trials that are judged again at the request level, beside the settings that the search started from."""

    episodes: int = EPISODES
    traces: Path | None = None

    @property
    def key(self) -> Key:
        return self.contender, self.workload, self.fold

    @property
    def label(self) -> str:
        fold = "" if self.fold is None else f" (fold {self.fold})"
        return f"{CONTENDERS[self.contender].label}, {self.workload or 'all loads'}{fold}"


@dataclass(frozen=True, slots=True)
class Best:
    """Best settings of a search, as the finalists' episodes judge them."""

    point: Point
    j: float
    default_j: float
    """J of the contender's default settings in the same episodes."""

    trials: int


def search_tasks(
    contenders: tuple[str, ...] = (), workloads: tuple[str, ...] = (), **options: object
) -> list[SearchTask]:
    """Return every contender on every workload and on all; the held-out workload once a fold.

    An empty tuple is no restriction.
    """
    chosen = [name for name in (*WORKLOADS, ALL) if not workloads or name in workloads]
    folded = [(name, fold) for name in chosen for fold in (FOLDS if name == HELD_OUT else (None,))]
    return [
        SearchTask(contender, None if name == ALL else name, fold, **options)  # type: ignore[arg-type]
        for contender in CONTENDERS
        if not contenders or contender in contenders
        for name, fold in folded
    ]


def screened(
    tunable: Tunable,
    starts: Sequence[Point],
    screening: Scenarios,
    *,
    budget: int,
    score: Score = general_j,
    seed: int = 0,
    allowed: Callable[[Point], bool] = lambda point: True,
) -> list[Trial]:
    """Search from `starts` at the fluid level: all trials that are `allowed`, the best first."""

    def j(points: Sequence[Point]) -> Float:
        played = scores(tunable, points, screening, "fluid", score).mean(axis=1)
        return np.where([allowed(point) for point in points], played, FORBIDDEN)

    return [trial for trial in search(tunable.space, starts, j, budget, seed) if trial.j < FORBIDDEN]


def best_settings(
    tunable: Tunable,
    starts: Sequence[Point],
    known: Sequence[Point],
    draws: tuple[Scenarios, Scenarios],
    *,
    budget: int,
    finalists: int,
    level: LevelName = "request",
    score: Score = general_j,
    seed: int = 0,
) -> Best:
    """Search from `starts` at the fluid level, judge the finalists and the `known` settings at `level`, keep the best.

    :param draws: two sets of episodes of the tune part; the search sees the first, the second one judges.
    """
    screening, judged = draws
    trials = screened(tunable, starts, screening, budget=budget, score=score, seed=seed)
    # The best of many trials was lucky on its own draws, so others judge it.
    last = [tunable.default, *known, *(trial.point for trial in trials[:finalists])]
    j = scores(tunable, last, judged, level, score).mean(axis=1)
    best = int(np.argmin(j))
    return Best(last[best], float(j[best]), float(j[0]), len(trials))


def tune(task: SearchTask, known: Sequence[Point] = ()) -> Record:
    """Return the best settings for a task.

    :param known: settings to start from beside the contender's own, such as those tuned for all loads.
    """
    contender = CONTENDERS[task.contender]
    draws = (
        tune_part(task.workload, task.fold, task.episodes, traces=task.traces),
        tune_part(task.workload, task.fold, task.episodes, JUDGED_SEED, task.traces),
    )
    starts = [*contender.starts(), *known]
    best = best_settings(contender, starts, known, draws, budget=task.budget, finalists=task.finalists)
    screening, judged = draws
    return Record(
        contender=task.contender,
        workload=task.workload,
        fold=task.fold,
        found=best.point,
        j=round(best.j, 4),
        default_j=round(best.default_j, 4),
        trials=best.trials,
        episodes=len(judged),
        loads=digest(screening)[:12],
        space=space_digest(contender),
    )
