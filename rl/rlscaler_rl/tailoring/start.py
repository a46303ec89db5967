"""The network that fine-tuning starts from: an ONNX artefact with its manifest, or a stable-baselines3 .zip.

Neither is unpickled or run: weights are read from the graph's initialisers, or from the archive's state dict.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from rlscaler_rl.decision.action import LOGITS
from rlscaler_rl.decision.actor import Actor
from rlscaler_rl.decision.exceptions import ModelError
from rlscaler_rl.decision.manifest import Manifest
from rlscaler_rl.decision.types import OBSERVATIONS, Float32
from rlscaler_rl.evaluation.models import Loaded, load
from rlscaler_rl.tailoring.errors import TailoringError
from rlscaler_rl.training.archive import actor_from_zip
from rlscaler_rl.training.export import NumpyActor, set_actor_layers

BUNDLED = "ppo"
ARCHIVE = ".zip"


@dataclass(frozen=True, slots=True)
class Start:
    """A general policy and what it is made of."""

    loaded: Loaded
    layers: tuple[tuple[Float32, Float32], ...]
    """(weight (in, out), bias (out,)) from input to logits, tanh in between."""

    @property
    def manifest(self) -> Manifest:
        return self.loaded.actor.manifest

    @property
    def hidden_size(self) -> int:
        return int(self.layers[0][0].shape[1])

    def actor(self, manifest: Manifest) -> NumpyActor:
        """The network under another manifest: without an envelope, it acts everywhere."""
        return NumpyActor(list(self.layers), manifest)

    def put_into(self, policy: torch.nn.Module) -> None:
        """Overwrite the actor of a `training.policy.ScalingPolicy` of the same sizes. Raises TailoringError."""
        try:
            set_actor_layers(policy, self.layers)
        except ValueError as error:
            raise TailoringError(
                f"--model {self.loaded.name}: {error}; start from a policy that `rlscaler train` of this release made"
            ) from error


def load_start(model: str | None) -> Start:
    """What `--model` names: a folder, an .onnx or a .zip; the bundled policy without it.

    Raises TailoringError: no such file, another contract version, another width, other layers.
    """
    chosen = model or BUNDLED
    try:
        loaded = load(chosen, Path())
        found = _layers(loaded)
    except (ModelError, ValueError) as error:
        raise TailoringError(str(error)) from error
    return Start(loaded, tuple(found))


def _layers(loaded: Loaded) -> list[tuple[Float32, Float32]]:
    if loaded.path is None:
        if not isinstance(loaded.actor, Actor):
            raise ModelError(f"--model {loaded.name}: has no network to start from; use {BUNDLED} or a training folder")
        return weights_of(Path(str(files("rlscaler_rl.models") / f"{BUNDLED}.onnx")), loaded.actor.manifest)
    if loaded.path.suffix == ARCHIVE:
        return actor_from_zip(loaded.path).layers
    return weights_of(loaded.path, loaded.actor.manifest)


def weights_of(path: Path, manifest: Manifest) -> list[tuple[Float32, Float32]]:
    """The layers of an exported actor. Raises ModelError for a graph that is no chain of Gemm and Tanh."""
    graph = onnx.load(path).graph
    arrays = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    kinds = [node.op_type for node in graph.node]
    gemms = [node for node in graph.node if node.op_type == "Gemm"]
    if kinds != ["Gemm", *["Tanh", "Gemm"] * (len(gemms) - 1)] or any(len(node.input) != 3 for node in gemms):
        chain = " ".join(kinds)
        raise ModelError(f"{path}: {chain} is no chain of Gemm and Tanh; start from what `rlscaler train` made")
    found = []
    for node in gemms:
        weight, bias = arrays[node.input[1]], arrays[node.input[2]]
        transposed = any(one.name == "transB" and one.i for one in node.attribute)
        found.append((np.ascontiguousarray(weight.T if transposed else weight), bias))
    widths = [found[0][0].shape[0], *(weight.shape[1] for weight, _ in found)]
    chained = all(left[0].shape[1] == right[0].shape[0] for left, right in pairwise(found))
    if not chained or (widths[0], widths[-1]) != (len(OBSERVATIONS) * manifest.stack_size, LOGITS):
        raise ModelError(f"{path}: layers {widths} do not fit a stack of {manifest.stack_size}; export the actor again")
    return found
