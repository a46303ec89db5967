"""Settings of autoscalers and constant replicas, chosen on the past of each load.

The loads are searched side by side, since a tick of hundreds of days takes little longer than one of two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float
from rlscaler_rl.baselines.simple import Static, StaticSettings
from rlscaler_rl.evaluation.days.contenders import Contender, Role
from rlscaler_rl.evaluation.days.play import Days, Job, played_side_by_side
from rlscaler_rl.evaluation.processes import cores
from rlscaler_rl.evaluation.tuning import spaces
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, Tunable
from rlscaler_rl.evaluation.tuning.search import search_each
from rlscaler_rl.evaluation.tuning.spaces import Point
from rlscaler_rl.simulation.episode import Result
from rlscaler_rl.simulation.levels import LevelName

TUNABLE: Mapping[str, Tunable] = {
    "hpa": CONTENDERS["hpa"],
    "keda": CONTENDERS["keda"],
    "rule": replace(
        CONTENDERS["rule"],
        space=spaces.KNOWN_RULE,
        default=spaces.KNOWN_RULE_DEFAULT,
        settings=spaces.known_rule,
    ),
}
"""Contenders that are tuned on days. The forecast rule knows the past of its service there."""

TRIALS = 60
"""Settings that are tried of each contender on each load."""

ROWS, FEWEST_ROWS = 320, 64
"""Days that are played at once, at most, and at least where a process is to be worth its start."""

GRID = 10
"""Most steps that are tried of each pool's constant replicas."""

Make = Callable[[list[Point], Float], Any]
"""(settings of each of N days, their rates (N, T)) -> a controller of N days."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A contender, with the best settings on the past of each load."""

    name: str
    label: str
    role: Role
    make: Make
    settings: dict[str, Point]

    def on(self, load: str) -> Contender:
        """Return the contender as it is set for one load."""
        best = self.settings[load]
        return Contender(self.name, self.label, self.role, partial(_with, self.make, best))

    def play(self, days: Days, level: LevelName = "fluid") -> Result:
        """Play each day with the settings chosen for its load."""
        return _play(days, np.arange(len(days.loads)), [self.settings[load] for load in days.loads], self.make, level)


def tuned(name: str, past: Days, *, trials: int = TRIALS, seed: int = 0) -> Chosen:
    """Choose for each load the settings of least mean J on its days in `past`, of `trials` that are tried on each."""
    tunable, loads, make = TUNABLE[name], list(dict.fromkeys(past.loads)), partial(_controllers, name)
    searches = search_each(
        tunable.space,
        tunable.starts(),
        lambda batches: _mean_j(past, loads, batches, make),
        trials,
        len(loads),
        seed,
    )
    best = {load: trials_of_load[0].point for load, trials_of_load in zip(loads, searches, strict=True)}
    role: Role = "policy" if name == "rule" else "tuned"
    return Chosen(f"{name}_tuned", f"{tunable.label}, tuned on its past", role, make, best)


def cheapest_static(past: Days) -> Chosen:
    """Choose for each load the constant replicas of least mean J on its days in `past`, within the limits."""
    high, low = past.scenarios.max_replicas.max(axis=0), past.scenarios.min_replicas.min(axis=0)
    gpu, cpu = (np.linspace(0.0, 1.0, min(int(high[p] - low[p]), GRID) + 1) for p in range(2))
    pairs = [{"gpu": float(values), "cpu": float(other)} for values in gpu for other in cpu]
    loads = list(dict.fromkeys(past.loads))
    j = _mean_j(past, loads, [pairs] * len(loads), _static)
    best = {load: pairs[int(np.argmin(values))] for load, values in zip(loads, j, strict=True)}
    return Chosen("static", "Best constant replicas", "tuned", _static, best)


def _controllers(name: str, many: list[Point], rate: Float) -> Any:
    return TUNABLE[name].controllers(many, rate, 1)


def _with(make: Make, point: Point, rate: Float) -> Any:
    return make([point] * len(rate), rate)


def _static(many: list[Point], rate: Float) -> Static:
    return Static(StaticSettings(np.array([(point["gpu"], point["cpu"]) for point in many])))


def _mean_j(past: Days, loads: Sequence[str], batches: Sequence[Sequence[Point]], make: Make) -> list[Float]:
    """Return for each load the mean J (K,) over its days of the K settings that are tried on it."""
    rows = [np.flatnonzero(np.array(past.loads) == load) for load in loads]
    tried = [(some, point) for some, batch in zip(rows, batches, strict=True) for point in batch]
    many = [point for some, point in tried for _ in some]
    j = _play(past, np.concatenate([some for some, _ in tried]), many, make).j
    counts = [len(some) for some, _ in tried]
    means = np.add.reduceat(j, np.cumsum([0, *counts[:-1]])) / counts
    return np.split(means, np.cumsum([len(batch) for batch in batches])[:-1])


def _play(days: Days, rows: NDArray[np.intp], many: Sequence[Point], make: Make, level: LevelName = "fluid") -> Result:
    """Play the `rows` (N,) of `days`, each with settings of its own; those of one action interval together."""
    intervals = [point.get("interval") for point in many]
    at_once = min(ROWS, max(-(-len(rows) // cores()), FEWEST_ROWS))
    order: list[NDArray[np.intp]] = []
    for interval in dict.fromkeys(intervals):
        alike = np.array([index for index, other in enumerate(intervals) if other == interval])
        order += np.split(alike, range(at_once, len(alike), at_once))
    jobs = [Job(partial(make, [many[i] for i in some]), rows[some]) for some in order]
    parts = [figures.result for figures in played_side_by_side(days, jobs, level)]
    return Result.concat(parts).take(np.argsort(np.concatenate(order)))
