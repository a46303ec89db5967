"""Read the actor out of a stable-baselines3 .zip without unpickling anything.

The archive holds the weights as a torch state dict, which loads with `weights_only`; its other members are pickles
and stay closed. What the weights do not say comes from the run's config.json or manifest.json beside it.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from rlscaler_core.decision.action import LOGITS
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest, Normalisation
from rlscaler_core.decision.types import OBSERVATIONS
from rlscaler_rl.training.export import NumpyActor, actor_layers

WEIGHTS = "policy.pth"


def actor_from_zip(path: str | Path) -> NumpyActor:
    """The actor of best_model.zip or model_episode_*.zip; it has no envelope. Raises ModelError."""
    path = Path(path)
    state = _state(path)
    try:
        layers = actor_layers(state)
    except KeyError as error:
        raise ModelError(
            f"{path}: {WEIGHTS} has no {error}; only models that `rlscaler train` saved are read"
        ) from error
    width = layers[0][0].shape[0]
    if width % len(OBSERVATIONS) or layers[-1][0].shape[1] != LOGITS:
        raise ModelError(f"{path}: maps {width} numbers to {layers[-1][0].shape[1]}, not 10 k to {LOGITS}")
    said = {"name": path.stem, "stack_size": width // len(OBSERVATIONS), "digest": "", "envelope": None}
    return NumpyActor(layers, _manifest(path.parent).model_copy(update=said))


def _state(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            content = archive.read(WEIGHTS)
        return dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    except (OSError, KeyError, zipfile.BadZipFile, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ModelError(f"{path}: no weights can be read from it ({reason}); save the model again") from error


def _manifest(folder: Path) -> Manifest:
    """The run's own; before its first export the configuration knows how the network is fed. Raises ModelError."""
    if (folder / "manifest.json").is_file():
        return Manifest.load(folder / "manifest.json")
    path = folder / "config.json"
    if not path.is_file():
        return Manifest(name=folder.name)
    try:
        environment = json.loads(path.read_text(encoding="utf-8"))["environment"]
        residual, sees_time = (bool(environment.get(name, False)) for name in ("residual", "sees_time"))
    except (ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"{path}: says nothing of the environment ({error}); restore the run's file") from error
    return Manifest(name=folder.name, residual=residual, normalisation=Normalisation(sees_time=sees_time))
