"""A policy for one service as a ConfigMap on a real API server, and back."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from kubernetes import client, config

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.models import load_bundled
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_rl.evaluation.service_tuning.publish import publish

NAMESPACE = f"publish-{uuid.uuid4().hex[:8]}"
NAME = "chat-policy"


@pytest.fixture(scope="module")
def core(cluster: ClusterInfo) -> Iterator[client.CoreV1Api]:
    with config.new_client_from_config(str(cluster.kubeconfig)) as connection:
        api = client.CoreV1Api(connection)
        api.create_namespace({"metadata": {"name": NAMESPACE}})
        yield api
        api.delete_namespace(NAMESPACE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What training leaves, without a verdict."""
    (tmp_path / "policy.onnx").write_bytes((files("rlscaler_core.models") / "ppo.onnx").read_bytes())
    (tmp_path / "manifest.json").write_text(load_bundled("ppo").manifest.model_dump_json())
    return tmp_path


def applied(folder: Path, cluster: ClusterInfo, name: str = NAME, namespace: str = NAMESPACE) -> Result:
    options = ["--force", "--apply", "--name", name, "--namespace", namespace, "--kubeconfig", str(cluster.kubeconfig)]
    return CliRunner().invoke(publish, [str(folder), *options])


def test_what_is_applied_reads_back_as_an_actor(core: client.CoreV1Api, cluster: ClusterInfo, folder: Path) -> None:
    first = applied(folder, cluster)
    assert first.exit_code == 0, first.output
    assert applied(folder, cluster).output == first.output, "applied again, nothing changes"
    stored = core.read_namespaced_config_map(NAME, NAMESPACE)
    manifest = Manifest.parse(stored.data["manifest.json"])
    actor = Actor.load(base64.b64decode(stored.binary_data["policy.onnx"]), manifest)
    observation = np.zeros((3, 10 * manifest.stack_size), np.float32)
    assert np.array_equal(actor.probabilities(observation), load_bundled("ppo").probabilities(observation))
    assert stored.metadata.annotations["rlscaler.io/policy-digest"] == f"sha256:{manifest.digest}"
    assert {entry.manager for entry in stored.metadata.managed_fields} == {"rlscaler-publish"}


def test_what_somebody_else_wrote_is_not_overwritten(
    core: client.CoreV1Api, cluster: ClusterInfo, folder: Path
) -> None:
    body = {"metadata": {"name": "taken"}, "data": {"manifest.json": "{}"}}
    core.create_namespaced_config_map(NAMESPACE, body, field_manager="kubectl")
    refused = applied(folder, cluster, name="taken")
    assert refused.exit_code == 1
    assert "choose another --name" in refused.output


def test_a_namespace_that_is_not_there_is_named(cluster: ClusterInfo, folder: Path) -> None:
    refused = applied(folder, cluster, namespace="nowhere")
    assert refused.exit_code == 1
    assert "create the namespace first" in refused.output
