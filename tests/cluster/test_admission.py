"""The ValidatingAdmissionPolicies as they ship, evaluated by the real API server."""

from __future__ import annotations

from typing import Any

import pytest
import requests
import yaml
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

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
        until(lambda: raw("POST", f"{POLICIES}?dryRun=All", bad)[0] == 422)
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
    # The API server takes up policies once a second, not all of them at once.
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
