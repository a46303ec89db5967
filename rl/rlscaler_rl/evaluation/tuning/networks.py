"""Networks that were trained for one workload: where they lie, and how one is made.

They are kept beside the cache of the tuned settings, as `WORKLOAD.onnx` and its manifest `WORKLOAD.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest, Training
from rlscaler_rl.baselines.actors import Configured
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tuning.spaces import Found, gains, spec
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.training.export import Artefact, NumpyActor, to_onnx, trained_on, versions, write
from rlscaler_rl.training.finetune import Episodes, FineTuning, fine_tune
from rlscaler_rl.training.network import Network, bundled_network
from rlscaler_rl.workloads import HELD_OUT, Part, episodes
from rlscaler_rl.workloads.source import WorkloadSource

DURATION_SECONDS = 600
CHOOSING_EPISODES, CHOOSING_SEED = 32, 2
"""Checkpoints are chosen by other episodes of the tune part than the settings."""


def trainable(workload: str | None) -> bool:
    """Has the workload a train part? The one that is held out has none; its settings are around the general network."""
    return workload not in (None, HELD_OUT)


@dataclass(frozen=True, slots=True)
class Plan:
    """How one of the networks for a workload is trained."""

    seed: int
    found: Found
    """The spec that it is trained under."""
    standing: Sequence[tuple[int, int]] = ()
    """minReplicas that some of the episodes have instead, so that the search can choose among them afterwards."""
    on_rule: bool = False
    """`found` is of the forecast rule, and the network's action is added to that rule's replicas."""


def train(
    workload: str,
    plan: Plan,
    settings: FineTuning,
    *,
    traces: Path | None = None,
    progress: Callable[[str], None] = lambda said: None,
) -> Artefact:
    """Fine-tune the bundled network on the workload's train part; episodes of the tune part choose the checkpoint.

    On one core: two at a time are trained twice as fast as one after the other on both.
    """
    network, under = _beginning(plan), spec(plan.found)
    settings = replace(settings, seed=plan.seed)
    choosing = episodes(workload, Part.TUNE, runs=1, episodes=CHOOSING_EPISODES, seed=CHOOSING_SEED, traces=traces)

    def judge(actor: NumpyActor, level: LevelName) -> float:
        return float(run(choosing, Configured(actor, under), level=level).result.j.mean())

    source = WorkloadSource(
        workload,
        np.random.default_rng([plan.seed, 31]),
        duration_seconds=DURATION_SECONDS,
        spec=under,
        standing=plan.standing,
        traces=traces,
    )
    made = fine_tune(
        network, Episodes([source.take], plan.found["interval"], DURATION_SECONDS), judge, settings, progress
    )
    return _artefact(workload, plan, network, settings, made.best.onnx, made.best.steps)


def untrained(workload: str, plan: Plan, settings: FineTuning) -> Artefact:
    """What training begins with; on a rule that is the rule itself."""
    network = _beginning(plan)
    return _artefact(workload, plan, network, settings, to_onnx(list(network.layers)), 0)


def _beginning(plan: Plan) -> Network:
    network = bundled_network()
    return network.on_rule(gains(plan.found), plan.found["placement"]) if plan.on_rule else network


def _artefact(
    workload: str, plan: Plan, network: Network, settings: FineTuning, content: bytes, steps: int
) -> Artefact:
    origin = {"fine_tuning": asdict(settings), "plan": asdict(plan), "start": network.manifest.digest}
    training = Training(
        seed=plan.seed,
        steps=steps,
        versions=versions("torch", "stable-baselines3", "numpy"),
        hyperparameters=origin,
    )
    return trained_on(network.manifest, content, f"ppo-{workload}", training)


def folder(cache: Path) -> Path:
    """The folder of the networks that belong to a cache file."""
    return cache.parent / "networks"


def save(artefact: Artefact, workload: str, cache: Path) -> None:
    folder(cache).mkdir(parents=True, exist_ok=True)
    write(folder(cache), workload, f"{workload}.json", artefact.content, artefact.manifest)


def load(workload: str, digest: str, cache: Path) -> Actor:
    """The network beside a cache file.

    Raises EvaluationError where it is not there, damaged, or not the one that the settings were found for.
    """
    path = folder(cache) / f"{workload}.json"
    try:
        manifest = Manifest.load(path)
        if manifest.digest != digest:
            raise EvaluationError(f"{path}: is of another network than the settings in {cache}; run `rlscaler tune`")
        return Actor.load(path.with_suffix(".onnx"), manifest)
    except ModelError as error:
        raise EvaluationError(f"{error}; run `rlscaler tune --contenders ppo`") from error
