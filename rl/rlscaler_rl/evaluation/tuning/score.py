"""Score of settings: J on the tune part of a workload, thousands of settings x episodes as rows of one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.tuning.contenders import Tunable
from rlscaler_rl.evaluation.tuning.spaces import Point
from rlscaler_rl.simulation.episode import Result, run
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.workloads import HELD_OUT, PATTERNS, TRACES, Part, episodes

ALL = "all"
"""The name on the command line of one setting for all loads."""

WORKLOADS = (*PATTERNS, *TRACES)
"""Each gets settings of its own, the held-out one separately for each fold."""

FOLDS = (0, 1)

LEARNED = tuple(name for name in WORKLOADS if name != HELD_OUT)
"""Loads that one setting for all loads is tuned on: those that policies are trained on."""

Score = Callable[[Result], Float]
"""Figures of N episodes -> (N,) J, lower is better."""

ROWS = 4096
"""Episodes played at once; more only cost memory."""

PROBE_EPISODES = 4


def tune_part(
    workload: str | None, fold: int | None, count: int, seed: int = 0, traces: Path | None = None
) -> Scenarios:
    """Episodes to choose settings on: about `count` of one workload; for None, of all that policies learn from, each
    as often. `fold`: the fold of the held-out workload that the settings will be judged on.
    """
    if workload is not None:
        return episodes(workload, Part.TUNE, runs=1, episodes=count, seed=seed, traces=traces, fold=fold)
    # Half as many episodes of each load: with eight loads the batch is still four times that of one.
    share = max(count // 2, 1)
    each = [episodes(name, Part.TUNE, runs=1, episodes=share, seed=seed, traces=traces) for name in LEARNED]
    return Scenarios.concat(each)


def general_j(played: Result) -> Float:
    """(N,) J with the general weights of cost and lateness."""
    return played.j


def scores(
    tunable: Tunable,
    points: Sequence[Point],
    scenarios: Scenarios,
    level: LevelName,
    score: Score = general_j,
) -> Float:
    """(K, N) J of every setting in every episode; settings of one action interval are played together."""
    n, j = len(scenarios), np.empty((len(points), len(scenarios)))
    at_once = max(ROWS // n, 1)
    intervals = [point.get("interval") for point in points]
    # A batch has one action interval, so settings of different ones are played apart.
    for interval in dict.fromkeys(intervals):
        alike = [index for index, other in enumerate(intervals) if other == interval]
        for first in range(0, len(alike), at_once):
            some = alike[first : first + at_once]
            rows = scenarios.take(np.tile(np.arange(n), len(some)))
            controller = tunable.controllers([points[index] for index in some], rows.rate.astype(np.float64), n)
            j[some] = score(run(rows, controller, level=level).result).reshape(len(some), n)
    return j


def probe(tunable: Tunable) -> list[float]:
    """J of the default settings in a few episodes at both levels: moves when the meter or the contender changes."""
    each = [episodes(name, Part.TUNE, runs=1, episodes=1) for name in PATTERNS[:PROBE_EPISODES]]
    scenarios = Scenarios.concat(each)
    levels: tuple[LevelName, ...] = ("fluid", "request")
    by_level = [scores(tunable, [tunable.default], scenarios, level)[0] for level in levels]
    return [round(float(j), 4) for j in np.concatenate(by_level)]
