"""One contender on one workload: the unit of work, here or as a Ray task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlscaler_rl.evaluation.tuning.cache import Key, Record, space_digest
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, STANDING, Tunable
from rlscaler_rl.evaluation.tuning.networks import Artefact, Plan, train, trainable, untrained
from rlscaler_rl.evaluation.tuning.score import FOLDS, WORKLOADS, digest, scores, tune_part
from rlscaler_rl.evaluation.tuning.search import Trial, search
from rlscaler_rl.evaluation.tuning.spaces import Found
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.training.finetune_settings import FineTuning
from rlscaler_rl.workloads import HELD_OUT

ALL = "all"
"""On the command line: one setting for all loads."""


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
"""Tuned before whoever trains."""

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
    training: FineTuning = TRAINING
    """Of a contender that trains."""

    @property
    def key(self) -> Key:
        return self.contender, self.workload, self.fold

    @property
    def label(self) -> str:
        fold = "" if self.fold is None else f" (fold {self.fold})"
        return f"{CONTENDERS[self.contender].label}, {self.workload or 'all loads'}{fold}"


@dataclass(frozen=True, slots=True)
class Tuning:
    """What came of a job."""

    record: Record
    artefact: Artefact | None = None
    """The network that was trained for it."""


def tune(job: Job, known: Sequence[Found] = (), rule: Found | None = None) -> Tuning:
    """Search at the fluid level, judge the best, the default, what was `known` and every trained network under the spec
    that it was trained under (one on a rule also before its training) at the request level, keep the best.

    `known`: settings to start from beside the contender's own, such as those tuned for all loads. A contender that
    trains spends a part of the trials around the general network, then trains networks for the workload and spends an
    equal part around each of them. `rule`: the settings of the forecast rule for the workload, which one of the
    networks is put on.
    """
    contender = CONTENDERS[job.contender]
    screening = tune_part(job.workload, job.fold, job.episodes, traces=job.traces)
    starts = [*contender.starts(), *known]
    played: list[tuple[Tunable, Artefact | None]] = [(contender, None)]
    trains = contender.trains and job.workload is not None and trainable(job.workload)
    networks = PLANS - (rule is None) if trains else 0
    budget = max(job.budget // (1 + networks), 1)
    first = max(job.budget - networks * budget, 1)
    trials = [(trial, 0) for trial in searched(contender, starts, screening, first)]
    finalists = [(contender.default, 0), *((found, 0) for found in known)]
    if trains and job.workload is not None:
        best = trials[0][0].found
        for plan in _plans(contender, best, rule):
            made = train(job.workload, plan, job.training, traces=job.traces)
            played.append((contender.around(made.actor()), made))
            own = {name: plan.found[name] for name in contender.space}
            finalists.append((own, len(played) - 1))
            around_it = searched(played[-1][0], [own, *starts, best], screening, budget)
            trials += [(trial, len(played) - 1) for trial in around_it]
            if plan.on_rule:
                made = untrained(job.workload, plan, job.training)
                played.append((contender.around(made.actor()), made))
                finalists.append((own, len(played) - 1))
    trials.sort(key=lambda one: one[0].j)
    finalists += [(trial.found, which) for trial, which in trials[: job.finalists]]
    judged = tune_part(job.workload, job.fold, job.episodes, JUDGED_SEED, job.traces)
    j = [judged_by_requests(played[which][0], found, judged) for found, which in finalists]
    found, which = finalists[int(np.argmin(j))]
    artefact = played[which][1]
    record = Record(
        contender=job.contender,
        workload=job.workload,
        fold=job.fold,
        found=found,
        j=round(min(j), 4),
        default_j=round(j[0], 4),
        trials=len(trials),
        episodes=len(judged),
        loads=digest(screening)[:12],
        space=space_digest(contender),
        network=artefact.manifest.digest if artefact else None,
    )
    return Tuning(record, artefact)


def _plans(contender: Tunable, best: Found, rule: Found | None) -> list[Plan]:
    """Under the default spec at either interval, over standing capacity of every size; under what was best so far;
    and on the tuned rule, under its spec."""
    found = [{**contender.default, "interval": interval} for interval in INTERVALS]
    plans = [Plan(seed, one, STANDING) for seed, one in enumerate(found, start=1)]
    plans.append(Plan(len(plans) + 1, best))
    return plans if rule is None else [*plans, Plan(len(plans) + 1, rule, on_rule=True)]


def searched(tunable: Tunable, starts: Sequence[Found], screening: Scenarios, budget: int) -> list[Trial]:
    """All trials at the fluid level, the best first."""
    return search(tunable.space, starts, lambda found: scores(tunable, found, screening, "fluid").mean(axis=1), budget)


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


def judged_by_requests(tunable: Tunable, found: Found, judged: Scenarios) -> float:
    """Mean J at the request level."""
    return float(scores(tunable, [found], judged, "request").mean())
