"""The network that fine-tuning starts from, out of an ONNX graph and out of an archive."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.types import OBSERVATIONS
from rlscaler_core.models import load_bundled
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import load_start
from rlscaler_rl.evaluation.service_tuning.episodes import ServiceSource
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.training.export import NumpyActor, bare_manifest
from rlscaler_rl.training.finetune import FineTuning
from rlscaler_rl.training.network import weights_of
from rlscaler_rl.training.train import make_model


@pytest.fixture
def model(service, history):
    start = load_start(None)
    config = FineTuning(envs=2).with_agent(buffer_size=4, batch_size=8).config(start, 30, 600)
    take = ServiceSource(service, history, np.random.default_rng(0)).take
    env = SimulatorVecEnv(2, sources=[take], contract=bare_manifest(config).contract, asymmetric=True)
    yield make_model(config, env, None)
    env.close()


def stacked() -> np.ndarray:
    width = len(OBSERVATIONS) * load_bundled("ppo").manifest.stack_size
    return np.random.default_rng(0).uniform(-1, 1, (64, width)).astype(np.float32)


def actor_of(start) -> NumpyActor:
    return NumpyActor(list(start.network.layers), start.manifest)


def test_the_bundled_policys_weights_act_as_its_graph_does():
    start, actor = load_start(None), load_bundled("ppo")
    ours = actor_of(start).probabilities(stacked())
    assert np.allclose(ours, actor.probabilities(stacked()), atol=1e-6)


@pytest.mark.slow
def test_a_model_takes_over_the_weights_under_its_own_standardisation(model):
    start = load_start(None)
    width = model.observation_space.shape[0]
    model.policy.mlp_extractor.calibrate(np.random.default_rng(1).normal(0.3, 0.2, (99, width)).astype(np.float32))
    start.put_into(model.policy)
    theirs = NumpyActor.of(model.policy, start.manifest).probabilities(stacked())
    assert np.allclose(theirs, actor_of(start).probabilities(stacked()), atol=1e-5)


def test_an_archive_and_a_graph_of_the_same_weights_start_alike(model, tmp_path):
    load_start(None).put_into(model.policy)
    model.save(tmp_path / "best_model.zip")
    archived, exported = load_start(str(tmp_path / "best_model.zip")), load_start(None)
    for (weight, bias), (other_weight, other_bias) in zip(
        archived.network.layers, exported.network.layers, strict=True
    ):
        assert np.allclose(weight, other_weight, atol=1e-6)
        assert np.allclose(bias, other_bias, atol=1e-6)


def test_other_sizes_are_refused(model):
    start = load_start(None)
    weight, bias = start.network.layers[0]
    layers = ((weight[:, :-1], bias[:-1]), *start.network.layers[1:])
    narrow = replace(start, network=replace(start.network, layers=layers))
    with pytest.raises(EvaluationError, match="its layers are"):
        narrow.put_into(model.policy)


def copy(folder, change=None):
    actor = load_bundled("ppo")
    from importlib.resources import files

    folder.mkdir(exist_ok=True)
    (folder / "policy.onnx").write_bytes((files("rlscaler_core.models") / "ppo.onnx").read_bytes())
    body = actor.manifest.model_dump(mode="json")
    (folder / "manifest.json").write_text(json.dumps(body | (change or {})))
    return str(folder)


def test_a_folder_is_a_start(tmp_path):
    assert load_start(copy(tmp_path)).manifest.digest == load_bundled("ppo").manifest.digest


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"contract_version": "rlscaler.io/observation/v9"}, "contract_version"),
        ({"stack_size": 5}, "stack_size 5"),
        ({"digest": "0" * 64}, "sha256"),
    ],
)
def test_another_contract_or_width_is_refused(tmp_path, change, named):
    with pytest.raises(EvaluationError, match=named):
        load_start(copy(tmp_path, change))


def test_the_rule_is_no_start_and_neither_is_a_pickle(tmp_path):
    with pytest.raises(EvaluationError, match="no network"):
        load_start("rule")
    with pytest.raises(EvaluationError, match="pickle"):
        load_start(str(tmp_path / "model.pt"))


def test_a_graph_of_another_kind_is_refused(tmp_path):
    node = helper.make_node("Relu", ["observation"], ["logits"])
    shapes = [helper.make_tensor_value_info(name, 1, ["N", 40]) for name in ("observation", "logits")]
    onnx.save(helper.make_model(helper.make_graph([node], "actor", shapes[:1], shapes[1:])), tmp_path / "a.onnx")
    with pytest.raises(ModelError, match="Relu is no chain of Gemm and Tanh"):
        weights_of(tmp_path / "a.onnx", load_bundled("ppo").manifest)
