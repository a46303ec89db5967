"""Tune settings that are missing or out of date, and keep the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rlscaler_rl.evaluation.episodes import digest
from rlscaler_rl.evaluation.tuning import cache
from rlscaler_rl.evaluation.tuning.cache import Key, Record, Tuned
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, Tunable
from rlscaler_rl.evaluation.tuning.score import probe, tune_part
from rlscaler_rl.evaluation.tuning.search import grid
from rlscaler_rl.evaluation.tuning.spaces import Point
from rlscaler_rl.evaluation.tuning.tune import SearchTask, tune
from rlscaler_rl.training.distributed import map_runs

STATIC = "static"
"""Tuned first: its replicas are where the others' searches start."""


def stale(tasks: Sequence[SearchTask], tuned: Tuned, probes: dict[str, list[float]]) -> dict[SearchTask, str]:
    """Task -> why its record does not count: missing, or made with another space, another meter or other episodes."""
    loads: dict[tuple[object, ...], str] = {}
    reasons: dict[SearchTask, str] = {}
    for task in tasks:
        where = task.workload, task.fold, task.episodes
        if where not in loads:
            loads[where] = digest(tune_part(*where, traces=task.traces))[:12]
        reason = _reason(
            task, tuned.find(task.key), tuned.probes.get(task.contender), probes[task.contender], loads[where]
        )
        if reason:
            reasons[task] = reason
    return reasons


def _reason(
    task: SearchTask, record: Record | None, probe_before: list[float] | None, probed: list[float], loads: str
) -> str:
    if record is None:
        return "not tuned yet"
    if record.space != cache.space_digest(CONTENDERS[task.contender]):
        return "the search space has changed"
    if not cache.same_probe(probe_before, probed):
        return "the meter or the contender has changed"
    if record.loads != loads:
        return "the episodes have changed"
    points = grid(CONTENDERS[task.contender].space, task.budget)
    enough = task.budget if points is None else len(points)
    return f"tuned with {record.trials} trials" if record.trials < enough else ""


def refresh(
    tasks: Sequence[SearchTask], path: Path | None, console: Console, *, force: bool = False, ray: str | None = None
) -> Tuned:
    """Tune the stale tasks (all with `force`), here or as Ray tasks at `ray`; the file is written after each.

    Earlier settings of the same conditions stay where they are better.
    """
    tuned = cache.load(path)
    probes = _probes(tasks, console)
    wanted = dict.fromkeys(tasks, "asked for") if force else stale(tasks, tuned, probes)
    phases: list[list[SearchTask]] = [[], [], []]
    for task in wanted:
        phases[_phase(task)].append(task)
    columns = (TextColumn("{task.description:42.42}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        bar = progress.add_task("tuning", total=len(wanted))
        for part in phases:
            for task, record in zip(part, _results(part, tuned, ray), strict=True):
                if _beaten(record, tuned, probes[task.contender]):
                    progress.update(bar, advance=1, description=task.label)
                    continue
                tuned = tuned.merged([record], {task.contender: probes[task.contender]})
                cache.save(tuned, path)
                progress.update(bar, advance=1, description=task.label)
                if not console.is_terminal:
                    console.print(f"{task.label}: J {record.default_j:.2f} -> {record.j:.2f}", highlight=False)
    return tuned


def outdated(tasks: Sequence[SearchTask], tuned: Tuned, console: Console) -> dict[SearchTask, str]:
    """Task -> why its record does not count, as `stale` says; the console shows that contenders are probed."""
    return stale(tasks, tuned, _probes(tasks, console))


def _phase(task: SearchTask) -> int:
    """Tasks whose results others start from come first."""
    if task.contender == STATIC:
        return 0
    return 1 if task.workload is None else 2


def _results(tasks: Sequence[SearchTask], tuned: Tuned, ray: str | None) -> Iterator[Record]:
    """Return records in the order of `tasks`; searches start from the settings that were tuned before them."""
    sent = [(task, _known(task, tuned)) for task in tasks]
    return map(_tune, sent) if ray is None or not sent else map_runs(_tune, sent, ray)


def _beaten(record: Record, tuned: Tuned, probe: list[float]) -> bool:
    """Whether an earlier tuning under the same conditions found better settings."""
    before = tuned.find(record.key)
    if before is None or not before.trials or (before.loads, before.space) != (record.loads, record.space):
        return False
    return cache.same_probe(tuned.probes.get(record.contender), probe) and before.j < record.j


def _known(task: SearchTask, tuned: Tuned) -> list[Point]:
    """Settings that a search starts from: the earlier ones, those for all loads, and the default over constant
    replicas."""
    tunable = CONTENDERS[task.contender]
    earlier = [tuned.find(key) for key in dict.fromkeys((task.key, (task.contender, None, None)))]
    points = [record.found for record in earlier if record and record.space == cache.space_digest(tunable)]
    return points + over_constant(tunable, tuned, task.key)


def over_constant(tunable: Tunable, tuned: Tuned, key: Key) -> list[Point]:
    """The default over the best constant replicas for the workload and fold of `key`, where these are known."""
    constant = tuned.find((STATIC, *key[1:]))
    if constant is None or constant.space != cache.space_digest(CONTENDERS[STATIC]):
        return []
    standing = tunable.over(*(1 + constant.found[name] for name in ("ninths_gpu", "ninths_cpu")))
    return [standing] if standing else []


def _tune(sent: tuple[SearchTask, list[Point]]) -> Record:
    return tune(*sent)


def _probes(tasks: Sequence[SearchTask], console: Console) -> dict[str, list[float]]:
    with console.status("probing the meter and the contenders"):
        return {name: probe(CONTENDERS[name]) for name in dict.fromkeys(task.contender for task in tasks)}
