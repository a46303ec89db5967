"""The networks of a service: fine-tuned from one start, each under a spec, and the choice among them by the tune part.

Specs are searched at the fluid level; networks and specs are chosen at the level that judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.manifest import Training
from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.models import Start
from rlscaler_rl.evaluation.rows import as_difference
from rlscaler_rl.evaluation.schema import Difference
from rlscaler_rl.evaluation.service_tuning import spec
from rlscaler_rl.evaluation.service_tuning.episodes import ERROR, MIX, Score, ServiceSource, lag_seconds, replayed
from rlscaler_rl.evaluation.service_tuning.history import History
from rlscaler_rl.evaluation.service_tuning.service import Service
from rlscaler_rl.evaluation.tuning.contenders import Tunable
from rlscaler_rl.evaluation.tuning.score import scores
from rlscaler_rl.evaluation.tuning.spaces import Point
from rlscaler_rl.evaluation.tuning.tune import screened
from rlscaler_rl.results.statistics import Design, Interval, weights
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.training.export import Artefact, NumpyActor, to_onnx, trained_on, versions
from rlscaler_rl.training.finetune import Episodes, FineTuned, FineTuning, fine_tune

GENERAL, OWN_SPEC, FOUND_SPEC = "general", "own_spec", "found_spec"
"""The networks that the choice is among: the start, and two fine-tuned under the user's spec and under one found."""

IDLE = 0.001
"""A change that J does not miss by more than this part of it is left out."""

SOURCES = 2
"""Sources of training episodes; each is simulated in a thread of its own."""

NETWORKS = 2
"""Networks that are fine-tuned; they share the steps and the seconds."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the networks that the choice is among."""

    name: str
    actor: ActorLike
    tuned: FineTuned | None = None
    """None: the start."""

    trained_under: Point = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """Network and spec that the tune part chooses."""

    network: Alternative
    """The better of the fine-tuned ones."""

    found: Point
    """Changes of the spec; empty where none is shown to help."""

    gain: Difference | None
    """J on the tune part under the best spec that was found, minus J under the user's own. None: the two are equal."""

    j: dict[str, tuple[float, float]]
    """network -> J under the user's own spec and under the best that was found around it."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The tune part of a service, twice: with the draws that a search sees, and with others that judge."""

    service: Service
    kind: Tunable
    screening: Scenarios
    judged: Scenarios
    runs: int
    """Runs that the judged episodes are made of."""

    score: Score
    level: LevelName
    budget: int
    """Settings tried around each network."""

    finalists: int
    seed: int

    def search(self, actor: ActorLike, known: Sequence[Point] = ()) -> list[Point]:
        """The best settings around a network, the best first."""
        kind = spec.around(self.kind, actor)
        trials = screened(
            kind,
            [*known, *spec.starts(kind)],
            self.screening,
            budget=self.budget,
            score=self.score.j,
            seed=self.seed,
            allowed=partial(spec.affordable, self.service),
        )
        return [trial.point for trial in trials[: self.finalists]]

    def judge(self, actor: ActorLike, points: Sequence[Point]) -> Float:
        """(K, N) J of settings at the level that judges; all of them set the same names."""
        return scores(spec.around(self.kind, actor), points, self.judged, self.level, self.score.j)

    def choose(self, networks: Sequence[Alternative], points: dict[str, list[Point]]) -> Choice:
        """Choose a network and the changes of the spec.

        A network that is worse than the start under the user's own spec is passed over, because its user may leave the
        spec as it is. Where both are, the spec is chosen around the start.

        :param points: the best points of the search around each network.
        """
        own, best = {}, {}
        for candidate in networks:
            j = self.judge(candidate.actor, points[candidate.name])
            at = int(j.mean(axis=1).argmin())
            own[candidate.name] = self.judge(candidate.actor, [spec.OWN])[0]
            best[candidate.name] = points[candidate.name][at], j[at]
        fine_tuned = [candidate for candidate in networks if candidate.tuned is not None]
        # A user may publish the network and leave the spec, so it must be no worse under the spec as it is.
        sound = [
            candidate
            for candidate in fine_tuned
            if candidate.tuned and candidate.tuned.best.steps and own[candidate.name].mean() <= own[GENERAL].mean()
        ]
        if sound:
            network = min(sound, key=lambda candidate: min(best[candidate.name][1].mean(), own[candidate.name].mean()))
            inside = network
        else:
            network = min(fine_tuned, key=lambda candidate: float(own[candidate.name].mean()))
            inside = next(candidate for candidate in networks if candidate.name == GENERAL)
        changed, gain = self._recommended(inside, own[inside.name], *best[inside.name])
        means = {
            candidate.name: (float(own[candidate.name].mean()), float(best[candidate.name][1].mean()))
            for candidate in networks
        }
        return Choice(network, changed, gain, means)

    def _recommended(self, network: Alternative, own: Float, point: Point, j: Float) -> tuple[Point, Difference | None]:
        """The changes that matter, where they are shown to help, and by how much they change J."""
        changed = spec.changes(self.service, point)
        if not changed:
            return spec.OWN, None
        best, limit = self.judge(network.actor, [changed])[0], float(j.mean()) * (1 + IDLE)
        # Each change that J does not miss is one setting less for the user to keep.
        for name in list(changed):
            fewer = spec.without(changed, [name])
            tried = self.judge(network.actor, [fewer])[0] if fewer else own
            if tried.mean() <= limit:
                changed, best = fewer, tried
        if not changed:
            return spec.OWN, None
        gain = self._difference(best, own)
        return (changed if gain.verdict == "win" else spec.OWN), gain

    def _difference(self, j: Float, other: Float) -> Difference:
        """(N,) J of two on the same episodes, paired over the blocks of the history."""
        design = Design(self.runs, len(j) // self.runs, replayed(self.judged, self.runs))
        apart = j - other
        interval = Interval.of(float(apart.mean()), weights(design) @ apart)
        return as_difference(interval, float(other.mean()), decidable=design.decidable)


def share(training: FineTuning, seed: int) -> FineTuning:
    """Settings of the training of one network: its share of steps and seconds."""
    parts = {"seconds": training.seconds / NETWORKS, "candidates": max(training.candidates // NETWORKS, 1)}
    return training.with_agent(steps=max(training.agent.steps // NETWORKS, 1), seed=seed).model_copy(update=parts)


def train(
    name: str,
    service: Service,
    history: History,
    start: Start,
    point: Point,
    on_tune: Scenarios,
    score: Score,
    training: FineTuning,
    level: LevelName,
    progress: Callable[[str], None],
    folder: Path,
) -> Alternative:
    """Fine-tune under a spec and choose the checkpoint by the tune part under the same spec."""
    settings = spec.settings_of(point)

    def judge(actor: NumpyActor, at: LevelName) -> float:
        return float(score.j(run(on_tune, spec.under(actor, settings), level=at).result).mean())

    under = spec.with_point(service, point)
    rngs = np.random.default_rng([training.agent.seed, 21]).spawn(SOURCES)
    sources = [ServiceSource(under, history, rng).take for rng in rngs]
    played = Episodes(sources, service.interval, service.episode_seconds, score.reward)
    tuned = fine_tune(start, played, judge, training, progress, level=level, folder=folder)
    return Alternative(name, tuned.best.actor, tuned, point)


def artefact(service: Service, start: Start, network: Alternative, training: FineTuning) -> Artefact:
    """The chosen checkpoint, with the service as its envelope."""
    assert network.tuned is not None
    best = network.tuned.best
    origin = Training(
        seed=training.agent.seed,
        steps=best.steps,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions("rlscaler", "torch", "stable-baselines3", "numpy"),
        hyperparameters={
            "fine_tuning": training.model_dump(),
            "loads": asdict(MIX),
            "start": start.loaded.digest,
            "spec": spec.patch(service, network.trained_under),
        },
    )
    envelope = service.envelope(ERROR, lag_seconds(service))
    return trained_on(
        start.manifest, to_onnx(best.actor.layers), f"{service.namespace}-{service.name}", origin, envelope=envelope
    )
