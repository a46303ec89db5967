"""The ConfigMap, and what is refused before there is one."""

from __future__ import annotations

import base64
import json
from importlib.resources import files

import pytest
import yaml
from click.testing import CliRunner

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.models import load_bundled
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.service_tuning import publish
from rlscaler_rl.evaluation.service_tuning.publish import publish as command

from .test_verdict import make_verdict


@pytest.fixture
def folder(tmp_path):
    manifest = load_bundled("ppo").manifest
    (tmp_path / "policy.onnx").write_bytes((files("rlscaler_core.models") / "ppo.onnx").read_bytes())
    (tmp_path / "manifest.json").write_text(manifest.model_dump_json())
    judge(tmp_path)
    return tmp_path


def judge(folder, publishable=True, digest=None):
    verdict = make_verdict(publishable, digest or load_bundled("ppo").manifest.digest)
    (folder / "verdict.json").write_text(verdict.model_dump_json(by_alias=True))


def run(*arguments):
    return CliRunner().invoke(command, [str(one) for one in arguments])


def test_the_config_map_holds_an_actor_that_loads(folder):
    result = run(folder)
    assert result.exit_code == 0, result.output
    body = yaml.safe_load(result.stdout)
    assert (body["metadata"]["name"], body["metadata"]["namespace"]) == ("chat-policy", "demo")
    onnx = base64.b64decode(body["binaryData"]["policy.onnx"])
    actor = Actor.load(onnx, Manifest.parse(body["data"]["manifest.json"]))
    assert body["metadata"]["annotations"]["rlscaler.io/policy-digest"] == f"sha256:{actor.manifest.digest}"
    assert body["metadata"]["labels"]["rlscaler.io/policy-digest"] == actor.manifest.digest[:12]
    assert yaml.safe_load(result.stderr.split("\n", 1)[1]) == {
        "spec": {"policy": {"configMap": {"name": "chat-policy", "key": "manifest.json"}}}
    }


def test_as_json_standard_output_has_the_same_object_alone(folder):
    as_json, as_yaml = run(folder, "-o", "json"), run(folder)
    assert json.loads(as_json.stdout) == yaml.safe_load(as_yaml.stdout)
    assert as_json.stderr == as_yaml.stderr


def test_what_must_not_be_published_needs_force(folder):
    judge(folder, publishable=False)
    refused = run(folder)
    assert refused.exit_code == 3
    assert "do not publish" in refused.output
    forced = run(folder, "--force")
    assert forced.exit_code == 0
    assert "do not publish, forced" in forced.stdout


def test_a_verdict_on_another_policy_does_not_count(folder):
    judge(folder, digest="c" * 64)
    with pytest.raises(EvaluationError, match="judges another policy"):
        publish.read_folder(folder)


def test_a_policy_that_nobody_tried_needs_force_and_a_name(folder):
    (folder / "verdict.json").unlink()
    assert "not known what this policy is worth" in run(folder).output
    assert "--name and --namespace" in run(folder, "--force").output
    assert run(folder, "--force", "--name", "chat", "--namespace", "demo").exit_code == 0


@pytest.mark.parametrize("name", ["policy.onnx", "manifest.json"])
def test_a_missing_or_damaged_file_is_named(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-9])
    with pytest.raises(EvaluationError, match=r"sha256|not JSON"):
        publish.read_folder(folder)
    (folder / name).unlink()
    with pytest.raises(EvaluationError, match=name):
        publish.read_folder(folder)


@pytest.mark.parametrize(
    ("name", "namespace"), [("Chat", "demo"), ("chat", "de.mo"), ("-", "demo"), ("a" * 254, "demo")]
)
def test_names_that_kubernetes_refuses_are_refused(folder, name, namespace):
    with pytest.raises(EvaluationError, match=r"--name|--namespace"):
        publish.config_map(publish.read_folder(folder), name, namespace)


def test_a_config_map_has_a_size(folder):
    package = publish.read_folder(folder)
    grown = publish.Package(b"0" * 2**20, package.manifest, package.digest, package.verdict)
    with pytest.raises(EvaluationError, match=r"ConfigMap takes 1,048,576"):
        publish.config_map(grown, "chat", "demo")


def test_no_cluster_is_said(folder, tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    result = run(folder, "--apply", "--kubeconfig", kubeconfig)
    assert result.exit_code == 1
    assert "--kubeconfig" in result.output
