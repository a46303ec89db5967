"""What the operator needs in a cluster before it can run: its API and its permissions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

import rlscaler_operator
from rlscaler_dev.cluster.kube import KubeClient
from tests.harness.waiting import until

REPOSITORY = Path(__file__).parents[2]
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPLY = "application/apply-patch+yaml"


def install(kube: KubeClient) -> None:
    """The CRD as it ships."""
    kube.apply(yaml.safe_load((REPOSITORY / "crds" / "rlscalingpolicies.yaml").read_text()))
    until(lambda: kube.request("GET", "/apis/rlscaler.io/v1alpha1/rlscalingpolicies"))


def shipped_roles() -> dict[str, dict[str, Any]]:
    """Every role that ships with the operator, by name."""
    folder = Path(rlscaler_operator.__file__).parent
    texts = [(folder / name).read_text() for name in ("rbac.yaml", "rbac-optional.yaml")]
    return {role["metadata"]["name"]: role for text in texts for role in yaml.safe_load_all(text)}


def permit(kube: KubeClient, account: str = "rlscaler", namespace: str | None = None) -> None:
    """A service account with the permissions that ship with the operator, and no others.

    They reach the whole cluster, or only `namespace` and the Lease's.
    """
    roles = shipped_roles()
    kube.request("POST", ACCOUNTS, {"metadata": {"name": account}})
    grant(kube, account, "operator", roles["rlscaler-operator"]["rules"], namespace)
    grant(kube, account, "lease", roles["rlscaler-lease"]["rules"] + roles["rlscaler-shards"]["rules"], "default")


def permit_budgets(kube: KubeClient, account: str = "rlscaler") -> None:
    """The CRD of budgets, and for a service account the permission for them, as they ship."""
    kube.apply(yaml.safe_load((REPOSITORY / "crds" / "budgets" / "rlscalingbudgets.yaml").read_text()))
    until(lambda: kube.request("GET", "/apis/rlscaler.io/v1alpha1/rlscalingbudgets"))
    grant(kube, account, "budgets", shipped_roles()["rlscaler-budgets"]["rules"])


@contextmanager
def new_pods(kube: KubeClient) -> Iterator[None]:
    """The MutatingAdmissionPolicy of new pods, as it ships, in force until the block ends."""
    apply_new_pods(kube)
    yield
    delete_new_pods(kube)


def apply_new_pods(kube: KubeClient) -> None:
    """Put the MutatingAdmissionPolicy of new pods and its binding in force."""
    for path, body in _new_pods().items():
        kube.request("PATCH", f"{path}?fieldManager=test&force=true", body, content_type=APPLY)


def delete_new_pods(kube: KubeClient) -> None:
    for path in _new_pods():
        kube.delete(path)


def _new_pods() -> dict[str, Any]:
    """What `admission/new-pods.yaml` has, by path."""
    plural = {"MutatingAdmissionPolicy": "policies", "MutatingAdmissionPolicyBinding": "policybindings"}
    bodies = yaml.safe_load_all((REPOSITORY / "admission" / "new-pods.yaml").read_text())
    return {f"{ADMISSION}/mutatingadmission{plural[body['kind']]}/{body['metadata']['name']}": body for body in bodies}


VERTICAL_AUTOSCALERS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "verticalpodautoscalers.autoscaling.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"},
    },
    "spec": {
        "group": "autoscaling.k8s.io",
        "names": {"kind": "VerticalPodAutoscaler", "plural": "verticalpodautoscalers", "shortNames": ["vpa"]},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""As far as the operator reads them."""


@contextmanager
def vertical_autoscalers(kube: KubeClient) -> Iterator[None]:
    """VerticalPodAutoscalers can be made until the block ends."""
    path = f"{DEFINITIONS}/{VERTICAL_AUTOSCALERS['metadata']['name']}"
    kube.apply(VERTICAL_AUTOSCALERS)
    until(lambda: kube.request("GET", "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers"))
    yield
    kube.delete(path)
    until(lambda: kube.find(path) is None, 60)


def grant(kube: KubeClient, account: str, what: str, rules: list[Any], namespace: str | None = None) -> None:
    """A role for the service account of namespace default, and its binding; without `namespace` for the cluster."""
    name, kind = f"{account}-{what}", "ClusterRole" if namespace is None else "Role"
    collection = f"{RBAC}/{'' if namespace is None else f'namespaces/{namespace}/'}{kind.lower()}"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    kube.request("POST", f"{collection}s", {"metadata": {"name": name}, "rules": rules})
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    kube.request("POST", f"{collection}bindings", binding)


def obey(kube: KubeClient, message: str) -> None:
    """Do what the two kubectl commands in a message say: create a Role for one object, and bind it."""
    commands = message[message.index("kubectl") :].partition(";")[0].split(" && ")
    role, binding = (shlex.split(command)[3:] for command in commands)
    options = dict(word[2:].split("=", 1) for word in (*role, *binding) if word.startswith("--"))
    name, namespace = role[0], role[role.index("-n") + 1]
    assert (binding[0], binding[binding.index("-n") + 1], options["role"]) == (name, namespace, name)
    rule = {"apiGroups": [""], "resources": [options["resource"]], "verbs": [options["verb"]]}
    collection = f"{RBAC}/namespaces/{namespace}"
    rules = [rule | {"resourceNames": [options["resource-name"]]}]
    kube.request("POST", f"{collection}/roles", {"metadata": {"name": name}, "rules": rules})
    of, account = options["serviceaccount"].split(":")
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": of}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    kube.request("POST", f"{collection}/rolebindings", body)


def token(kube: KubeClient, bound_to: dict[str, Any] | None = None, account: str = "rlscaler") -> str:
    """A token of an operator's service account; one that is bound to an object ends with it."""
    return kube.token("default", account, bound_to)


def write_kubeconfig(path: Path, template: Path, bearer: str, server: str | None = None) -> Path:
    """The kubeconfig `template` with a token instead of its credentials, and another address if one is given."""
    config = yaml.safe_load(template.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": bearer}} for user in config["users"]]
    for cluster in config["clusters"] if server is not None else ():
        cluster["cluster"] = {"server": server}
    temporary = path.with_suffix(".new")
    temporary.write_text(yaml.safe_dump(config))
    return temporary.replace(path)
