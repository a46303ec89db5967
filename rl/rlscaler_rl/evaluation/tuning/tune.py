"""Tune one contender on one workload: search at the fluid level, judge the finalists on other draws, keep the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlscaler_rl.evaluation.episodes import digest
from rlscaler_rl.evaluation.tuning.cache import Key, Record, space_digest
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, STANDING, Tunable
from rlscaler_rl.evaluation.tuning.networks import Plan, train, trainable, untrained
from rlscaler_rl.evaluation.tuning.score import ALL, FOLDS, WORKLOADS, Score, general_j, scores, tune_part
from rlscaler_rl.evaluation.tuning.search import Trial, search
from rlscaler_rl.evaluation.tuning.spaces import Found
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.training.export import Artefact
from rlscaler_rl.training.finetune import FineTuning
from rlscaler_rl.workloads import HELD_OUT

BUDGET = 300
EPISODES = 12
FINALISTS = 8
TRAINING = FineTuning(
    steps=1_500_000, seconds=math.inf, learning_rate=5e-4, batch_size=2048, entropy=0.003, candidates=12
)
INTERVALS = (30, 15)
"""Seconds between the actions of the networks that are trained under the default spec."""

PLANS = len(INTERVALS) + 2
"""Networks that are trained for a workload: these, one under the best spec so far, and one on the tuned rule."""

RULE = "rule"
"""Tuned before any contender that trains."""

JUDGED_SEED = 1
"""The finalists are judged on other draws from the tune part than those that made them finalists."""


@dataclass(frozen=True, slots=True)
class SearchTask:
    """Everything that decides what is found for one contender on one workload, here or as a Ray task."""

    contender: str
    workload: str | None
    fold: int | None = None
    budget: int = BUDGET
    """Trials at the fluid level."""

    finalists: int = FINALISTS
    """So many of the best trials are judged again at the request level, beside where the search started."""

    episodes: int = EPISODES
    traces: Path | None = None
    training: FineTuning = TRAINING
    """How the networks of a contender that trains are fine-tuned."""

    @property
    def key(self) -> Key:
        return self.contender, self.workload, self.fold

    @property
    def label(self) -> str:
        fold = "" if self.fold is None else f" (fold {self.fold})"
        return f"{CONTENDERS[self.contender].label}, {self.workload or 'all loads'}{fold}"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The record for the cache, and the network that was trained for it, if any."""

    record: Record
    artefact: Artefact | None = None


@dataclass(frozen=True, slots=True)
class Best:
    """The best settings of a search, as the finalists' episodes judge them."""

    found: Found
    j: float
    default_j: float
    """J of the contender's default settings in the same episodes."""

    trials: int


def search_tasks(
    contenders: tuple[str, ...] = (), workloads: tuple[str, ...] = (), **options: object
) -> list[SearchTask]:
    """Every contender on every workload and on all; the held-out workload once a fold. Empty: no restriction."""
    chosen = [name for name in (*WORKLOADS, ALL) if not workloads or name in workloads]
    folded = [(name, fold) for name in chosen for fold in (FOLDS if name == HELD_OUT else (None,))]
    return [
        SearchTask(contender, None if name == ALL else name, fold, **options)  # type: ignore[arg-type]
        for contender in CONTENDERS
        if not contenders or contender in contenders
        for name, fold in folded
    ]


def best_settings(
    tunable: Tunable,
    starts: Sequence[Found],
    known: Sequence[Found],
    draws: tuple[Scenarios, Scenarios],
    *,
    budget: int,
    finalists: int,
    level: LevelName = "request",
    score: Score = general_j,
    seed: int = 0,
) -> Best:
    """Search from `starts` at the fluid level, judge the best so many and what was `known` at `level`, keep the best.

    `draws`: two sets of episodes of the tune part; the search sees the first, the second one judges.
    """
    screening, judged = draws
    trials = searched(tunable, starts, screening, budget, score, seed)
    last = [tunable.default, *known, *(trial.found for trial in trials[:finalists])]
    j = scores(tunable, last, judged, level, score).mean(axis=1)
    best = int(np.argmin(j))
    return Best(last[best], float(j[best]), float(j[0]), len(trials))


def searched(
    tunable: Tunable,
    starts: Sequence[Found],
    screening: Scenarios,
    budget: int,
    score: Score = general_j,
    seed: int = 0,
) -> list[Trial]:
    """All trials at the fluid level, the best first."""
    return search(
        tunable.space,
        starts,
        lambda found: scores(tunable, found, screening, "fluid", score).mean(axis=1),
        budget,
        seed,
    )


def tune(task: SearchTask, known: Sequence[Found] = (), rule: Found | None = None) -> SearchResult:
    """The best settings for a task, and the network that they are around where one was trained for the workload.

    `known`: settings to start from beside the contender's own, such as those tuned for all loads. `rule`: the settings
    of the forecast rule for the workload, which one of the networks is put on.
    """
    contender = CONTENDERS[task.contender]
    starts = [*contender.starts(), *known]
    draws = (
        tune_part(task.workload, task.fold, task.episodes, traces=task.traces),
        tune_part(task.workload, task.fold, task.episodes, JUDGED_SEED, task.traces),
    )
    artefact = None
    if contender.trains and task.workload is not None and trainable(task.workload):
        best, artefact = _with_networks(task, task.workload, starts, known, rule, draws)
    else:
        best = best_settings(contender, starts, known, draws, budget=task.budget, finalists=task.finalists)
    screening, judged = draws
    record = Record(
        contender=task.contender,
        workload=task.workload,
        fold=task.fold,
        found=best.found,
        j=round(best.j, 4),
        default_j=round(best.default_j, 4),
        trials=best.trials,
        episodes=len(judged),
        loads=digest(screening)[:12],
        space=space_digest(contender),
        network=artefact.manifest.digest if artefact else None,
    )
    return SearchResult(record, artefact)


def _with_networks(
    task: SearchTask,
    workload: str,
    starts: Sequence[Found],
    known: Sequence[Found],
    rule: Found | None,
    draws: tuple[Scenarios, Scenarios],
) -> tuple[Best, Artefact | None]:
    """Search around the general network, train networks for the workload, and search around each of them.

    The trials are shared equally. Every network is also judged under the spec that it was trained under, and one on a
    rule also as it was before its training.
    """
    contender, (screening, judged) = CONTENDERS[task.contender], draws
    networks = PLANS - (rule is None)
    budget = max(task.budget // (1 + networks), 1)
    first = max(task.budget - networks * budget, 1)
    played: list[tuple[Tunable, Artefact | None]] = [(contender, None)]
    trials = [(trial, 0) for trial in searched(contender, starts, screening, first)]
    finalists = [(contender.default, 0), *((found, 0) for found in known)]
    best = trials[0][0].found
    for plan in _plans(contender, best, rule):
        made = train(workload, plan, task.training, traces=task.traces)
        played.append((contender.around(made.actor()), made))
        own = {name: plan.found[name] for name in contender.space}
        finalists.append((own, len(played) - 1))
        around_it = searched(played[-1][0], [own, *starts, best], screening, budget)
        trials += [(trial, len(played) - 1) for trial in around_it]
        if plan.on_rule:
            made = untrained(workload, plan, task.training)
            played.append((contender.around(made.actor()), made))
            finalists.append((own, len(played) - 1))
    trials.sort(key=lambda one: one[0].j)
    finalists += [(trial.found, which) for trial, which in trials[: task.finalists]]
    j = [float(scores(played[which][0], [found], judged, "request").mean()) for found, which in finalists]
    found, which = finalists[int(np.argmin(j))]
    return Best(found, min(j), j[0], len(trials)), played[which][1]


def _plans(contender: Tunable, best: Found, rule: Found | None) -> list[Plan]:
    """Under the default spec at either interval, over standing capacity of every size; under what was best so far;
    and on the tuned rule, under its spec."""
    found = [{**contender.default, "interval": interval} for interval in INTERVALS]
    plans = [Plan(seed, one, STANDING) for seed, one in enumerate(found, start=1)]
    plans.append(Plan(len(plans) + 1, best))
    return plans if rule is None else [*plans, Plan(len(plans) + 1, rule, on_rule=True)]
