"""Test episodes of every workload, their description, and the digest that equal episodes share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.invariants import minimum_cost, physical_floor
from rlscaler_rl.evaluation.schema import Workload
from rlscaler_rl.evaluation.settings import CSV, EvaluationSettings
from rlscaler_rl.results.statistics import blocks_of
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios
from rlscaler_rl.workloads import PATTERNS, TRACES, VARIED, Part, WorkloadError, blocks, cut, episodes
from rlscaler_rl.workloads.library import splits
from rlscaler_rl.workloads.recording import read_load
from rlscaler_rl.workloads.uncertain import uncertain

NOTES = {
    "varied": "the four patterns in turn, scale, phase and period drawn per episode",
    "flat": "a rate that does not change, from none to the patterns' peak; every fifth episode has none",
    "one_pool": "services with a GPU pool or a CPU pool alone, in turn",
    "envelope": "SLO, cold starts, prices, capacities, lag and sizes drawn from all that training draws from",
}


@dataclass(frozen=True, slots=True)
class Fold:
    """Test episodes of one workload that the same tuned settings may be judged on."""

    workload: str
    number: int | None
    """Fold of a cross-fitted trace; None for a workload that has one test part."""

    scenarios: Scenarios
    """(N,) rows, run by run."""

    runs: int


def folds_of(workload: str, settings: EvaluationSettings) -> list[Fold]:
    """Return the test episodes of a workload; a cross-fitted trace has several folds, each block about as often.

    Raises EvaluationError for a trace that cannot be read or is too short.
    """
    folds = len(splits().traces[workload].folds) if workload in TRACES else 0
    if not folds:
        return [Fold(workload, None, _episodes(workload, settings, None, settings.episodes), settings.runs)]
    try:
        counts = [
            blocks(workload, Part.TEST, settings.duration_seconds, traces=settings.traces, fold=fold) or 0
            for fold in range(folds)
        ]
    except WorkloadError as error:
        raise EvaluationError(f"workload {workload}: {error}") from error
    even = counts if sum(counts) else [1] * folds
    ends = np.rint(settings.episodes * np.cumsum(even) / sum(even)).astype(int)
    shares = np.diff(ends, prepend=0).tolist()
    return [
        Fold(workload, fold, _episodes(workload, settings, fold, share), settings.runs)
        for fold, share in enumerate(shares)
        if share
    ]


def _episodes(workload: str, settings: EvaluationSettings, fold: int | None, share: int) -> Scenarios:
    limits = {"min_replicas": settings.min_replicas, "max_replicas": settings.max_replicas}
    service = {name: value for name, value in limits.items() if (value, value) != NOMINAL[name]}
    own = read_load(Path(workload)) if is_file(workload) else None
    try:
        rows = episodes(
            workload if own is None else cut(own, name_of(workload)),
            Part.TEST,
            runs=settings.runs,
            episodes=share,
            seed=settings.seed,
            duration_seconds=settings.duration_seconds,
            interval_seconds=settings.interval_seconds,
            low=settings.low_rps,
            high=settings.high_rps,
            traces=settings.traces,
            fold=fold,
            **({} if workload == "envelope" else service),
        )
        return uncertain(rows) if settings.world == "uncertain" else rows
    except WorkloadError as error:
        raise EvaluationError(f"workload {workload}: {error}") from error


def is_file(workload: str) -> bool:
    return workload.endswith(CSV)


def name_of(workload: str) -> str:
    """Return the name of a workload in results: of a file without its folder."""
    return Path(workload).name if is_file(workload) else workload


def blocks_played(played: list[Fold]) -> tuple[int, ...] | None:
    """Return the trace block of each episode (runs x episodes,), ordered as by `joined`; None for drawn loads."""
    name = played[0].workload
    if name not in TRACES and not is_file(name):
        return None
    numbered, first = [], 0
    for fold in played:
        blocks: NDArray[np.int64] = np.array(blocks_of(fold.scenarios.rate), np.int64) + first
        first = int(blocks.max()) + 1
        numbered.append(blocks)
    return tuple(joined(numbered, played[0].runs).ravel().tolist())


def joined(parts: list[Any], runs: int) -> Any:
    """Return arrays (N,) of every fold as one array (runs, episodes) of the workload."""
    return np.concatenate([np.asarray(part).reshape(runs, -1) for part in parts], axis=1)


def describe(played: list[Fold], settings: EvaluationSettings) -> Workload:
    """Return the description of the played episodes, with the cost that no controller can go below."""
    scenarios = Scenarios.concat([fold.scenarios for fold in played])
    params, mean_rate, workload = scenarios.params(), scenarios.mean_rate(), played[0].workload
    blocks = blocks_played(played)
    return Workload(
        name=name_of(workload),
        kind=kind_of(workload, settings),
        note=_note(workload, settings),
        blocks=None if blocks is None else len(set(blocks)),
        episodes=len(scenarios),
        duration_seconds=int(scenarios.duration[0]),
        mean_rps=float(mean_rate.mean()),
        peak_rps=float(scenarios.rate.max(axis=1).mean()),
        cost_floor=float(physical_floor(params, mean_rate).mean()),
        minimum_cost=float(minimum_cost(params).mean()),
    )


def kind_of(workload: str, settings: EvaluationSettings) -> str:
    if workload in settings.apart:
        return "extra"
    return "trace" if workload in TRACES or is_file(workload) else "pattern"


def _note(workload: str, settings: EvaluationSettings) -> str:
    if workload in TRACES:
        split = splits().traces[workload]
        origin = "full file" if settings.traces else "sample"
        peak = f"{split.reference_rps:,.0f}" if split.reference_rps >= 100 else f"{split.reference_rps:.3g}"
        scale = f"its 99th percentile of {peak} requests/s becomes {settings.high_rps:g}"
        return f"{split.what} ({split.source}; {split.licence}; {origin}); {scale}"
    if is_file(workload):
        return f"{workload}; the 99th percentile of its first 60 % becomes {settings.high_rps:g} requests/s"
    if workload in PATTERNS:
        return f"as the demo plays it, {settings.low_rps:g} to {settings.high_rps:g} requests/s"
    return NOTES.get(workload, "scale, phase and period drawn per episode" if workload in VARIED else "")


def digest(*parts: Scenarios) -> str:
    """Return the SHA-256 over every column: loads, seeds, cold starts, measurement. Equal digests, equal conditions."""
    sha256 = hashlib.sha256()
    for scenarios in parts:
        for column in fields(scenarios):
            sha256.update(column.name.encode())
            sha256.update(np.ascontiguousarray(getattr(scenarios, column.name)).tobytes())
    return sha256.hexdigest()
