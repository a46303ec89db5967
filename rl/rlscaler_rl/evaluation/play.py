"""Play every workload with every contender and collect scores, counters and pictures' raw material."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_loadgen.patterns import rate
from rlscaler_rl.baselines.lineup import Entry
from rlscaler_rl.baselines.sizing import cheapest_mix
from rlscaler_rl.decision.types import CPU, GPU, Float
from rlscaler_rl.evaluation.board import EXTRAS, FLAT, ONE_POOL, VARIED, Board
from rlscaler_rl.evaluation.floor import minimum_cost, physical_floor
from rlscaler_rl.evaluation.invariants import Audit
from rlscaler_rl.evaluation.schema import Workload
from rlscaler_rl.evaluation.settings import SYNTHETIC, Settings
from rlscaler_rl.simulation.episode import Run, run
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios, from_rate, nominal

INITIAL_UTILIZATION = 0.8
"""Episodes begin with the cheapest replicas that carry the first second's rate at this utilization."""

VARIED_SCALE = (0.3, 1.5)
"""Log-uniform factor on the load of a `varied` episode."""

VARIED_PERIOD_SECONDS = (120.0, 600.0)
"""Period of its sinusoid, uniform."""

Progress = Callable[[str, str], None]


@dataclass(slots=True)
class Played:
    """Everything that reports and plots are made of."""

    settings: Settings
    entries: list[Entry]
    board: Board
    audit: Audit
    workloads: list[Workload] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    timelines: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """(workload, contender) -> second by second, of the first episode of the first run: never a chosen one."""

    outside: dict[str, str] = field(default_factory=dict)
    """workload -> why it is outside the model's trained envelope."""


def scenarios_of(workload: str, settings: Settings) -> Scenarios:
    """runs x episodes rows of one workload, run by run; the same for every contender."""
    draws = [np.random.SeedSequence(settings.seed + r).generate_state(settings.episodes) for r in range(settings.runs)]
    seeds = np.concatenate(draws).astype(np.int64)
    rows = np.arange(len(seeds))
    if workload == VARIED:
        made = _varied(seeds, settings)
    elif workload == FLAT:
        made = _flat(seeds, settings)
    elif workload == ONE_POOL:
        patterns = np.array(SYNTHETIC)[rows // 2 % len(SYNTHETIC)]
        halves = [_one_pool(pool, patterns[rows % 2 == pool], seeds[rows % 2 == pool], settings) for pool in (GPU, CPU)]
        order = np.argsort(rows % 2, kind="stable").argsort()
        made = Scenarios.concat([half for half in halves if half is not None]).take(order)
    else:
        made = _scenarios([workload] * len(seeds), seeds, settings, settings.low_rps, settings.high_rps)
    made.initial[:] = cheapest_mix(made.params(), made.rate[:, 0].astype(np.float64) / INITIAL_UTILIZATION)
    return made


def _varied(seeds: NDArray[np.int64], settings: Settings) -> Scenarios:
    """The patterns in turn, each episode with a scale, phase and period of its own."""
    loads = []
    for row, seed in enumerate(seeds.tolist()):
        rng = np.random.default_rng([seed, 2])
        levels: dict[str, Any] = {"low": settings.low_rps, "high": settings.high_rps}
        period = float(rng.uniform(*VARIED_PERIOD_SECONDS))
        shape = {"scale_range": VARIED_SCALE, "random_phase": True, "period_s": period}
        loads.append(rate(SYNTHETIC[row % len(SYNTHETIC)], settings.duration_seconds, rng, **levels, **shape))
    bounds = {"min_replicas": settings.min_replicas, "max_replicas": settings.max_replicas}
    return from_rate(np.stack(loads), seeds, float(settings.interval_seconds), pattern=VARIED, **bounds)


def _flat(seeds: NDArray[np.int64], settings: Settings) -> Scenarios:
    """A rate that does not change, from nothing to the patterns' peak; none at all in every fifth episode."""
    levels = [np.random.default_rng([seed, 3]).uniform(0, settings.high_rps) for seed in seeds.tolist()]
    levels[::5] = np.zeros(len(levels[::5])).tolist()
    loads = np.repeat(np.array(levels)[:, None], settings.duration_seconds, axis=1)
    bounds = {"min_replicas": settings.min_replicas, "max_replicas": settings.max_replicas}
    return from_rate(loads, seeds, float(settings.interval_seconds), pattern=FLAT, **bounds)


def _one_pool(pool: int, patterns: NDArray[Any], seeds: NDArray[np.int64], settings: Settings) -> Scenarios | None:
    """Episodes with this pool alone; the load shrinks by as much as the service's capacity."""
    if not len(seeds):
        return None
    share = NOMINAL["rps"][pool] / sum(NOMINAL["rps"])
    low, high = settings.low_rps * share, settings.high_rps * share
    return _scenarios(patterns.tolist(), seeds, settings, low, high, present=(pool == GPU, pool == CPU))


def _scenarios(
    patterns: list[str], seeds: NDArray[np.int64], settings: Settings, low: float, high: float, **overrides: Any
) -> Scenarios:
    length, interval = settings.duration_seconds, float(settings.interval_seconds)
    overrides |= {"min_replicas": settings.min_replicas, "max_replicas": settings.max_replicas}
    return nominal(patterns, seeds.tolist(), length, interval, low=low, high=high, **overrides)


def play(
    settings: Settings, entries: Sequence[Entry], progress: Progress, timelines: Sequence[str] | None = None
) -> Played:
    """All workloads with all contenders; `timelines` names those whose first episode is recorded (None: all)."""
    played = Played(settings, list(entries), Board(entries), Audit())
    for pattern in [*settings.patterns, *(EXTRAS if settings.extras else ())]:
        scenarios = scenarios_of(pattern, settings)
        played.digests[pattern] = digest(scenarios)
        played.workloads.append(describe(pattern, scenarios))
        for reason in filter(None, _outside(scenarios, entries)):
            played.outside[pattern] = reason
        for entry in entries:
            progress(pattern, entry.label)
            finished = run(scenarios, entry.make(scenarios.rate.astype(np.float64), settings.seed), settings.seed)
            played.audit.add(f"{pattern}/{entry.name}", finished.ledger, scenarios)
            played.board.add(pattern, entry.name, _scores(finished, settings))
            if timelines is None or entry.name in timelines:
                played.timelines[pattern, entry.name] = _timeline(scenarios, entry, settings)
    return played


def _outside(scenarios: Scenarios, entries: Sequence[Entry]) -> list[str]:
    policy = next(entry for entry in entries if entry.role == "policy")
    actor = policy.make(scenarios.rate.astype(np.float64), 0)
    manifest = getattr(actor, "manifest", None)
    return [] if manifest is None else manifest.outside(scenarios.params())[1]


def describe(pattern: str, scenarios: Scenarios) -> Workload:
    """What was played, and what nobody can go below."""
    params, mean_rate = scenarios.params(), scenarios.mean_rate()
    return Workload(
        name=pattern,
        episodes=len(scenarios),
        duration_seconds=int(scenarios.duration[0]),
        mean_rps=float(mean_rate.mean()),
        peak_rps=float(scenarios.rate.max(axis=1).mean()),
        cost_floor=float(physical_floor(params, mean_rate).mean()),
        minimum_cost=float(minimum_cost(params).mean()),
    )


def digest(scenarios: Scenarios) -> str:
    """SHA-256 over every column: loads, seeds, cold starts, measurement. Equal digests, equal conditions."""
    found = hashlib.sha256()
    for column in fields(scenarios):
        found.update(column.name.encode())
        found.update(np.ascontiguousarray(getattr(scenarios, column.name)).tobytes())
    return found.hexdigest()


def _scores(finished: Run, settings: Settings) -> dict[str, Float]:
    shape = settings.runs, settings.episodes
    result = finished.result
    scores = {column.name: np.asarray(getattr(result, column.name), np.float64) for column in fields(result)}
    scores["goodput_per_cost"] = scores["goodput_rps"] / scores["cost"]
    return {name: values.reshape(shape) for name, values in scores.items()}


def _timeline(scenarios: Scenarios, entry: Entry, settings: Settings) -> dict[str, Any]:
    first = scenarios.take(slice(0, 1))
    finished = run(first, entry.make(first.rate.astype(np.float64), settings.seed), settings.seed, timeline=True)
    recorded = {name: np.asarray(values)[0] for name, values in finished.timeline.items()}
    shown = ("j", "cost", "late_percent")
    return recorded | {name: float(getattr(finished.result, name)[0]) for name in shown} | {"rps": first.rps[0]}
