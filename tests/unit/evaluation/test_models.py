"""Which model is meant, and what is refused with which remedy."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from rlscaler_core.decision.manifest import Manifest
from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.training.export import actor_layers, to_onnx, write

STACK, WIDTH = 4, 40


def training(folder, units=8):
    """A training folder as `rlscaler train` leaves it: ONNX, manifest, archive of the same weights."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    layers = [nn.Linear(WIDTH, units), nn.Tanh(), nn.Linear(units, units), nn.Tanh(), nn.Linear(units, 13)]
    names = {0: "mlp_extractor.policy_net.0", 2: "mlp_extractor.policy_net.2", 4: "action_net"}
    weights = {f"{name}.{key}": value for i, name in names.items() for key, value in layers[i].state_dict().items()}
    weights |= {"mlp_extractor.shift": torch.full((WIDTH,), 0.5), "mlp_extractor.scale": torch.full((WIDTH,), 2.0)}
    content = to_onnx(actor_layers(weights))
    import hashlib

    manifest = Manifest(name="test", stack_size=STACK, digest=hashlib.sha256(content).hexdigest())
    write(folder, "policy", "manifest.json", content, manifest)
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    with zipfile.ZipFile(folder / "best_model.zip", "w") as archive:
        archive.writestr("policy.pth", buffer.getvalue())
    return folder


def test_folder_onnx_and_zip_are_the_same_network(tmp_path):
    folder = training(tmp_path / "training_20260101_000000")
    stacked = np.random.default_rng(0).standard_normal((5, WIDTH)).astype(np.float32)
    loaded = [models.load(str(path), tmp_path) for path in (folder, folder / "policy.onnx", folder / "best_model.zip")]
    found = [item.actor.probabilities(stacked) for item in loaded]
    np.testing.assert_allclose(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)


def test_the_newest_finished_training_is_the_default(tmp_path):
    training(tmp_path / "training_20260101_000000")
    newest = training(tmp_path / "training_20260102_000000")
    (tmp_path / "training_20260103_000000").mkdir()
    assert models.load(None, tmp_path).path == newest / "policy.onnx"


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl"])
def test_a_pickle_is_refused_before_it_is_opened(tmp_path, suffix):
    bomb = tmp_path / f"model{suffix}"
    with pytest.raises(EvaluationError, match=r"runs whatever code is in it.*policy\.onnx"):
        models.load(str(bomb), tmp_path)


def test_code_in_an_archive_does_not_run(tmp_path):
    folder = training(tmp_path / "training_1")

    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    buffer = io.BytesIO()
    torch.save({"action_net.weight": Bomb()}, buffer)
    with zipfile.ZipFile(folder / "best_model.zip", "w") as archive:
        archive.writestr("policy.pth", buffer.getvalue())
    with pytest.raises(EvaluationError, match="no weights can be read"):
        models.load(str(folder / "best_model.zip"), tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.onnx", None, "no such file"),
        ("alone.onnx", b"x", "manifest is missing"),
        ("notes.txt", b"x", "expected a training folder"),
    ],
)
def test_a_wrong_model_names_itself_and_the_remedy(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(EvaluationError, match=message) as caught:
        models.load(str(tmp_path / name), tmp_path)
    assert name in caught.value.message
    assert caught.value.exit_code == 2


def test_an_empty_folder_is_not_a_model(tmp_path):
    with pytest.raises(EvaluationError, match="has the training finished"):
        models.load(str(tmp_path), tmp_path)


def test_a_damaged_file_is_refused(tmp_path):
    folder = training(tmp_path / "training_1")
    path = folder / "policy.onnx"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(EvaluationError, match="damaged"):
        models.load(str(path), tmp_path)


def test_a_folder_of_seeds_is_one_recipe_shipped_first(tmp_path):
    for number in (10, 2, 1):
        training(tmp_path / "many" / f"seed_{number}")
    names = [loaded.name for loaded in models.load_all([str(tmp_path / "many")], tmp_path)]
    assert names == ["seed_1", "seed_2", "seed_10"]


def test_the_seed_that_was_exported_is_the_one_that_ships(tmp_path):
    many = training(tmp_path / "many")
    for number in (1, 2, 3):
        training(many / f"seed_{number}")
    (many / "seeds.json").write_text('{"best": 2}')
    names = [loaded.name for loaded in models.load_all([str(many)], tmp_path)]
    assert names == ["seed_2", "seed_1", "seed_3"]
    (many / "seeds.json").write_text("{}")
    with pytest.raises(EvaluationError, match=r"seeds\.json cannot be read"):
        models.load_all([str(many)], tmp_path)


def test_an_archive_is_fed_as_its_manifest_says(tmp_path):
    folder = training(tmp_path / "training_1")
    path = folder / "manifest.json"
    said = Manifest.load(path)
    timed = said.normalisation.model_copy(update={"clip": 2.0})
    path.write_text(said.model_copy(update={"normalisation": timed}).model_dump_json())
    assert models.load(str(folder / "best_model.zip"), tmp_path).actor.manifest.contract.clip == 2.0
    path.write_text(said.model_copy(update={"contract_version": "rlscaler.io/observation/v0"}).model_dump_json())
    with pytest.raises(EvaluationError, match="contract_version"):
        models.load(str(folder / "best_model.zip"), tmp_path)
    path.write_text("{")
    with pytest.raises(EvaluationError, match="not JSON"):
        models.load(str(folder / "best_model.zip"), tmp_path)
    path.unlink()
    (folder / "config.json").write_text('{"environment": {"residual": true}}')
    manifest = models.load(str(folder / "best_model.zip"), tmp_path).actor.manifest
    assert manifest.residual


def test_another_recipe_is_no_training_seed(tmp_path):
    training(tmp_path / "a")
    with pytest.raises(EvaluationError, match="not another seed"):
        models.load_all([str(tmp_path / "a"), "rule"], tmp_path)


def test_a_model_that_changes_while_it_is_played_is_refused(tmp_path):
    first = models.load(str(training(tmp_path / "training")), tmp_path)
    assert models.load_again(first.source, first.digest).digest == first.digest
    training(tmp_path / "training", units=12)
    with pytest.raises(EvaluationError, match="changed while it was played"):
        models.load_again(first.source, first.digest)
