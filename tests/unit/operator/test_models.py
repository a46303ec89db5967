import base64
from importlib.resources import files

import pytest

from rlscaler_core.models import load_bundled
from rlscaler_operator.cluster import models
from rlscaler_operator.cluster.models import ModelFile, from_config_map
from rlscaler_operator.cluster.references import Name
from rlscaler_operator.exceptions import ModelUnavailableError
from rlscaler_rl.evaluation.service_tuning.publish import MANIFEST, config_map, read_folder

GRAPH = (files("rlscaler_core.models") / "ppo.onnx").read_bytes()
TEXT = load_bundled("ppo").manifest.model_dump_json()
NAME = Name("ns", "chat-policy", MANIFEST)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "policy.onnx").write_bytes(GRAPH)
    (tmp_path / "manifest.json").write_text(TEXT)
    return tmp_path


def body(text=TEXT, **graphs):
    encoded = {name: base64.b64encode(graph).decode() for name, graph in graphs.items()}
    return {"data": {MANIFEST: text}, "binaryData": encoded}


def refusal(name, body):
    with pytest.raises(ModelUnavailableError) as caught:
        from_config_map(name, body)
    return caught.value.reason, str(caught.value)


def test_what_publish_writes_is_read(folder):
    published = config_map(read_folder(folder, force=True), "chat-policy", "ns")
    assert from_config_map(NAME, published).manifest.digest == load_bundled("ppo").manifest.digest


def test_the_graph_is_found_by_its_digest_whatever_it_is_called():
    actor = from_config_map(NAME, body(other=b"another model", graph=GRAPH))
    assert actor is from_config_map(NAME, body(policy=GRAPH)), "one model, one actor"


@pytest.mark.parametrize(
    ("content", "reason", "says"),
    [
        (body("{}", graph=GRAPH), "ModelContractMismatch", "contract_version"),
        (body("no json", graph=GRAPH), "ModelInvalid", "not JSON"),
        (body(TEXT.replace(load_bundled("ppo").manifest.digest, "0" * 64), graph=GRAPH), "ModelDigestMismatch", "both"),
        (body(), "ModelDigestMismatch", "no graph beside it"),
        (body(graph=GRAPH[:-1]), "ModelDigestMismatch", "no graph beside it"),
        ({"data": {"other": ""}}, "ModelInvalid", "there are: other"),
        ({}, "ModelInvalid", "there are: none"),
        ({"data": {MANIFEST: TEXT}, "binaryData": {"graph": "*"}}, "ModelInvalid", "base64"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(content, reason, says):
    found, message = refusal(NAME, content)
    assert found == reason
    assert says in message
    assert "ns/chat-policy" in message


def test_a_model_that_states_no_envelope_is_refused():
    text = load_bundled("ppo").manifest.model_copy(update={"envelope": None}).model_dump_json()
    assert "envelope" in refusal(NAME, body(text, graph=GRAPH))[1]


@pytest.fixture
def model_file(folder, monkeypatch):
    monkeypatch.setattr(models, "LOOK_AGAIN_SECONDS", 0.0)
    file = ModelFile(folder, "manifest.json")
    file.refresh()
    assert (file.actor is not None, file.error) == (True, None)
    return file


def test_a_file_is_read_again_when_it_changes_and_only_then(model_file, folder):
    before = model_file.actor
    model_file.refresh()
    assert model_file.actor is before
    (folder / "manifest.json").write_text(TEXT.replace('"ppo"', '"better"'))
    model_file.refresh()
    assert model_file.actor.manifest.name == "better"


@pytest.mark.parametrize("broken", ["policy.onnx", "manifest.json"])
def test_garbage_leaves_the_last_good_model_in_force(model_file, folder, broken):
    before, content = model_file.actor, (folder / broken).read_bytes()
    (folder / broken).write_bytes(content[: len(content) // 2])
    model_file.refresh()
    assert (model_file.actor, model_file.error is not None) == (before, True)
    (folder / broken).write_bytes(content)
    model_file.refresh()
    assert model_file.error is None


def test_a_file_that_is_gone_leaves_the_last_good_model_in_force(model_file, folder):
    (folder / "manifest.json").unlink()
    model_file.refresh()
    assert model_file.error.reason == "ModelMissing"
    assert model_file.actor is not None


def test_a_link_out_of_the_folder_is_refused(folder, monkeypatch):
    inner = folder / "inner"
    inner.mkdir()
    (inner / "manifest.json").symlink_to(folder / "manifest.json")
    file = ModelFile(inner, "manifest.json")
    file.refresh()
    assert file.actor is None
    assert "leads out" in str(file.error)
