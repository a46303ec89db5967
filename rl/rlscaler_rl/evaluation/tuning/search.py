"""The search: a given number of trials, asked for and answered in batches.

First the settings that are known already (the contender's default), then a fifth of the trials spread evenly over the
space (Sobol), then batches of which a quarter comes from a tree-structured Parzen estimator (TPE) and the rest are
children of the best so far. A space with no more points than trials is played whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.tuning.spaces import Point, Space

BATCH = 20
"""Trials that are proposed together; smaller batches learn more from each other, larger ones simulate faster."""

SPREAD = 1 / 5
# Best J after 300 trials of the forecast rule on spike and random: TPE alone 6.59 and 6.36, half and half 5.89 and
# 5.76, children alone 5.60 and 5.75; NSGA-II found less with 400 trials.
CHILDREN = 3 / 4
PARENTS = 10
"""Children are made of so many of the best trials, the better ones more often."""

CROSSOVER = 0.3
"""Share of a child's values that come from its second parent."""

MUTATION = 0.3
"""Share of a child's values that move, by a normal step of `STEP` of their range; unordered values are drawn anew."""

STEP = 0.12
"""Share of the trials that are spread evenly."""


@dataclass(frozen=True, slots=True)
class Trial:
    point: Point
    j: float


Score = Callable[[Sequence[Point]], Float]
"""Settings -> (K,) J, lower is better."""


Rounds = Generator[list[Point], Float, list[Trial]]
"""A search that hands out batches of settings, is sent the J (K,) of each batch, and returns its trials."""


def search(space: Space, starts: Sequence[Point], score: Score, budget: int, seed: int = 0) -> list[Trial]:
    """All trials, the best first."""
    return search_each(space, starts, lambda batches: [score(batches[0])], budget, 1, seed)[0]


def search_each(
    space: Space,
    starts: Sequence[Point],
    score: Callable[[list[list[Point]]], Sequence[Float]],
    budget: int,
    count: int,
    seed: int = 0,
) -> list[list[Trial]]:
    """Search `count` times, each for scores of its own: all trials of each, the best first.

    The searches go on side by side: `score` is asked for one batch of each at once, all of one size.
    """
    searches = [_rounds(space, starts, budget, seed) for _ in range(count)]
    batches = [next(rounds) for rounds in searches]
    done: list[list[Trial]] = []
    while not done:
        scores = score(batches)
        batches = []
        for rounds, j in zip(searches, scores, strict=True):
            try:
                batches.append(rounds.send(j))
            except StopIteration as end:
                done.append(end.value)
    return [sorted(trials, key=lambda trial: trial.j) for trials in done]


def _rounds(space: Space, starts: Sequence[Point], budget: int, seed: int) -> Rounds:
    points = grid(space, budget)
    if points is None:
        return (yield from _sampled(space, starts, budget, seed))
    scores = yield points
    return [Trial(point, float(j)) for point, j in zip(points, scores, strict=True)]


def grid(space: Space, budget: int) -> list[Point] | None:
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


def _sampled(space: Space, starts: Sequence[Point], budget: int, seed: int) -> Rounds:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        spread = optuna.samplers.QMCSampler(seed=seed, warn_independent_sampling=False)
    study = optuna.create_study(sampler=spread)
    # Known settings first: no search ends with worse ones than it starts from.
    for start in starts[:budget]:
        study.enqueue_trial(start)
    yield from _played(study, space, min(len(starts), budget))
    yield from _played(study, space, min(round(SPREAD * budget), budget - len(study.trials)))
    # The Sobol points stand for the random trials that TPE would start with.
    study.sampler = optuna.samplers.TPESampler(n_startup_trials=1, seed=seed)
    rng = np.random.default_rng(seed)
    while left := budget - len(study.trials):
        best = sorted(study.trials, key=lambda trial: trial.value or 0.0)[:PARENTS]
        for _ in range(round(CHILDREN * min(left, BATCH))):
            study.enqueue_trial(child(space, [trial.params for trial in best], rng))
        yield from _played(study, space, min(left, BATCH))
    return [Trial(dict(trial.params), float(trial.value or 0.0)) for trial in study.trials]


def _played(study: optuna.Study, space: Space, count: int) -> Generator[list[Point], Float, None]:
    trials = [study.ask(space) for _ in range(count)]
    if not trials:
        return
    scores = yield [trial.params for trial in trials]
    for trial, j in zip(trials, scores, strict=True):
        study.tell(trial, float(j))


def child(space: Space, parents: Sequence[Point], rng: np.random.Generator) -> Point:
    """A point of the space between two of the parents, the best first, with some of its values moved."""
    # The square draws the best quarter of the parents half of the time.
    first, second = (parents[int(len(parents) * rng.random() ** 2)] for _ in range(2))
    mixed = {name: (second if rng.random() < CROSSOVER else first)[name] for name in space}
    return {
        name: _moved(space[name], value, rng) if rng.random() < MUTATION else value for name, value in mixed.items()
    }


def _moved(distribution: BaseDistribution, value: Any, rng: np.random.Generator) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[rng.integers(len(distribution.choices))]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = distribution.low, distribution.high
    # Where a range spans orders of magnitude a step is a factor, else a share of the range.
    if distribution.log:
        return float(np.clip(value * (high / low) ** (STEP * rng.standard_normal()), low, high))
    moved = float(np.clip(value + STEP * (high - low) * rng.standard_normal(), low, high))
    if isinstance(distribution, FloatDistribution):
        return moved
    return int(low + distribution.step * round((moved - low) / distribution.step))
