"""Episodes of the evaluation, played on a cluster in real time, one after the other."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.spec import spec_of
from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_live.ground import Json, make_env
from rlscaler_rl.baselines.contender import Contender
from rlscaler_rl.evaluation.board import METRICS, Board
from rlscaler_rl.evaluation.episodes import describe, digest, folds_of
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.invariants import Audit
from rlscaler_rl.evaluation.lineup import Entry, contenders
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.play import Played
from rlscaler_rl.evaluation.schema import Invariant
from rlscaler_rl.evaluation.settings import EvaluationSettings
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.workloads import PATTERNS

EVALUATED = ("policy", "hpa", "rule", "random")
COMPARED = (*EVALUATED, "hpa_tuned", "rule_tuned", "keda", "frozen", "hindsight")
"""Every contender costs an episode in real time, so a comparison plays the rivals that matter."""

REQUESTS_TOLERANCE = 0.01
"""Counters of one scrape are read at one moment, but not written at one."""

LATE_GENERATOR_MS = 50.0
"""Above this Locust itself was starved of CPU, and the load was not the one that every contender is to meet."""


STATEMENTS: dict[str, tuple[str, float]] = {
    "requests": ("requests in = in time + late + dropped + still queued, as Prometheus counted", REQUESTS_TOLERANCE),
    "signs": ("no counter is negative", 0.0),
    "ticks": ("the cluster and Prometheus answered at every sensing tick", 0.0),
    "load": ("99 % of the requests left within 50 ms of their time", LATE_GENERATOR_MS),
}
"""Invariants of a live episode, and their tolerances."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Callbacks for the progress of episodes."""

    begins: Callable[[str, str], None]
    """Called with the workload and the contender's label."""

    ended: Callable[[str, str, Json], None]
    """Called with the workload, the contender's name and the episode's figures."""


@dataclass(slots=True)
class LiveAudit(Audit):
    """Invariants of a live episode's counters."""

    found: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in STATEMENTS})

    def note(self, figures: Json) -> None:
        self.checked += 1
        parts = sum(figures[name] for name in ("in_time", "late", "dropped", "queued"))
        self.found["requests"].append(abs(parts - figures["requests"]) / max(figures["requests"], 1.0))
        self.found["signs"].append(-min(figures[name] for name in ("requests", "in_time", "late", "dropped", "queued")))
        self.found["ticks"].append(figures["lost_ticks"])
        self.found["load"].append(figures["dispatch_lag_p99_ms"])

    def invariants(self) -> list[Invariant]:
        invariants = []
        for name, (statement, bound) in STATEMENTS.items():
            worst = max(self.found[name], default=float("inf"))
            invariants.append(
                Invariant(name=name, statement=statement, holds=worst <= bound, checked=self.checked, worst=worst)
            )
        return invariants

    def reasons(self) -> list[str]:
        return [f"{item.statement} (deviation {item.worst:.3g})" for item in self.invariants() if not item.holds]


def live_entries(kind: str, loaded: Sequence[Loaded], workload: str | None = None) -> list[Entry]:
    """The contenders that are played on a cluster; labels, roles and tuned settings are the evaluation's own."""
    wanted = EVALUATED if kind == "evaluation" else COMPARED
    return [entry for entry in contenders(kind, loaded[:1], workload) if entry.name in wanted]


def check(settings: EvaluationSettings) -> None:
    """Raise EvaluationError for workloads that no load generator plays live."""
    unknown = [name for name in settings.played if name not in PATTERNS]
    if unknown:
        raise EvaluationError(
            f"--env cluster plays {', '.join(PATTERNS)}, not {', '.join(unknown)}: choose with --workloads"
        )


def play(settings: EvaluationSettings, kind: str, loaded: Sequence[Loaded], place: Json, watch: Watch) -> Played:
    """Every episode of every workload with every contender; loads and first replicas are those of the simulation.

    Raises EvaluationError, or a ClickException of the environment.
    """
    check(settings)
    _check_intervals(kind, loaded, settings)
    audit, entries = LiveAudit(), live_entries(kind, loaded)
    played = Played(settings, entries, Board(entries, settings.apart), audit)
    rows: dict[str, Scenarios] = {}
    for workload in settings.played:
        folds = folds_of(workload, settings)
        played.workloads.append(describe(folds, settings))
        played.digests[workload] = digest(*(fold.scenarios for fold in folds))
        rows[workload] = folds[0].scenarios
    figures: dict[tuple[str, str], list[Json]] = {}
    for workload, scenarios in rows.items():
        for entry in live_entries(kind, loaded, workload):
            found = _episodes(entry, workload, scenarios, settings, place, watch)
            figures[workload, entry.name], record = found
            played.timelines[workload, entry.name] = record
    blocks = tuple(range(settings.runs * settings.episodes))
    for workload in rows:
        for entry in entries:
            made_here = figures[workload, entry.name]
            for one in made_here:
                audit.note(one)
            played.board.add(workload, entry.name, _scores(made_here, settings), blocks)
    return played


def _episodes(
    entry: Entry, workload: str, scenarios: Scenarios, settings: EvaluationSettings, place: Json, watch: Watch
) -> tuple[list[Json], Json]:
    """Figures of every row, and the first one's record second by second."""
    controller = entry.make(scenarios.rate.astype(np.float64), settings.seed)
    manifest = getattr(controller, "manifest", load_bundled("rule").manifest)
    changes = {
        "episode_duration": settings.duration_seconds,
        "action_interval": _interval(controller, settings),
        "min_replicas": settings.min_replicas,
        "max_replicas": settings.max_replicas,
        "low_rps": settings.low_rps,
        "high_rps": settings.high_rps,
        "results": str(Path(place["results"]) / workload / entry.name) if place.get("results") else None,
    }
    env = make_env(place | changes, manifest)
    figures: list[Json] = []
    record: Json = {}
    try:
        for row in range(len(scenarios)):
            watch.begins(workload, entry.label)
            rate = scenarios.rate[row : row + 1].astype(np.float64)
            controller = entry.make(rate, settings.seed)
            options = {
                "pattern": str(scenarios.pattern[row]),
                "seed": int(scenarios.seed[row]),
                "start_replicas": scenarios.initial[row].tolist(),
            }
            _, begun = env.reset(options=options)
            rng, truncated, info = np.random.default_rng([settings.seed, row]), False, {}
            while not truncated:
                _, _, _, truncated, info = env.hand_over(controller, rng)
            info["j"] = info["cost"] + LATE_WEIGHT * info["late_percent"]
            info["goodput_per_cost"] = info["goodput_rps"] / info["cost"]
            info["dispatch_lag_p99_ms"] = _lag_ms(begun["folder"])
            figures.append(info)
            watch.ended(workload, entry.name, info)
            if not record:
                record = _record(env.timeline, info, begun["folder"], scenarios.rps[row], settings.duration_seconds)
    finally:
        env.close()
    return figures, record


def _interval(controller: Contender | ActorLike, settings: EvaluationSettings) -> int:
    """Seconds between actions: the controller's own where its settings have one."""
    return int(spec_of(controller).interval_seconds or settings.interval_seconds)


def _check_intervals(kind: str, loaded: Sequence[Loaded], settings: EvaluationSettings) -> None:
    """Raise EvaluationError, before anything is played, where an episode is no multiple of a contender's interval."""
    for workload in settings.played:
        for entry in live_entries(kind, loaded, workload):
            interval = _interval(entry.make(np.ones((1, 1)), settings.seed), settings)
            if settings.duration_seconds % interval:
                raise EvaluationError(
                    f"--duration {settings.duration_seconds}: {entry.label} acts every {interval} s on {workload}; "
                    "choose a multiple of that"
                )


def _lag_ms(folder: str | None) -> float:
    """Return the delay of the load process itself in milliseconds; 0 where the load comes from elsewhere."""
    path = Path(folder or "") / "load.json"
    return float(json.loads(path.read_text())["dispatch_lag_p99_ms"] or 0.0) if path.is_file() else 0.0


def _scores(episodes: list[Json], settings: EvaluationSettings) -> dict[str, Float]:
    shape = settings.runs, settings.episodes
    return {name: np.array([figures[name] for figures in episodes], np.float64).reshape(shape) for name in METRICS}


def _record(timeline: list[Json], figures: Json, folder: str | None, rps: Float, seconds: int) -> Json:
    """Return the record second by second, in the arrays of a simulated one; values hold until the next tick."""
    ticks = np.array([tick["second"] for tick in timeline])
    at = np.clip(np.searchsorted(ticks, np.arange(seconds), side="right") - 1, 0, None)

    def held(name: str) -> Float:
        return np.array([tick[name] for tick in timeline], np.float64)[at]

    arrivals, late = np.nan_to_num(held("arrival_rate")), np.zeros(seconds)
    path = Path(folder or "") / "load.csv"
    if path.is_file():
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                second = int(line["time"])
                if second < seconds:
                    sent, missed = int(line["sent"]), int(line["late"]) + int(line["failed"])
                    arrivals[second], late[second] = sent, min(1.0, missed / max(sent, 1))
    shown = {name: float(figures[name]) for name in ("j", "cost", "late_percent")}
    return {
        "arrivals": arrivals,
        "desired": held("spec_replicas"),
        "ready": held("ready_replicas"),
        "weights_gpu": held("weights")[:, 0] / 1000,
        "late_share": late,
        "rps": rps,
        **shown,
    }
