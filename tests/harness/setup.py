"""What the operator needs in a cluster before it can run: its API and its permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import rlscaler_operator
from rlscaler_devcluster.kube import KubeClient
from tests.harness.waiting import until

REPOSITORY = Path(__file__).parents[2]
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def install(kube: KubeClient) -> None:
    """The CRD as it ships."""
    crd = yaml.safe_load((REPOSITORY / "crds" / "rlscalingpolicies.yaml").read_text())
    collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    kube.request(
        "PATCH",
        f"{collection}/{crd['metadata']['name']}?fieldManager=test&force=true",
        crd,
        content_type="application/apply-patch+yaml",
    )
    until(lambda: kube.request("GET", "/apis/rlscaler.io/v1alpha1/rlscalingpolicies"))


def permit(kube: KubeClient) -> None:
    """A service account with the permissions that ship with the operator, and no others."""
    rbac = yaml.safe_load((Path(rlscaler_operator.__file__).parent / "rbac.yaml").read_text())
    group = "/apis/rbac.authorization.k8s.io/v1"
    account = {"kind": "ServiceAccount", "name": "rlscaler", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": rbac["metadata"]["name"]}
    kube.request("POST", f"{group}/clusterroles", rbac)
    kube.request("POST", ACCOUNTS, {"metadata": {"name": "rlscaler"}})
    binding = {"metadata": {"name": "rlscaler-operator"}, "roleRef": role, "subjects": [account]}
    kube.request("POST", f"{group}/clusterrolebindings", binding)


def token(kube: KubeClient, bound_to: dict[str, Any] | None = None) -> str:
    """A token of the operator's service account; one that is bound to an object ends with it."""
    spec: dict[str, Any] = {"expirationSeconds": 7200}
    if bound_to is not None:
        spec["boundObjectRef"] = bound_to
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer: str = kube.request("POST", f"{ACCOUNTS}/rlscaler/token", request)["status"]["token"]
    return answer


def write_kubeconfig(path: Path, template: Path, bearer: str, server: str | None = None) -> Path:
    """The kubeconfig `template` with a token instead of its credentials, and another address if one is given."""
    config = yaml.safe_load(template.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": bearer}} for user in config["users"]]
    for cluster in config["clusters"] if server is not None else ():
        cluster["cluster"] = {"server": server}
    temporary = path.with_suffix(".new")
    temporary.write_text(yaml.safe_dump(config))
    return temporary.replace(path)
