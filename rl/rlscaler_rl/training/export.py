"""From a trained policy to ONNX and its manifest."""

from __future__ import annotations

import hashlib
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from rlscaler_rl.decision.action import LOGITS, head_probabilities
from rlscaler_rl.decision.actor import INPUT, OUTPUT
from rlscaler_rl.decision.manifest import Envelope, Manifest, Normalisation, Training
from rlscaler_rl.decision.types import Float32
from rlscaler_rl.simulation.randomisation import envelope
from rlscaler_rl.training.config import TrainingConfig

OPSET, IR_VERSION = 17, 9


class NumpyActor:
    """A tanh network behind the interface of `decision.actor.Actor`, without a file: evaluation during training."""

    def __init__(self, layers: list[tuple[Float32, Float32]], manifest: Manifest) -> None:
        """`layers` are (weight (in, out), bias (out,)) from input to logits."""
        self.manifest = manifest
        self.layers = layers

    @classmethod
    def of(cls, policy: Any, manifest: Manifest) -> Self:
        """The policy's actor as it is now."""
        linear = [layer for layer in layers(policy) if isinstance(layer, nn.Linear)]
        pairs = [(layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy()) for layer in linear]
        return cls(pairs, manifest)

    def probabilities(self, stacked: Float32) -> Float32:
        """(N, 10 k) -> (N, 13)."""
        hidden = stacked
        for weight, bias in self.layers[:-1]:
            hidden = np.tanh(hidden @ weight + bias)
        weight, bias = self.layers[-1]
        return head_probabilities(hidden @ weight + bias)


def layers(policy: Any) -> list[nn.Module]:
    """The actor's layers from input to logits."""
    return [*policy.mlp_extractor.policy_net, policy.action_net]


def bare_manifest(config: TrainingConfig, name: str = "ppo") -> Manifest:
    """What evaluation inside training needs: no digest, no envelope."""
    environment = config.environment
    return Manifest(name=name, stack_size=environment.stack_size, residual=environment.residual)


def to_onnx(actor_layers: list[nn.Module], width: int) -> bytes:
    """`observation` (N, width) -> `logits` (N, 13), float32, any N."""
    nodes, weights, value = [], [], INPUT
    for index, layer in enumerate(actor_layers):
        name = OUTPUT if index == len(actor_layers) - 1 else f"layer{index}"
        if isinstance(layer, nn.Linear):
            weights.append(numpy_helper.from_array(layer.weight.detach().numpy(), f"{name}.weight"))
            weights.append(numpy_helper.from_array(layer.bias.detach().numpy(), f"{name}.bias"))
            nodes.append(helper.make_node("Gemm", [value, f"{name}.weight", f"{name}.bias"], [name], transB=1))
        elif isinstance(layer, nn.Tanh):
            nodes.append(helper.make_node("Tanh", [value], [name]))
        else:
            raise TypeError(f"{type(layer).__name__}: only Linear and Tanh layers are exported")
        value = name
    graph = helper.make_graph(
        nodes,
        "actor",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", width])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", LOGITS])],
        weights,
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="rlscaler")
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def export(policy: Any, config: TrainingConfig, steps: int, name: str = "ppo") -> tuple[bytes, Manifest]:
    """The graph and the manifest that names it by digest."""
    content = to_onnx(layers(policy), policy.mlp_extractor.actor_width)
    contract = config.environment.contract()
    manifest = Manifest(
        name=name,
        stack_size=contract.stack_size,
        residual=config.environment.residual,
        neutral=contract.neutral,
        normalisation=Normalisation(**{field: getattr(contract, field) for field in Normalisation.model_fields}),
        digest=hashlib.sha256(content).hexdigest(),
        envelope=Envelope.model_validate(envelope(config.environment.ranges())),
        training=Training(
            seed=config.agent.seed,
            steps=steps,
            git_revision=_revision(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={package: version(package) for package in ("torch", "stable-baselines3", "numpy", "numba")},
            hyperparameters={"environment": config.environment.model_dump(), "agent": config.agent.model_dump()},
        ),
    )
    return content, manifest


def write(folder: Path, stem: str, manifest_name: str, content: bytes, manifest: Manifest) -> None:
    """The graph first, so that a manifest never names a file that is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.onnx").write_bytes(content)
    (folder / manifest_name).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")


def _revision() -> str | None:
    """The git revision of the source tree, None outside of one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
