"""The networks of a service: fine-tuned from one start, each under a spec, and the chosen one as an artefact."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from rlscaler_core.decision.manifest import Manifest, Training
from rlscaler_rl.evaluation.service_tuning import spec
from rlscaler_rl.evaluation.service_tuning.choice import Network
from rlscaler_rl.evaluation.service_tuning.history import History
from rlscaler_rl.evaluation.service_tuning.score import Score
from rlscaler_rl.evaluation.service_tuning.service import Service
from rlscaler_rl.evaluation.service_tuning.source import ERROR, MIX, ServiceSource, lag_seconds
from rlscaler_rl.evaluation.service_tuning.start import Start
from rlscaler_rl.evaluation.tuning.spaces import Found
from rlscaler_rl.simulation import episode
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.training.export import NumpyActor
from rlscaler_rl.training.finetune import Episodes, fine_tune
from rlscaler_rl.training.finetune_settings import FineTuning

SOURCES = 2
"""Of training episodes; each is simulated in a thread of its own."""

NETWORKS = 2
"""That are fine-tuned; they share the steps and the seconds."""


def share(training: FineTuning, seed: int) -> FineTuning:
    """What one of the networks gets of the training."""
    return replace(
        training,
        steps=max(training.steps // NETWORKS, 1),
        seconds=training.seconds / NETWORKS,
        candidates=max(training.candidates // NETWORKS, 1),
        seed=seed,
    )


def train(
    name: str,
    service: Service,
    history: History,
    start: Start,
    found: Found,
    on_tune: Scenarios,
    score: Score,
    training: FineTuning,
    level: LevelName,
    progress: Callable[[str], None],
    folder: Path,
) -> Network:
    """Fine-tune under a spec and choose the checkpoint by the tune part under the same spec."""
    settings = spec.settings_of(found)

    def judge(actor: NumpyActor, at: LevelName) -> float:
        return float(score.j(episode.run(on_tune, spec.under(actor, settings), level=at).result).mean())

    under = spec.with_point(service, found)
    rngs = np.random.default_rng([training.seed, 21]).spawn(SOURCES)
    sources = [ServiceSource(under, history, rng).take for rng in rngs]
    played = Episodes(sources, service.interval, service.episode_seconds, score.reward)
    made = fine_tune(start, played, judge, training, progress, level=level, folder=folder)
    return Network(name, made.best.actor, made, found)


def artefact(service: Service, start: Start, network: Network, training: FineTuning) -> tuple[bytes, Manifest]:
    """The chosen checkpoint, with the service as its envelope."""
    assert network.tuned is not None
    content, base = network.tuned.best.onnx, start.manifest
    origin = {
        "fine_tuning": asdict(training),
        "loads": asdict(MIX),
        "start": start.loaded.digest,
        "spec": spec.patch(service, network.trained_under),
    }
    manifest = Manifest(
        name=f"{service.namespace}-{service.name}",
        stack_size=base.stack_size,
        residual=base.residual,
        rule=base.rule,
        neutral=base.neutral,
        normalisation=base.normalisation,
        digest=hashlib.sha256(content).hexdigest(),
        envelope=service.envelope(ERROR, lag_seconds(service)),
        training=Training(
            seed=training.seed,
            steps=network.tuned.best.steps,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={package: version(package) for package in ("rlscaler", "torch", "stable-baselines3", "numpy")},
            hyperparameters=origin,
        ),
    )
    return content, manifest
