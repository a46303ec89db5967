"""The search: a given number of trials, asked for and answered in batches.

First the settings that are known already (the contender's default), then a fifth of the trials spread evenly over the
space (Sobol), then batches from a tree-structured Parzen estimator (TPE). A space with no more points than trials is
played whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution

from rlscaler_rl.decision.types import Float
from rlscaler_rl.tuning.spaces import Found, Space

BATCH = 20
"""Trials that are proposed together; smaller batches learn more from each other, larger ones simulate faster."""

SPREAD = 1 / 5
"""Share of the trials that are spread evenly."""


@dataclass(frozen=True, slots=True)
class Trial:
    found: Found
    j: float


Score = Callable[[Sequence[Found]], Float]
"""Settings -> (K,) J, lower is better."""


def search(space: Space, starts: Sequence[Found], score: Score, budget: int, seed: int = 0) -> list[Trial]:
    """All trials, the best first."""
    points = grid(space, budget)
    if points is not None:
        trials = [Trial(found, float(j)) for found, j in zip(points, score(points), strict=True)]
    else:
        trials = _sampled(space, starts, score, budget, seed)
    return sorted(trials, key=lambda trial: trial.j)


def grid(space: Space, budget: int) -> list[Found] | None:
    """Every point of a space that has no more than `budget`; else None."""
    axes = []
    for distribution in space.values():
        if isinstance(distribution, CategoricalDistribution):
            axes.append(list(distribution.choices))
        elif isinstance(distribution, IntDistribution):
            axes.append(list(range(distribution.low, distribution.high + 1, distribution.step)))
        else:
            return None
    if np.prod([len(axis) for axis in axes]) > budget:
        return None
    return [dict(zip(space, point, strict=True)) for point in product(*axes)]


def _sampled(space: Space, starts: Sequence[Found], score: Score, budget: int, seed: int) -> list[Trial]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        spread = optuna.samplers.QMCSampler(seed=seed, warn_independent_sampling=False)
    study = optuna.create_study(sampler=spread)
    for start in starts[:budget]:
        study.enqueue_trial(start)
    _play(study, space, score, min(len(starts), budget))
    _play(study, space, score, min(round(SPREAD * budget), budget - len(study.trials)))
    study.sampler = optuna.samplers.TPESampler(n_startup_trials=1, seed=seed)
    while left := budget - len(study.trials):
        _play(study, space, score, min(left, BATCH))
    return [Trial(dict(trial.params), float(trial.value or 0.0)) for trial in study.trials]


def _play(study: optuna.Study, space: Space, score: Score, count: int) -> None:
    trials = [study.ask(space) for _ in range(count)]
    if not trials:
        return
    for trial, j in zip(trials, score([trial.params for trial in trials]), strict=True):
        study.tell(trial, float(j))
