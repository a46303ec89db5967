"""Tune what is missing or out of date, keep what is not, and show the settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rlscaler_rl.evaluation.tuning import cache, networks
from rlscaler_rl.evaluation.tuning.cache import Key, Record, Tuned
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, Tunable
from rlscaler_rl.evaluation.tuning.job import RULE, Job, Tuning, tune
from rlscaler_rl.evaluation.tuning.score import digest, probe, tune_part
from rlscaler_rl.evaluation.tuning.search import grid
from rlscaler_rl.evaluation.tuning.spaces import Found
from rlscaler_rl.training.distributed import map_runs

STATIC = "static"
"""Tuned first: its replicas are where the others' searches start."""


def stale(jobs: Sequence[Job], tuned: Tuned, probes: dict[str, list[float]]) -> dict[Job, str]:
    """Job -> why what is cached for it does not count: missing, or made with another space, meter or other episodes."""
    loads: dict[tuple[object, ...], str] = {}
    found: dict[Job, str] = {}
    for job in jobs:
        where = job.workload, job.fold, job.episodes
        if where not in loads:
            loads[where] = digest(tune_part(*where, traces=job.traces))[:12]
        reason = _reason(job, tuned.find(job.key), tuned.probes.get(job.contender), probes[job.contender], loads[where])
        if reason:
            found[job] = reason
    return found


def _reason(job: Job, record: Record | None, kept: list[float] | None, probed: list[float], loads: str) -> str:
    if record is None:
        return "not tuned yet"
    if record.space != cache.space_digest(CONTENDERS[job.contender]):
        return "the search space has changed"
    if not cache.same_probe(kept, probed):
        return "the meter or the contender has changed"
    if record.loads != loads:
        return "the episodes have changed"
    points = grid(CONTENDERS[job.contender].space, job.budget)
    enough = job.budget if points is None else len(points)
    return f"tuned with {record.trials} trials" if record.trials < enough else ""


def refresh(
    jobs: Sequence[Job], path: Path | None, console: Console, *, force: bool = False, ray: str | None = None
) -> Tuned:
    """Tune the stale jobs (all with `force`), here or as Ray tasks at `ray`; the file is written after each.

    What an earlier tuning found under the same conditions stays where it is better.
    """
    tuned = cache.load(path)
    probes = _probes(jobs, console)
    wanted = dict.fromkeys(jobs, "asked for") if force else stale(jobs, tuned, probes)
    phases: list[list[Job]] = [[], [], [], []]
    for job in wanted:
        phases[_phase(job)].append(job)
    with _progress(console) as progress:
        task = progress.add_task("tuning", total=len(wanted))
        for part in phases:
            for job, made in zip(part, _results(part, tuned, ray), strict=True):
                record = made.record
                if _beaten(record, tuned, probes[job.contender]):
                    progress.update(task, advance=1, description=job.label)
                    continue
                if made.artefact is not None and job.workload is not None:
                    networks.save(made.artefact, job.workload, path or cache.shipped())
                tuned = tuned.merged([record], {job.contender: probes[job.contender]})
                cache.save(tuned, path)
                progress.update(task, advance=1, description=job.label)
                if not console.is_terminal:
                    console.print(f"{job.label}: J {record.default_j:.2f} -> {record.j:.2f}", highlight=False)
    return tuned


def check(jobs: Sequence[Job], path: Path | None, console: Console) -> bool:
    """True when nothing is stale; prints what is."""
    found = stale(jobs, cache.load(path), _probes(jobs, console))
    for job, reason in found.items():
        console.print(f"[bold red]{job.label}[/]: {reason}", highlight=False)
    console.print(f"{len(jobs) - len(found)} of {len(jobs)} settings are current", highlight=False)
    return not found


def _phase(job: Job) -> int:
    """Whose results others start from comes first."""
    if job.contender == STATIC:
        return 0
    if job.workload is None:
        return 1
    return 3 if CONTENDERS[job.contender].trains else 2


def _results(jobs: Sequence[Job], tuned: Tuned, ray: str | None) -> Iterator[Tuning]:
    """In the order of `jobs`; searches start from what was found before them."""
    tasks = [(job, _known(job, tuned), _rule(job, tuned)) for job in jobs]
    return map(_tune, tasks) if ray is None or not tasks else map_runs(_tune, tasks, ray)


def _beaten(record: Record, tuned: Tuned, probe: list[float]) -> bool:
    """Did an earlier tuning under the same conditions find something better? Trained networks are not found twice."""
    before = tuned.find(record.key)
    if before is None or not before.trials or (before.loads, before.space) != (record.loads, record.space):
        return False
    return cache.same_probe(tuned.probes.get(record.contender), probe) and before.j < record.j


def _known(job: Job, tuned: Tuned) -> list[Found]:
    """What was found before, what suits all loads, and the default over the best constant replicas."""
    tunable = CONTENDERS[job.contender]
    earlier = [tuned.find(key) for key in dict.fromkeys((job.key, (job.contender, None, None)))]
    found = [record.found for record in earlier if record and record.space == cache.space_digest(tunable)]
    return found + over_constant(tunable, tuned, job.key)


def over_constant(tunable: Tunable, tuned: Tuned, key: Key) -> list[Found]:
    """The default over the best constant replicas for the workload and fold of `key`, where these are known."""
    constant = tuned.find((STATIC, *key[1:]))
    if constant is None or constant.space != cache.space_digest(CONTENDERS[STATIC]):
        return []
    standing = tunable.over(*(1 + constant.found[name] for name in ("ninths_gpu", "ninths_cpu")))
    return [standing] if standing else []


def _rule(job: Job, tuned: Tuned) -> Found | None:
    """What the forecast rule was found to want on the same workload, where that is current."""
    record = tuned.find((RULE, job.workload, job.fold))
    current = record and record.trials and record.space == cache.space_digest(CONTENDERS[RULE])
    return record.found if record and current else None


def _tune(task: tuple[Job, list[Found], Found | None]) -> Tuning:
    return tune(*task)


def _probes(jobs: Sequence[Job], console: Console) -> dict[str, list[float]]:
    with console.status("probing the meter and the contenders"):
        return {name: probe(CONTENDERS[name]) for name in dict.fromkeys(job.contender for job in jobs)}


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:42.42}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)
