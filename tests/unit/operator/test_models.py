import base64
import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.resources import files

import pytest

from rlscaler_core.models import load_bundled
from rlscaler_operator.cluster import models
from rlscaler_operator.cluster.models import ModelFile, from_config_map
from rlscaler_operator.cluster.references import Name
from rlscaler_operator.exceptions import ModelUnavailableError
from rlscaler_rl.evaluation.service_tuning.publish import MANIFEST, config_map, read_folder
from tests.harness import hostile_models as hostile

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


def test_a_model_of_an_earlier_release_is_refused_with_the_range_to_state():
    said = json.loads(load_bundled("ppo").manifest.model_dump_json())
    del said["envelope"]["max_replicas"]
    message = refusal(NAME, body(json.dumps(said), graph=GRAPH))[1]
    assert "envelope.max_replicas: Field required" in message
    assert '"gpu": [5, 20]' in message


def test_a_model_that_states_no_envelope_is_refused():
    text = load_bundled("ppo").manifest.model_copy(update={"envelope": None}).model_dump_json()
    assert "envelope" in refusal(NAME, body(text, graph=GRAPH))[1]


def test_a_hostile_network_is_refused_and_loaded_nowhere():
    graph = bytes(hostile.fill().SerializeToString())
    text = load_bundled("ppo").manifest.model_copy(
        update={"stack_size": 4, "digest": hashlib.sha256(graph).hexdigest()}
    )
    reason, message = refusal(NAME, body(text.model_dump_json(), graph=graph))
    assert reason == "ModelInvalid"
    assert "takes more than 128 MiB" in message


@pytest.mark.parametrize("text", ["[" * 900_000, '{"a":' * 150_000])
def test_a_manifest_without_an_end_is_refused(text):
    reason, message = refusal(NAME, body(text, graph=GRAPH))
    assert reason == "ModelInvalid"
    assert "not JSON" in message


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as pool:
        yield pool


def look(file):
    """Look at the files, wait for what that began, and take it."""
    file.refresh()
    if file.loading is not None:
        wait([file.loading])
        file.refresh()


def test_nobody_waits_for_a_model_that_is_loaded(folder, threads):
    gate = threading.Event()
    threads.submit(gate.wait)
    file = ModelFile(folder, "manifest.json", threads)
    try:
        file.refresh()
        assert (file.pending, file.loading.done()) == (True, False)
    finally:
        gate.set()
    look(file)
    assert file.actor is not None


@pytest.fixture
def model_file(folder, monkeypatch, threads):
    monkeypatch.setattr(models, "LOOK_AGAIN_SECONDS", 0.0)
    file = ModelFile(folder, "manifest.json", threads)
    look(file)
    assert (file.actor is not None, file.error) == (True, None)
    return file


def test_a_file_is_read_again_when_it_changes_and_only_then(model_file, folder):
    before = model_file.actor
    look(model_file)
    assert model_file.actor is before
    (folder / "manifest.json").write_text(TEXT.replace('"ppo"', '"better"'))
    look(model_file)
    assert model_file.actor.manifest.name == "better"


@pytest.mark.parametrize("broken", ["policy.onnx", "manifest.json"])
def test_garbage_leaves_the_last_good_model_in_force(model_file, folder, broken):
    before, content = model_file.actor, (folder / broken).read_bytes()
    (folder / broken).write_bytes(content[: len(content) // 2])
    look(model_file)
    assert (model_file.actor, model_file.error is not None) == (before, True)
    (folder / broken).write_bytes(content)
    look(model_file)
    assert model_file.error is None


def test_a_file_that_is_gone_leaves_the_last_good_model_in_force(model_file, folder):
    (folder / "manifest.json").unlink()
    look(model_file)
    assert model_file.error.reason == "ModelMissing"
    assert model_file.actor is not None


def test_a_link_out_of_the_folder_is_refused(folder, threads):
    inner = folder / "inner"
    inner.mkdir()
    (inner / "manifest.json").symlink_to(folder / "manifest.json")
    file = ModelFile(inner, "manifest.json", threads)
    look(file)
    assert file.actor is None
    assert "leads out" in str(file.error)
