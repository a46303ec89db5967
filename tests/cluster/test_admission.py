"""The ValidatingAdmissionPolicies as they ship, evaluated by the real API server."""

from __future__ import annotations

from typing import Any

import pytest
import requests
import yaml
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

from rlscaler_core.models import load_bundled
from rlscaler_dev.cluster.kube import KubeClient
from tests.harness import setup
from tests.harness.setup import REPOSITORY
from tests.harness.waiting import until

GROUP = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
NAMESPACE = "admission"
POLICIES = f"/apis/rlscaler.io/v1alpha1/namespaces/{NAMESPACE}/rlscalingpolicies"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
AUTOSCALERS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"


class Raw:
    """Requests whose status and warnings are looked at."""

    def __init__(self, kubeconfig: str) -> None:
        configuration = Configuration()
        load_kube_config(config_file=kubeconfig, client_configuration=configuration)
        self._server, self._session = configuration.host, requests.Session()
        self._session.trust_env = False
        self._session.verify = configuration.ssl_ca_cert
        self._session.cert = (configuration.cert_file, configuration.key_file)

    def __call__(self, method: str, path: str, body: Any, kind: str = "application/json") -> tuple[int, str]:
        """Status, and the warnings or what was refused."""
        headers = {"Content-Type": kind}
        answer = self._session.request(method, self._server + path, json=body, headers=headers, timeout=30)
        return answer.status_code, answer.headers.get("Warning") or answer.json().get("message", "")

    def close(self) -> None:
        self._session.close()


def policy(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    targets = {"cpu": {"deployment": "chat-cpu", "maxReplicas": 10}}
    return {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"targets": targets, "slo": {"latencyMilliseconds": 500}, **spec},
    }


@pytest.fixture(scope="module")
def ask(cluster):
    """All policies in force."""
    raw = Raw(str(cluster.kubeconfig))
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as kube:
        setup.install(kube)
        kube.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        paths = []
        for body in yaml.safe_load_all((REPOSITORY / "admission" / "rlscaler.yaml").read_text()):
            path = f"{GROUP}/{PLURALS[body['kind']]}/{body['metadata']['name']}"
            apply = "application/apply-patch+yaml"
            kube.request("PATCH", f"{path}?fieldManager=test&force=true", body, content_type=apply)
            paths.append(path)
        bad = policy("probe", {"rlscaler.io/paused": "yes"})
        outside = policy("outside", intervalSeconds=300, policy={"bundled": "ppo"})
        # The API server takes up policies once a second, not all of them at once.
        until(lambda: raw("POST", f"{POLICIES}?dryRun=All", bad)[0] == 422)
        until(lambda: "is outside" in raw("POST", f"{POLICIES}?dryRun=All", outside)[1])
        yield raw
        for path in paths:
            kube.delete(path)
    raw.close()


@pytest.mark.parametrize(
    ("annotations", "what"),
    [
        ({"rlscaler.io/paused": "True"}, "pauses nothing"),
        ({"rlscaler.io/paused-scale-down": "1"}, "pauses nothing"),
        ({"rlscaler.io/paused-replicas-cpu": "three"}, "whole numbers"),
        ({"rlscaler.io/paused-replicas-gpu": "3"}, "names a pool that spec.targets leaves out"),
    ],
)
def test_a_pause_that_would_not_do_what_it_says_is_refused(ask, annotations, what):
    status, message = ask("POST", f"{POLICIES}?dryRun=All", policy("pause", annotations))
    assert status == 422
    assert what in message


def test_a_pause_that_does_is_taken(ask):
    annotations = {"rlscaler.io/paused": "true", "rlscaler.io/paused-replicas-cpu": "3"}
    assert ask("POST", f"{POLICIES}?dryRun=All", policy("pause", annotations))[0] == 201


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "chat"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat-cpu"}, "spec": spec}


def test_a_manifest_that_sets_replicas_which_we_set_is_warned_about(ask):
    apply, merge = "application/apply-patch+yaml", "application/merge-patch+json"
    path = f"{DEPLOYMENTS}/chat-cpu"
    applied = f"{path}?fieldManager=argocd-controller&force=true"
    assert ask("PATCH", applied, deployment(2), apply) == (201, "")
    assert ask("PATCH", applied, deployment(3), apply) == (200, "")
    assert ask("PATCH", f"{path}/scale?fieldManager=rlscaler", {"spec": {"replicas": 7}}, merge) == (200, "")
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "app:2"}]
    assert ask("PATCH", path, image, "application/json-patch+json") == (200, "")
    warned = "rlscaler scales this Deployment"
    until(lambda: warned in ask("PATCH", f"{applied}&dryRun=All", deployment(3), apply)[1])
    status, warning = ask("PATCH", applied, deployment(3), apply)
    assert status == 200
    assert warned in warning


@pytest.mark.parametrize(("mode", "warned"), [("Auto", True), ("Shadow", False)])
def test_an_hpa_beside_a_policy_is_warned_about_where_the_policy_acts(ask, mode, warned):
    name = f"beside-{mode.lower()}"
    targets = {"cpu": {"deployment": name, "maxReplicas": 10}}
    assert ask("POST", POLICIES, policy(name, mode=mode, targets=targets))[0] == 201
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    hpa = {"metadata": {"name": name}, "spec": {"scaleTargetRef": reference, "maxReplicas": 5}}

    def answer() -> tuple[int, str]:
        return ask("POST", f"{AUTOSCALERS}?dryRun=All", hpa)

    if warned:
        until(lambda: f"RLScalingPolicy {name} in mode Auto scales Deployment {name}" in answer()[1])
    assert answer()[0] == 201
    assert ("already and will stop acting" in answer()[1]) == warned


GPU = {"deployment": "chat-gpu", "maxReplicas": 10, "requestsPerSecond": 20, "coldStartSeconds": 45}
CPU = {"deployment": "chat-cpu", "maxReplicas": 10, "requestsPerSecond": 4, "coldStartSeconds": 8}
UNSAID = {
    "targets": {
        pool: {name: value for name, value in target.items() if name != "requestsPerSecond"}
        for pool, target in (("gpu", GPU), ("cpu", CPU))
    }
}
"""Without what a replica carries."""

TOKENS = UNSAID | {"capacity": {"unit": "tokens"}, "metrics": {"preset": "vllm"}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({"targets": {"gpu": GPU | {"maxReplicas": 65}, "cpu": CPU}}, "gpu.maxReplicas is outside 2..64"),
        pytest.param({"targets": {"gpu": GPU, "cpu": CPU | {"maxReplicas": 1}}}, "cpu.maxReplicas is outside 2..64"),
        pytest.param({"targets": {"gpu": GPU | {"coldStartSeconds": 901}}}, "gpu.coldStartSeconds is outside 5..900"),
        pytest.param({"targets": {"cpu": CPU | {"coldStartSeconds": 3.9}}}, "cpu.coldStartSeconds is outside 4..300"),
        pytest.param({"targets": {"gpu": GPU | {"requestsPerSecond": 70}, "cpu": CPU}}, "requestsPerSecond gpu/cpu is"),
        pytest.param(
            {"targets": {"gpu": GPU | {"costPerHour": 1}, "cpu": CPU | {"costPerHour": 2}}}, "costPerHour gpu/"
        ),
        pytest.param({"slo": {"latencyMilliseconds": 10_001}}, "slo.latencyMilliseconds is outside 50..10000"),
        pytest.param({"intervalSeconds": 300}, "intervalSeconds is outside 10..60"),
        pytest.param(TOKENS, "capacity.unit is outside requests"),
        pytest.param(TOKENS | {"capacity": {"unit": "concurrency"}}, "capacity.unit is outside requests"),
        pytest.param(
            UNSAID | {"capacity": {"perReplica": {"gpu": 40, "cpu": 40}}}, "capacity.perReplica gpu/cpu is outside"
        ),
        pytest.param(
            {"slo": {"latencyMilliseconds": 500, "signal": "ttft"}, "metrics": {"preset": "vllm"}},
            "slo.signal is outside endToEnd",
        ),
    ],
)
def test_what_the_bundled_model_was_not_trained_for_is_said_at_once(ask, spec, said):
    usual = {"targets": {"gpu": GPU, "cpu": CPU}, "policy": {"bundled": "ppo"}}
    status, warning = ask("POST", f"{POLICIES}?dryRun=All", policy("outside", **usual | spec))
    assert status == 201
    assert said in warning
    assert "the forecast rule alone will act" in warning
    status, warning = ask("POST", f"{POLICIES}?dryRun=All", policy("outside", **usual | spec | {"policy": {}}))
    assert said in warning, "a policy that names no actor has the network"
    own = {"policy": {"bundled": "rule"}, "fallback": {"behavior": "hpaFormula"}}
    status, warning = ask("POST", f"{POLICIES}?dryRun=All", policy("outside", **usual | spec | own))
    assert (status, "outside" in warning) == (201, False), "the forecast rule acts anywhere"


def test_what_it_was_trained_for_is_accepted_without_a_word(ask):
    inside = policy("inside", targets={"gpu": GPU, "cpu": CPU}, policy={"bundled": "ppo"})
    status, warning = ask("POST", f"{POLICIES}?dryRun=All", inside)
    assert (status, "outside" in warning) == (201, False)


def test_the_numbers_are_those_of_the_bundled_manifest():
    text = (REPOSITORY / "admission" / "rlscaler.yaml").read_text()
    envelope = load_bundled("ppo").manifest.envelope
    bounds = {
        "spec.slo.latencyMilliseconds": envelope.slo_ms,
        "spec.intervalSeconds": envelope.interval_seconds,
        "spec.targets.gpu.maxReplicas": envelope.max_replicas.gpu,
        "spec.targets.cpu.maxReplicas": envelope.max_replicas.cpu,
        "spec.targets.gpu.coldStartSeconds": envelope.cold_start_seconds.gpu,
        "spec.targets.cpu.coldStartSeconds": envelope.cold_start_seconds.cpu,
        "costPerHour gpu/cpu": envelope.price_ratio,
        "requestsPerSecond gpu/cpu": envelope.rps_ratio,
    }
    for what, (low, high) in bounds.items():
        assert f"{what} is outside {low:.3g}..{high:.5g}" in text
    low, high = envelope.rps_ratio
    assert f"capacity.perReplica gpu/cpu is outside {low:.3g}..{high:.5g}" in text
    for what, names in {"capacity.unit": envelope.units, "slo.signal": envelope.signals}.items():
        assert f"spec.{what} is outside {' or '.join(names)}'" in text
