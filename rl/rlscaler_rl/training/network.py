"""A trained actor as arrays, read from an ONNX graph or from the .zip of stable-baselines3.

Nothing is unpickled or run. Of a graph the initialisers are read. The archive holds the weights as a torch state dict,
which loads with `weights_only`; its other members are pickles and stay closed. Facts that the weights lack come from
the run's config.json or manifest.json beside it.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from rlscaler_core.decision.action import LOGITS
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.types import OBSERVATIONS, Float32
from rlscaler_core.models import load_bundled
from rlscaler_rl.training.export import PRICES, NumpyActor, actor_layers, set_actor_layers

BUNDLED = "ppo"
WEIGHTS = "policy.pth"
"""Member of an archive that holds the weights."""


@dataclass(frozen=True, slots=True)
class Network:
    """Layers of a trained actor, and its manifest."""

    manifest: Manifest
    layers: tuple[tuple[Float32, Float32], ...]
    """(weight (in, out), bias (out,)) from input to logits, tanh in between."""

    @property
    def hidden_size(self) -> int:
        return int(self.layers[0][0].shape[1])

    def put_into(self, policy: torch.nn.Module) -> None:
        """Overwrite the actor of a `training.policy.ScalingPolicy` of the same sizes. Raises ValueError."""
        set_actor_layers(policy, self.layers)


def bundled_network() -> Network:
    """The network that comes with the package. Raises ModelError."""
    manifest = load_bundled(BUNDLED).manifest
    path = Path(str(files("rlscaler_core.models") / f"{BUNDLED}.onnx"))
    return Network(manifest, tuple(weights_of(path, manifest)))


def weights_of(path: Path, manifest: Manifest) -> list[tuple[Float32, Float32]]:
    """The layers of an exported actor. Raises ModelError for a graph that is no chain of Gemm and Tanh."""
    graph = onnx.load(path).graph
    arrays = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    kinds = [node.op_type for node in graph.node]
    gemms = [node for node in graph.node if node.op_type == "Gemm"]
    if kinds != ["Gemm", *["Tanh", "Gemm"] * (len(gemms) - 1)] or any(len(node.input) != 3 for node in gemms):
        chain = " ".join(kinds)
        raise ModelError(f"{path}: {chain} is no chain of Gemm and Tanh; start from what `rlscaler train` made")
    layers = []
    for node in gemms:
        weight, bias = arrays[node.input[1]], arrays[node.input[2]]
        transposed = any(one.name == "transB" and one.i for one in node.attribute)
        layers.append((np.ascontiguousarray(weight.T if transposed else weight), bias))
    widths = [layers[0][0].shape[0], *(weight.shape[1] for weight, _ in layers)]
    chained = all(left[0].shape[1] == right[0].shape[0] for left, right in pairwise(layers))
    if not chained or (widths[0], widths[-1]) != (len(OBSERVATIONS) * manifest.stack_size, LOGITS):
        raise ModelError(f"{path}: layers {widths} do not fit a stack of {manifest.stack_size}; export the actor again")
    return layers


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
    facts = {"name": path.stem, "stack_size": width // len(OBSERVATIONS), "digest": "", "envelope": None}
    return NumpyActor(layers, _manifest(path.parent).model_copy(update=facts))


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
        residual = bool(environment.get("residual", False))
        lasting = residual and bool(environment.get("lasting", False))
        learned = PRICES if residual and environment.get("history_hours", 0) else None
    except (ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"{path}: says nothing of the environment ({error}); restore the run's file") from error
    return Manifest(name=folder.name, residual=residual, lasting=lasting, learned=learned)
