"""Export of a trained network: the ONNX graph, its manifest, and the distribution of its training observations."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from rlscaler_core.decision.action import LOGITS, head_probabilities
from rlscaler_core.decision.actor import INPUT, OUTPUT, Actor, ActorLike
from rlscaler_core.decision.manifest import Envelope, LearnedPrices, Manifest, Training
from rlscaler_core.decision.rule import DEFAULT_SETTINGS
from rlscaler_core.decision.training_distribution import TrainingDistribution
from rlscaler_core.decision.types import OBSERVATIONS, Float32
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.ranges import Ranges, envelope
from rlscaler_rl.simulation.scenario_buffer import sources_of
from rlscaler_rl.training.config import EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.files import write_atomically

OPSET, IR_VERSION = 17, 9


class NumpyActor:
    """A tanh network behind the interface of `decision.actor.Actor`, without a file: evaluation during training."""

    def __init__(self, layers: list[tuple[Float32, Float32]], manifest: Manifest) -> None:
        """`layers` are (weight (in, out), bias (out,)) from input to logits."""
        self.manifest = manifest
        self.layers = layers

    @classmethod
    def of(cls, policy: Any, manifest: Manifest) -> Self:
        """Return the actor of a stable-baselines3 policy as it is now."""
        return cls(actor_layers(policy.state_dict()), manifest)

    def probabilities(self, stacked: Float32) -> Float32:
        """(N, 10 k) -> (N, 13)."""
        hidden = stacked
        for weight, bias in self.layers[:-1]:
            hidden = np.tanh(hidden @ weight + bias)
        weight, bias = self.layers[-1]
        return head_probabilities(hidden @ weight + bias)


def actor_layers(state: Mapping[str, torch.Tensor]) -> list[tuple[Float32, Float32]]:
    """(weight (in, out), bias (out,)) from observation to logits out of a policy's state dict.

    The standardisation of the inputs is folded into the first layer. Raises KeyError for another network's weights.
    """
    hidden = sorted(
        name.removesuffix(".weight") for name in state if name.startswith(_HIDDEN) and name.endswith("weight")
    )
    pairs = [
        (state[f"{name}.weight"].double().cpu().numpy().T.copy(), state[f"{name}.bias"].double().cpu().numpy().copy())
        for name in [*hidden, "action_net"]
    ]
    weight, bias = pairs[0]
    shift, scale = (state[f"mlp_extractor.{name}"].double().cpu().numpy()[: len(weight)] for name in ("shift", "scale"))
    # (x - shift) * scale @ W + b = x @ (scale * W) + (b - shift @ (scale * W)): the graph takes raw observations.
    weight = weight * scale[:, None]
    pairs[0] = weight, bias - shift @ weight
    return [(w.astype(np.float32), b.astype(np.float32)) for w, b in pairs]


def set_actor_layers(policy: nn.Module, layers: Sequence[tuple[Float32, Float32]]) -> None:
    """Invert `actor_layers`, under the standardisation of the module. Raises ValueError for other sizes."""
    networks = policy.mlp_extractor
    linear = [layer for layer in [*networks.policy_net, policy.action_net] if isinstance(layer, nn.Linear)]
    theirs, ours = [(layer.in_features, layer.out_features) for layer in linear], [weight.shape for weight, _ in layers]
    if theirs != ours:
        raise ValueError(f"its layers are {ours} and the policy's {theirs}")
    weight, bias = (array.astype(np.float64) for array in layers[0])
    shift, scale = (getattr(networks, name).double().cpu().numpy()[: len(weight)] for name in ("shift", "scale"))
    pairs = [(weight / scale[:, None], bias + shift @ weight), *layers[1:]]
    with torch.no_grad():
        for layer, (weight, bias) in zip(linear, pairs, strict=True):
            layer.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight.T)))
            layer.bias.copy_(torch.from_numpy(np.array(bias)))


_HIDDEN = "mlp_extractor.policy_net"


PRICES = LearnedPrices(
    **{name: float(np.asarray(getattr(DEFAULT_SETTINGS, name))) for name in LearnedPrices.model_fields}
)
"""Prices of the rule under a new network for its memory of a service: the default rule's."""


def bare_manifest(config: TrainingConfig, name: str = "ppo") -> Manifest:
    """Return the manifest for evaluation inside training: no digest, no envelope."""
    environment = config.environment
    return Manifest(
        name=name,
        stack_size=environment.stack_size,
        residual=environment.residual,
        lasting=environment.residual and environment.lasting,
        learned=PRICES if environment.past_hours() else None,
    )


def to_onnx(layers: list[tuple[Float32, Float32]]) -> bytes:
    """Layers with tanh between them as a graph `observation` (N, width) -> `logits` (N, 13), float32, any N."""
    nodes, weights, value = [], [], INPUT
    for index, (weight, bias) in enumerate(layers):
        last = index == len(layers) - 1
        name = OUTPUT if last else f"layer{index}"
        weights.append(numpy_helper.from_array(weight, f"{name}.weight"))
        weights.append(numpy_helper.from_array(bias, f"{name}.bias"))
        nodes.append(helper.make_node("Gemm", [value, f"{name}.weight", f"{name}.bias"], [name]))
        if not last:
            nodes.append(helper.make_node("Tanh", [name], [f"{name}.tanh"]))
        value = f"{name}.tanh"
    graph = helper.make_graph(
        nodes,
        "actor",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", len(layers[0][0])])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", LOGITS])],
        weights,
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="rlscaler")
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def export(
    policy: Any, config: TrainingConfig, steps: int, name: str = "ppo", device: Mapping[str, Any] | None = None
) -> tuple[bytes, Manifest]:
    """Return the graph and the manifest that names it by digest and says the `device` of the training."""
    content = to_onnx(actor_layers(policy.state_dict()))
    origin = Training(
        seed=config.agent.seed,
        steps=steps,
        git_revision=_revision(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions("torch", "stable-baselines3", "numpy", "numba"),
        hyperparameters={"environment": config.environment.model_dump(), "agent": config.agent.model_dump()},
        **({"device": dict(device)} if device else {}),
    )
    manifest = bare_manifest(config, name).model_copy(
        update={
            "digest": hashlib.sha256(content).hexdigest(),
            "envelope": Envelope.model_validate(envelope(config.environment.ranges())),
            "training": origin,
        }
    )
    return content, manifest


@dataclass(frozen=True, slots=True)
class Artefact:
    """A network and its manifest on their way to files."""

    content: bytes
    manifest: Manifest

    def actor(self) -> Actor:
        return Actor.load(self.content, self.manifest)


def trained_on(base: Manifest, content: bytes, name: str, training: Training, **changes: Any) -> Artefact:
    """A network that was trained on from the one with the manifest `base`: fed alike, of its own digest and origin."""
    own = {"name": name, "digest": hashlib.sha256(content).hexdigest(), "training": training}
    return Artefact(content, base.model_copy(update=own | changes))


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of packages, as a manifest names them."""
    return {package: version(package) for package in packages}


def write(folder: Path, stem: str, manifest_name: str, content: bytes, manifest: Manifest) -> None:
    """The graph first, so that a manifest never names a file that is not there.

    A manifest names a rule only where the action is added to it, learned prices only where the rule learns, and
    consumers only where it is for them: releases that do not know these fields read the others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"{stem}.onnx", content)
    unused = {"rule": not manifest.residual, "learned": manifest.learned is None, "lasting": not manifest.lasting}
    exclude: dict[str, Any] = {name: True for name, is_unused in unused.items() if is_unused}
    if manifest.envelope is not None and manifest.envelope.consumers is None:
        exclude["envelope"] = {"consumers"}
    body = manifest.model_dump_json(indent=1, exclude=exclude)
    write_atomically(folder / manifest_name, body + "\n")


def _revision() -> str | None:
    """The git revision of the source tree, None outside of one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


FAMILIAR_EPISODES, SECONDS, SEED = 128, 600, 97
"""Episodes of every interval and their length; drawn as training draws them, by a seed that no training uses."""

MARGIN = 1.5
"""Factor on the distance of the furthest observation here up to which one is familiar: training sees millions."""


def familiar(actor: ActorLike, ranges: Ranges, hours: float, episodes: int = FAMILIAR_EPISODES) -> TrainingDistribution:
    """Return the distribution of the actor's observations on random episodes of its training, `episodes` per interval.

    Their services have a history of up to `hours`.
    """
    recording = _Observed(actor)
    rngs = np.random.default_rng(SEED).spawn(len(ranges.intervals))
    short = replace(ranges, durations=(SECONDS,))
    for source in sources_of(rngs, short, hours=hours, services=episodes):
        run(source.take(episodes), recording)
    return TrainingDistribution.of(np.concatenate(recording.seen).astype(np.float64), MARGIN)


def with_familiar(actor: ActorLike, episodes: int = FAMILIAR_EPISODES) -> Manifest:
    """Return the manifest of a generally trained network with its observation distribution; some ten seconds."""
    manifest = actor.manifest
    if manifest.envelope is None:
        return manifest
    environment = EnvironmentConfig.model_validate(manifest.training.hyperparameters["environment"])
    measured = familiar(actor, environment.ranges(), environment.past_hours(), episodes)
    return manifest.model_copy(update={"envelope": manifest.envelope.model_copy(update={"observation": measured})})


class _Observed:
    """An actor that remembers its observations, and acts everywhere."""

    def __init__(self, actor: ActorLike) -> None:
        self._actor = actor
        self.manifest = actor.manifest.model_copy(update={"envelope": None})
        self.seen: list[Float32] = []

    def probabilities(self, stacked: Float32) -> Float32:
        """The newest observation is the last of the stack."""
        self.seen.append(stacked[:, -len(OBSERVATIONS) :].copy())
        return self._actor.probabilities(stacked)
