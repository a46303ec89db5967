"""Loading of the model under evaluation, or of the network that fine-tuning starts from.

ONNX with its manifest is read by the operator's own loader. A `.zip` of stable-baselines3 is read by the training code,
weights only. A pickled `.pt` is refused: opening it runs any code that is in it.

Torch, which takes seconds to import, is imported where weights are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from rlscaler_core.decision.actor import Actor, ActorLike
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import rule_of
from rlscaler_core.models import BUNDLED_POLICIES, STREAMS, load_bundled
from rlscaler_rl.evaluation.errors import EvaluationError

if TYPE_CHECKING:
    import torch

    from rlscaler_rl.training.network import Network

TRAININGS = "training_*"
POLICY, ARCHIVE = "policy.onnx", "best_model.zip"
SEEDS = "seeds.json"
PICKLES = (".pt", ".pth", ".pkl", ".pickle")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready to act."""

    actor: ActorLike
    name: str
    path: Path | None
    digest: str
    """SHA-256 of the file; of the name for a rule without one."""

    source: str
    """Argument with which `load` loads the model again."""


def load(model: str | None, folder: Path) -> Loaded:
    """Return the model that `--model` names; by default the newest training under `folder`, else the bundled network.

    Raises EvaluationError naming the file and the remedy, also for a network for consumers of a stream.
    """
    if model is None:
        newest = newest_training(folder)
        model = str(newest) if newest else "ppo"
    if model in ("bundled", *BUNDLED_POLICIES):
        return _read(model, lambda: _bundled("ppo" if model == "bundled" else model))
    loaded = _read(model, lambda: _from_path(Path(model)))
    if _for_consumers(loaded.actor):
        raise EvaluationError(
            f"--model {model}: envelope.consumers: it was trained for consumers of a stream, and services are played "
            "here; give one that `rlscaler train` made, or play it with `rlscaler streams simulate --model`"
        )
    return loaded


def load_for_streams(model: str) -> Loaded:
    """Return the network for consumers of a stream that `--model` names: a path, or `streams` for the bundled one.

    Raises EvaluationError naming the file and the remedy, also for a network for services.
    """
    loaded = _read(model, lambda: _bundled(model) if model == STREAMS else _from_path(Path(model)))
    if not _for_consumers(loaded.actor):
        raise EvaluationError(
            f"--model {model}: envelope.consumers is missing: it was trained for services, and consumers of a stream "
            "are played here; give one that `rlscaler streams train` made"
        )
    return loaded


def load_for_tokens(model: str) -> Loaded:
    """Return the network for token services that `--model` names by its path.

    Raises EvaluationError naming the file and the remedy, also for a network for other loads.
    """
    loaded = _read(model, lambda: _from_path(Path(model)))
    envelope = loaded.actor.manifest.envelope
    if envelope is not None and ("tokens" not in envelope.units or "ttft" not in envelope.signals):
        raise EvaluationError(
            f"--model {model}: envelope.units and envelope.signals need tokens and ttft, and it was trained for "
            f"{', '.join((*envelope.units, *envelope.signals))}; give one that `rlscaler tokens train` made"
        )
    return loaded


def _read(model: str, read: Callable[[], Loaded]) -> Loaded:
    try:
        return read()
    except ModelError as error:
        raise EvaluationError(f"--model {model}: {error}") from error


def _for_consumers(actor: ActorLike) -> bool:
    envelope = actor.manifest.envelope
    return envelope is not None and envelope.consumers is not None


def load_all(chosen: Sequence[str], folder: Path) -> list[Loaded]:
    """Return the model of every `--model`, the shipped one first; a folder of seed_*/ stands for all its seeds.

    Raises EvaluationError for a model that cannot be read, or with another stack or rule than the first.
    """
    names = [name for model in chosen for name in _seeds_of(Path(model))]
    loaded = [load(name, folder) for name in names] or [load(None, folder)]
    first = loaded[0].actor.manifest
    for other in loaded[1:]:
        manifest = other.actor.manifest
        if (manifest.stack_size, rule_of(manifest)) != (first.stack_size, rule_of(first)):
            raise EvaluationError(
                f"--model {other.name}: not another seed of {loaded[0].name}: its stack or mode is another; "
                "compare different recipes in runs of their own"
            )
    return loaded


def load_again(source: str, digest: str) -> Loaded:
    """Load a model again in another process. Raises EvaluationError when its file has changed meanwhile."""
    loaded = load(source, Path())
    if loaded.digest != digest:
        raise EvaluationError(
            f"--model {source}: changed while it was played; is a training still writing it? Give a copy of it"
        )
    return loaded


@lru_cache(maxsize=8)
def actor_again(source: str, digest: str) -> ActorLike:
    """Return the actor of `load_again`, loaded once in a process."""
    return load_again(source, digest).actor


def _seeds_of(path: Path) -> list[str]:
    """Return the seed_*/ folders with a network: the one that ships, then by number; the path itself where none is."""
    seeds = [seed for seed in path.glob("seed_*") if (seed / POLICY).is_file()] if path.is_dir() else []
    best = f"seed_{_best(path)}"
    numbered = sorted(seeds, key=lambda seed: (seed.name != best, len(seed.name), seed.name))
    return [str(seed) for seed in numbered] or [str(path)]


def _best(folder: Path) -> int | None:
    """Return the seed whose network lies in the folder itself; None where none has been chosen yet."""
    path = folder / SEEDS
    if not path.is_file():
        return None
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["best"])
    except (ValueError, KeyError, TypeError) as error:
        raise EvaluationError(f"--model {folder}: {path} cannot be read ({error}); name the seed_*/ folders") from error


def newest_training(folder: Path) -> Path | None:
    """Return the last `training_YYYYMMDD_HHMMSS` that holds an exported network; the names sort by time."""
    finished = [path for path in folder.glob(TRAININGS) if (path / POLICY).is_file()]
    return max(finished, key=lambda path: path.name, default=None)


def _bundled(name: str) -> Loaded:
    actor = load_bundled(name)
    label = f"bundled {name} ({actor.manifest.name})" if actor.manifest.name != name else f"bundled {name}"
    return Loaded(actor, label, None, actor.manifest.digest or hashlib.sha256(name.encode()).hexdigest(), name)


def _from_path(path: Path) -> Loaded:
    if path.suffix in PICKLES:
        raise EvaluationError(
            f"--model {path}: a {path.suffix} file is a Python pickle, and opening one runs whatever code is in it. "
            "Give the training folder, its policy.onnx or its best_model.zip; `rlscaler train` writes all three."
        )
    if not path.exists():
        raise EvaluationError(
            f"--model {path}: no such file or folder; train one with `rlscaler train` or use `bundled`"
        )
    if path.is_dir():
        return _from_folder(path)
    if path.suffix == ".onnx":
        return _from_onnx(path)
    if path.suffix == ".zip":
        return _from_zip(path)
    raise EvaluationError(f"--model {path}: expected a training folder, a .onnx or a .zip")


def _from_folder(path: Path) -> Loaded:
    for name, load_file in ((POLICY, _from_onnx), (ARCHIVE, _from_zip)):
        if (path / name).is_file():
            return load_file(path / name)
    raise EvaluationError(
        f"--model {path}: neither policy.onnx nor best_model.zip is in it; has the training finished?"
    )


def _from_onnx(path: Path) -> Loaded:
    beside = [path.with_suffix(".json"), path.with_name("manifest.json")]
    manifest = next((candidate for candidate in beside if candidate.is_file()), None)
    if manifest is None:
        raise EvaluationError(f"--model {path}: its manifest is missing; expected {' or '.join(map(str, beside))}")
    actor = Actor.load(path, Manifest.load(manifest))
    return Loaded(actor, _name(path), path, actor.manifest.digest, str(path))


def _from_zip(path: Path) -> Loaded:
    from rlscaler_rl.training.network import actor_from_zip

    return Loaded(actor_from_zip(path), _name(path), path, hashlib.sha256(path.read_bytes()).hexdigest(), str(path))


def _name(path: Path) -> str:
    folder = path.resolve().parent.name
    return folder if path.name == POLICY else f"{folder}/{path.name}"


@dataclass(frozen=True, slots=True)
class Start:
    """A general network that fine-tuning starts from, and its weights."""

    loaded: Loaded
    network: Network

    @property
    def manifest(self) -> Manifest:
        return self.network.manifest

    @property
    def hidden_size(self) -> int:
        return self.network.hidden_size

    def put_into(self, policy: torch.nn.Module) -> None:
        """Overwrite the actor of a `training.policy.ScalingPolicy` of the same sizes. Raises EvaluationError."""
        try:
            self.network.put_into(policy)
        except ValueError as error:
            raise EvaluationError(
                f"--model {self.loaded.name}: {error}; start from a policy that `rlscaler train` of this release made"
            ) from error


def load_start(model: str | None) -> Start:
    """Return the network that `--model` names: a folder, an .onnx or a .zip; by default the bundled one.

    Nothing is unpickled or run: weights are read from the graph's initialisers, or from the archive's state dict.
    Raises EvaluationError: no such file, another contract version, another width, or other layers.
    """
    # The rule beneath a network may learn its service. Fine-tuning plays episodes without a past, in which it has
    # learned nothing yet; the verdict tells whether the result is worth it.
    try:
        loaded = load(model or "bundled", Path())
        return Start(loaded, _network(loaded))
    except (ModelError, ValueError) as error:
        raise EvaluationError(str(error)) from error


def _network(loaded: Loaded) -> Network:
    from rlscaler_rl.training.network import BUNDLED, Network, actor_from_zip, bundled_network, weights_of

    manifest = loaded.actor.manifest
    if loaded.path is None:
        if not isinstance(loaded.actor, Actor):
            raise ModelError(f"--model {loaded.name}: has no network to start from; use {BUNDLED} or a training folder")
        return bundled_network()
    if loaded.path.suffix == ".zip":
        return Network(manifest, tuple(actor_from_zip(loaded.path).layers))
    return Network(manifest, tuple(weights_of(loaded.path, manifest)))
