"""How long before it comes would a load have to be known? The hindsight rule, held to ever less of the future.

A rule that sees the true load of the next so many seconds, and of the past whatever it likes to remember, over
replicas that always stand. What can be set of it is searched for every workload and horizon as hard as any contender's
settings, on the tune part, and played by the judge on the test part beside them. Where the rule that sees less than a
cold start ahead is no better than an HPA, the load gives no notice of what comes, and no policy can win it from
measurements of the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from optuna.distributions import IntDistribution

from rlscaler_core.decision.types import Float, Float32, Int, Params
from rlscaler_rl.baselines.contender import Pair, Value, rows
from rlscaler_rl.baselines.hindsight import Hindsight, HindsightSettings, highest_ahead
from rlscaler_rl.evaluation.board import ALL, Board
from rlscaler_rl.evaluation.episodes import blocks_played, folds_of, joined
from rlscaler_rl.evaluation.settings import EvaluationSettings
from rlscaler_rl.evaluation.tuning import cache, spaces
from rlscaler_rl.evaluation.tuning.cache import tuned
from rlscaler_rl.evaluation.tuning.command import over_constant
from rlscaler_rl.evaluation.tuning.contenders import Controller, Tunable
from rlscaler_rl.evaluation.tuning.score import tune_part
from rlscaler_rl.evaluation.tuning.spaces import MIN_REPLICAS, Found
from rlscaler_rl.evaluation.tuning.tune import BUDGET, EPISODES, FINALISTS, JUDGED_SEED, best_settings
from rlscaler_rl.simulation.episode import run

HORIZONS = (0, 15, 30, 60, 90, 120)
"""Seconds of the future; GPU replicas of the nominal service take 45 s to start, CPU replicas 10 s."""

BESIDE = {"hpa": "HPA, tuned for the load", "ppo": "bundled PPO, tuned for the load", "hindsight": "hindsight rule"}
"""Contenders that are played beside it, with the settings that ship."""


@dataclass(frozen=True, slots=True)
class LookaheadSettings(HindsightSettings):
    """The load is averaged over the last `smooth_seconds`, not around the present."""

    lookahead_seconds: Value = 0.0
    """Seconds of the future that are known; 0: the present second's true rate."""

    memory_seconds: Value = 0.0
    """The highest load of so many past seconds is still sized for."""

    min_replicas: Pair = 0


class LimitedHindsight(Hindsight):
    """The hindsight rule that knows the true rate of the next `lookahead_seconds` only."""

    def __init__(self, rate: Float, settings: LookaheadSettings) -> None:
        super().__init__(rate, settings)
        self.limits, self.min_replicas = settings, settings.min_replicas

    def reset(self, params: Params) -> None:
        super().reset(params)
        self.params = params.copy()
        self.params.min_replicas[:] = self.lowest

    def load(self, n: int) -> Float32:
        rate = np.asarray(self.rate, np.float64)
        width = rows(self.limits.smooth_seconds, n).astype(np.int64)
        total = np.pad(np.cumsum(rate, axis=1), ((0, 0), (1, 0)))
        end = np.arange(1, rate.shape[1] + 1)[None, :]
        begin = np.maximum(end - width[:, None], 0)
        each = np.arange(n)[:, None]
        recent = np.asarray((total[each, end] - total[each, begin]) / (end - begin), np.float32)
        past = (rows(self.limits.memory_seconds, n) + 1).astype(np.int32)
        return highest_ahead(recent[:, ::-1], past)[:, ::-1]

    def seconds_ahead(self, params: Params) -> Int:
        known = rows(self.limits.lookahead_seconds, len(params))[:, None] + 1
        return np.asarray(np.minimum(super().seconds_ahead(params), known), np.int32)


def tunable(horizon: int) -> Tunable:
    """The rule with a horizon of so many seconds, and what is searched of it."""
    space = {**spaces.HINDSIGHT, "memory": IntDistribution(0, 600, step=15), **MIN_REPLICAS}
    default = {**spaces.HINDSIGHT_DEFAULT, "memory": 60, "min_gpu": 1, "min_cpu": 1}

    def settings(found: Found) -> LookaheadSettings:
        return LookaheadSettings(
            target=found["target"],
            lead=found["lead"],
            smooth_seconds=float(found["smooth"]),
            placement=found["placement"],
            lookahead_seconds=float(horizon),
            memory_seconds=float(found["memory"]),
            min_replicas=(found["min_gpu"], found["min_cpu"]),
        )

    return Tunable(
        "lookahead", label(horizon), space, default, settings, lambda chosen, rate: LimitedHindsight(rate, chosen)
    )


def label(horizon: int) -> str:
    return f"{horizon} s"


def _name(player: int | str) -> str:
    return player if isinstance(player, str) else label(player)


@dataclass(frozen=True, slots=True)
class LookaheadTask:
    """One player on one workload: the rule with a horizon, or a contender."""

    workload: str
    player: int | str
    budget: int = BUDGET
    found: tuple[Found, ...] = ()
    """EvaluationSettings of an earlier search, fold by fold; empty: they are searched."""

    @property
    def name(self) -> str:
        return _name(self.player)


@dataclass(frozen=True, slots=True)
class LookaheadResult:
    """J (runs, episodes) on the test part, and what was found for it on the tune part, fold by fold."""

    j: Float
    found: list[Found]
    blocks: tuple[int, ...] | None


def play_task(task: LookaheadTask) -> LookaheadResult:
    """Search where there is something to search, and play."""
    played, found = [], []
    folds = folds_of(task.workload, EvaluationSettings())
    for index, fold in enumerate(folds):
        make, chosen = _player(task, fold.number, index)
        played.append(run(fold.scenarios, make(fold.scenarios.rate.astype(np.float64)), level="request").result.j)
        found += [chosen] if chosen else []
    return LookaheadResult(joined(played, folds[0].runs), found, blocks_played(folds))


def _player(task: LookaheadTask, fold: int | None, index: int) -> tuple[Callable[[Float], Controller], Found | None]:
    if isinstance(task.player, str):
        return tuned(task.player, task.workload, fold), None
    rule = tunable(task.player)
    found = task.found[index] if task.found else best(rule, task.workload, fold, task.budget)
    return lambda rate: rule.controller(found, rate), found


def best(rule: Tunable, workload: str, fold: int | None, budget: int = BUDGET) -> Found:
    """What any contender without a network would be set to."""
    known = over_constant(rule, cache.load(), (rule.name, workload, fold))
    draws = tune_part(workload, fold, EPISODES), tune_part(workload, fold, EPISODES, JUDGED_SEED)
    starts = [*rule.starts(), *known]
    return best_settings(rule, starts, known, draws, budget=budget, finalists=FINALISTS).found


class _Player(NamedTuple):
    name: str
    label: str
    role: str = "contender"


def lookahead_study(
    workloads: Sequence[str],
    horizons: Sequence[int],
    say: Callable[[str], None],
    address: str | None = None,
    workers: int = 2,
    budget: int = BUDGET,
    known: Mapping[str, Mapping[str, Sequence[Found]]] | None = None,
) -> dict[str, Any]:
    """J on the test parts by workload and player, and the difference from the tuned HPA with its 95 % interval.

    `known`: the settings of an earlier test by workload and horizon, which are played again and not searched.
    """
    from rlscaler_rl.training.distributed import map_runs

    players: list[int | str] = [*horizons, *BESIDE]
    recorded = {} if known is None else known
    tasks = [
        LookaheadTask(workload, player, budget, tuple(recorded.get(workload, {}).get(_name(player), ())))
        for workload in workloads
        for player in players
    ]
    names = [task.name for task in tasks[: len(players)]]
    board = Board([_Player(name, BESIDE.get(name, name)) for name in names])
    settings: dict[str, dict[str, list[Found]]] = {}
    results: Iterator[LookaheadResult] = iter(map_runs(play_task, tasks, address, workers=workers))
    for task, result in zip(tasks, results, strict=True):
        board.add(task.workload, task.name, {"j": result.j}, result.blocks)
        if result.found:
            settings.setdefault(task.workload, {})[task.name] = result.found
        say(f"{task.workload}, {task.name}: J {result.j.mean():.2f}")
    return {
        "budget": budget,
        "workloads": {place: _row(board, place, names) for place in [*workloads, *([ALL] if workloads[1:] else [])]},
        "settings": settings,
    }


def _row(board: Board, workload: str, names: Sequence[str]) -> dict[str, dict[str, float]]:
    row = {}
    for name in names:
        difference = board.interval(lambda read, name=name: read(name, "j") - read("hpa", "j"), workload)  # type: ignore[misc]
        row[name] = {
            "j": round(board.mean(workload, name, "j"), 4),
            "low": round(difference.low, 4),
            "high": round(difference.high, 4),
        }
    return row


def report(figures: dict[str, Any]) -> str:
    """A Markdown table; * where the interval of the difference from the tuned HPA does not touch zero."""
    names = list(next(iter(figures["workloads"].values())))
    lines = ["| seen of the future | " + " | ".join(BESIDE.get(name, name) for name in names) + " |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for workload, row in figures["workloads"].items():
        cells = [f"{one['j']:.2f}{'*' if one['low'] > 0 or one['high'] < 0 else ''}" for one in row.values()]
        lines.append(f"| {'mean' if workload == ALL else workload} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
