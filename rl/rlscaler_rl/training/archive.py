"""Read an actor from a stable-baselines3 archive without running any code that may be in it.

`PPO.load` unpickles parts of the archive; here only the tensors of `policy.pth` are read, with torch's weights-only
loader, and the manifest beside the archive says the rest.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import torch
from torch import nn

from rlscaler_rl.decision.exceptions import ModelError
from rlscaler_rl.decision.manifest import Manifest
from rlscaler_rl.decision.types import OBSERVATIONS
from rlscaler_rl.training.export import TorchActor

MANIFEST = "manifest.json"
_LAYERS = ("mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net")


def actor_from_zip(path: Path) -> TorchActor:
    """The actor of best_model.zip or model_episode_N.zip, with manifest.json from the same folder.

    Raises ModelError naming the file and what is missing in it.
    """
    manifest = Manifest.load(path.with_name(MANIFEST)).model_copy(update={"name": path.stem})
    weights = _weights(path)
    width = len(OBSERVATIONS) * manifest.stack_size
    try:
        layers = [_linear(weights, name) for name in _LAYERS]
    except KeyError as error:
        raise ModelError(f"{path}: policy.pth has no {error}; only archives of `rlscaler train` can be read") from error
    if layers[0].in_features != width:
        raise ModelError(
            f"{path}: the network reads {layers[0].in_features} numbers and {MANIFEST} says {width}; "
            "they are of different trainings"
        )
    return TorchActor(layers, manifest)


def _weights(path: Path) -> dict[str, torch.Tensor]:
    try:
        with zipfile.ZipFile(path) as archive:
            content = archive.read("policy.pth")
        found: dict[str, torch.Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (OSError, zipfile.BadZipFile, KeyError, RuntimeError, pickle.UnpicklingError) as error:
        raise ModelError(f"{path}: not a stable-baselines3 archive: {error}") from error
    return found


def _linear(weights: dict[str, torch.Tensor], name: str) -> nn.Linear:
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer
