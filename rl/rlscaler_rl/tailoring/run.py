"""`rlscaler train --for`: from a policy and a history to a result folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from rlscaler_rl.decision.actor import Actor
from rlscaler_rl.decision.manifest import Manifest, Training
from rlscaler_rl.simulation import episode
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.tailoring import report, schema, trial, verdict
from rlscaler_rl.tailoring.history import History
from rlscaler_rl.tailoring.rivals import TUNED, Searched, rivals, tune
from rlscaler_rl.tailoring.score import Score, score_of
from rlscaler_rl.tailoring.service import Service
from rlscaler_rl.tailoring.source import ERROR, MIX, ServiceSource, lag_seconds
from rlscaler_rl.tailoring.start import Start
from rlscaler_rl.training.export import NumpyActor, write
from rlscaler_rl.training.files import write_atomically
from rlscaler_rl.training.finetune import Episodes, FineTuned, fine_tune
from rlscaler_rl.training.finetune_settings import FineTuning
from rlscaler_rl.workloads import Part

TUNE_EPISODES = 32
TEST_EPISODES = 96
"""About so many are played: of a long history a random choice of its stretches, of a short one each several times."""

SOURCES = 2
"""Of training episodes; each is simulated in a thread of its own."""

REPORT = "report.txt"


@dataclass(frozen=True, slots=True)
class Options:
    """Beside the policy and the history."""

    training: FineTuning = field(default_factory=FineTuning)
    level: LevelName = "request"
    budget: int = 150
    """Settings of HPA and of the rule that are tried on the tune part, each."""

    finalists: int = 10


def tailor(
    service: Service, history: History, start: Start, options: Options, folder: Path, progress: Callable[[str], None]
) -> schema.Verdict:
    """Train, choose, tune the rivals, play the held-back part, write the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    score = score_of(service, history.recording.reference)
    seed = options.training.seed
    on_tune, _ = trial.scenarios(service, history, Part.TUNE, TUNE_EPISODES, seed)
    found = _trained(service, history, start, score, on_tune, options, progress, folder)
    content, manifest = artefact(service, start, found, options.training)
    write(folder, "policy", "manifest.json", content, manifest)
    tuned = []
    for name in TUNED:
        progress(f"tuning the contender {name} on the tune part")
        tuned.append(
            tune(name, on_tune, score, options.level, budget=options.budget, finalists=options.finalists, seed=seed)
        )
    progress("playing the held-back part")
    judged = _judged(service, history, start, found, tuned, Actor.load(content, manifest), score, options)
    write_atomically(folder / schema.FILE, judged.model_dump_json(indent=1, by_alias=True) + "\n")
    write_atomically(folder / REPORT, report.text_report(judged))
    return judged


def _trained(
    service: Service,
    history: History,
    start: Start,
    score: Score,
    on_tune: Scenarios,
    options: Options,
    progress: Callable[[str], None],
    folder: Path,
) -> FineTuned:
    def judge(actor: NumpyActor, level: LevelName) -> float:
        return float(score.j(episode.run(on_tune, actor, level=level).result).mean())

    rngs = np.random.default_rng([options.training.seed, 21]).spawn(SOURCES)
    sources = [ServiceSource(service, history, rng).take for rng in rngs]
    played = Episodes(sources, service.interval, service.episode_seconds, score.reward)
    return fine_tune(start, played, judge, options.training, progress, level=options.level, folder=folder)


def artefact(service: Service, start: Start, found: FineTuned, training: FineTuning) -> tuple[bytes, Manifest]:
    """The chosen checkpoint, with the service as its envelope."""
    content = found.best.onnx
    base = start.manifest
    manifest = Manifest(
        name=f"{service.namespace}-{service.name}",
        stack_size=base.stack_size,
        residual=base.residual,
        neutral=base.neutral,
        normalisation=base.normalisation,
        digest=hashlib.sha256(content).hexdigest(),
        envelope=service.envelope(ERROR, lag_seconds(service)),
        training=Training(
            seed=training.seed,
            steps=found.best.steps,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={package: version(package) for package in ("rlscaler", "torch", "stable-baselines3", "numpy")},
            hyperparameters={"fine_tuning": asdict(training), "loads": asdict(MIX), "start": start.loaded.digest},
        ),
    )
    return content, manifest


def _judged(
    service: Service,
    history: History,
    start: Start,
    found: FineTuned,
    tuned: list[Searched],
    actor: Actor,
    score: Score,
    options: Options,
) -> schema.Verdict:
    name = service.name
    played = rivals(service, actor, start.loaded.actor, tuned, history.recording.reference)
    rows, runs = trial.scenarios(service, history, Part.TEST, TEST_EPISODES, options.training.seed)
    board, audit = trial.play(name, played, rows, runs, score, options.level)
    made = verdict.rows(board, name, played, service, service.episode_seconds)
    publish, reasons = verdict.decide(made, history, found, service, audit.reasons())
    return schema.Verdict(
        publish=publish,
        reasons=reasons,
        caveats=(*_assumed(service), *history.caveats),
        name=name,
        namespace=service.namespace,
        policy_digest=actor.manifest.digest,
        general_digest=start.loaded.digest,
        level=options.level,
        episode_seconds=service.episode_seconds,
        episodes=len(rows),
        history=_recorded(history, service),
        training=schema.Training(
            start=start.loaded.name,
            steps=found.steps,
            seconds=round(found.seconds, 1),
            cut_short=found.cut_short,
            best_steps=found.best.steps,
            tune_j={one.steps: round(one.fluid, 4) for one in found.candidates},
            tuned={one.name: {"default": one.default_j, "tuned": one.j} for one in tuned},
        ),
        rows=made,
    )


def _assumed(service: Service) -> list[str]:
    """What the policy leaves open and training took for granted."""
    found = [f"spec.{field} is assumed, nobody set or learned it: measure it" for field in service.assumed]
    if (service.params.present[0] & (service.params.min_replicas[0] == 0)).any():
        found.append("minReplicas 0: training kept at least one replica in every pool; the trial did not")
    return found


def _recorded(history: History, service: Service) -> schema.Recorded:
    return schema.Recorded(
        source=history.source,
        seconds=history.seconds,
        digest=history.digest,
        peak_rps={str(part): round(peak, 4) for part, peak in history.peaks.items()},
        blocks={str(part): history.blocks(part, service) for part in Part},
        rise=round(history.rise, 4),
        smooth=history.smooth,
    )
