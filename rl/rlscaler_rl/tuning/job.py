"""One contender on one workload: the unit of work, here or as a Ray task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlscaler_rl.tuning.cache import Key, Record, space_digest
from rlscaler_rl.tuning.contenders import CONTENDERS
from rlscaler_rl.tuning.score import FOLDS, WORKLOADS, digest, scores, tune_part
from rlscaler_rl.tuning.search import search
from rlscaler_rl.tuning.spaces import Found
from rlscaler_rl.workloads import HELD_OUT

ALL = "all"
"""On the command line: one setting for all loads."""


BUDGET = 300
EPISODES = 12
FINALISTS = 8
JUDGED_SEED = 1
"""The finalists are judged on other draws from the tune part than those that made them finalists."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that decides what is found."""

    contender: str
    workload: str | None
    fold: int | None = None
    budget: int = BUDGET
    """Trials at the fluid level."""

    finalists: int = FINALISTS
    """Of them, the best so many are judged again at the request level, beside where the search started."""

    episodes: int = EPISODES
    traces: Path | None = None

    @property
    def key(self) -> Key:
        return self.contender, self.workload, self.fold

    @property
    def label(self) -> str:
        fold = "" if self.fold is None else f" (fold {self.fold})"
        return f"{CONTENDERS[self.contender].label}, {self.workload or 'all loads'}{fold}"


def tune(job: Job, known: Sequence[Found] = ()) -> Record:
    """Search at the fluid level, judge the best, the default and what was `known` at the request level, keep the best.

    `known`: settings to start from beside the contender's own, such as those tuned for all loads.
    """
    tunable = CONTENDERS[job.contender]
    screening = tune_part(job.workload, job.fold, job.episodes, traces=job.traces)
    trials = search(
        tunable.space,
        [*tunable.starts(), *known],
        lambda found: scores(tunable, found, screening, "fluid").mean(axis=1),
        job.budget,
    )
    judged = tune_part(job.workload, job.fold, job.episodes, JUDGED_SEED, job.traces)
    finalists = [tunable.default, *known, *(trial.found for trial in trials[: job.finalists])]
    j = scores(tunable, finalists, judged, "request").mean(axis=1)
    best = int(np.argmin(j))
    return Record(
        contender=job.contender,
        workload=job.workload,
        fold=job.fold,
        found=finalists[best],
        j=round(float(j[best]), 4),
        default_j=round(float(j[0]), 4),
        trials=len(trials),
        episodes=len(judged),
        loads=digest(screening)[:12],
        space=space_digest(tunable),
    )


def jobs(contenders: tuple[str, ...] = (), workloads: tuple[str, ...] = (), **options: object) -> list[Job]:
    """Every contender on every workload and on all; the held-out workload once a fold. Empty: no restriction."""
    chosen = [name for name in (*WORKLOADS, ALL) if not workloads or name in workloads]
    folded = [(name, fold) for name in chosen for fold in (FOLDS if name == HELD_OUT else (None,))]
    return [
        Job(contender, None if name == ALL else name, fold, **options)  # type: ignore[arg-type]
        for contender in CONTENDERS
        if not contenders or contender in contenders
        for name, fold in folded
    ]
