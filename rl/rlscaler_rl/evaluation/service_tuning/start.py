"""The network that fine-tuning starts from: an ONNX artefact with its manifest, or a stable-baselines3 .zip.

Neither is unpickled or run: weights are read from the graph's initialisers, or from the archive's state dict.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_rl.evaluation.models import Loaded, load
from rlscaler_rl.evaluation.service_tuning.errors import TailoringError
from rlscaler_rl.training.archive import actor_from_zip
from rlscaler_rl.training.network import BUNDLED, Network, bundled_network, weights_of

ARCHIVE = ".zip"


@dataclass(frozen=True, slots=True)
class Start:
    """A general policy and what it is made of."""

    loaded: Loaded
    network: Network

    @property
    def manifest(self) -> Manifest:
        return self.network.manifest

    @property
    def hidden_size(self) -> int:
        return self.network.hidden_size

    def put_into(self, policy: torch.nn.Module) -> None:
        """Overwrite the actor of a `training.policy.ScalingPolicy` of the same sizes. Raises TailoringError."""
        try:
            self.network.put_into(policy)
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
        return Start(loaded, _network(loaded))
    except (ModelError, ValueError) as error:
        raise TailoringError(str(error)) from error


def _network(loaded: Loaded) -> Network:
    manifest = loaded.actor.manifest
    if loaded.path is None:
        if not isinstance(loaded.actor, Actor):
            raise ModelError(f"--model {loaded.name}: has no network to start from; use {BUNDLED} or a training folder")
        return bundled_network()
    if loaded.path.suffix == ARCHIVE:
        return Network(manifest, tuple(actor_from_zip(loaded.path).layers))
    return Network(manifest, tuple(weights_of(loaded.path, manifest)))
