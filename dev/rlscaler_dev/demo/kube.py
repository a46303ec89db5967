"""The API server as the demo needs it: plain JSON, server-side apply, a ServiceAccount's kubeconfig."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml
from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.config import ConfigException, load_kube_config

from rlscaler_dev.demo.exceptions import DemoError

Json = dict[str, Any]

FIELD_MANAGER = "rlscaler-demo"
TIMEOUT_SECONDS = 15.0
LONGEST_READ_SECONDS = 300.0
"""A watch may be silent for that long."""
POLL_SECONDS = 0.1
TOKEN_SECONDS = 24 * 3600

PLURALS = {
    "CustomResourceDefinition": "customresourcedefinitions",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Deployment": "deployments",
    "Gateway": "gateways",
    "GatewayClass": "gatewayclasses",
    "HTTPRoute": "httproutes",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "Namespace": "namespaces",
    "Pod": "pods",
    "RLScalingPolicy": "rlscalingpolicies",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
}


class KubeError(DemoError):
    """The API server refused a request or cannot be reached. `status` is the HTTP status, 0 for no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def collection(api_version: str, kind: str, namespace: str | None = None) -> str:
    """`/apis/apps/v1/namespaces/NAMESPACE/deployments` and its like."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{root}/namespaces/{namespace}/{PLURALS[kind]}" if namespace else f"{root}/{PLURALS[kind]}"


def path_of(manifest: Json) -> str:
    metadata = manifest["metadata"]
    return f"{collection(manifest['apiVersion'], manifest['kind'], metadata.get('namespace'))}/{metadata['name']}"


class Kube:
    """Requests with the credentials of a kubeconfig. Raises KubeError with the server's own message."""

    def __init__(self, kubeconfig: Path) -> None:
        self.configuration = Configuration()
        try:
            load_kube_config(config_file=str(kubeconfig), client_configuration=self.configuration)
        except (ConfigException, OSError, TypeError) as error:
            raise DemoError(f"kubeconfig {kubeconfig} cannot be used: {error}") from error
        self._client = ApiClient(self.configuration)

    def open(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The urllib3 response, its body not read yet. `headers` besides those that every request has."""
        headers = {"Accept": "application/json", "Content-Type": content_type, **(headers or {})}
        arguments = self._client.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            response = self._client.call_api(
                *arguments, _request_timeout=(TIMEOUT_SECONDS, LONGEST_READ_SECONDS)
            ).response
            if response.status >= 400:
                raise KubeError(f"{method} {path}: {_message(response.data, response.reason)}", response.status)
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError(f"{method} {self.configuration.host}{path}: {error}") from error
        return response

    def request(self, method: str, path: str, body: Json | None = None, content_type: str = "application/json") -> Json:
        response = self.open(method, path, body, content_type)
        try:
            content: Json = json.loads(response.data)
        except (ValueError, urllib3.exceptions.HTTPError) as error:
            raise KubeError(f"{method} {path}: the answer cannot be read: {error}") from error
        return content

    def get(self, path: str) -> Json:
        return self.request("GET", path)

    def apply(self, manifests: Iterable[Json]) -> None:
        """Server-side apply, one after the other."""
        query = urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
        for manifest in manifests:
            self.request("PATCH", f"{path_of(manifest)}?{query}", manifest, "application/apply-patch+yaml")

    def delete(self, manifest: Json) -> None:
        """Delete in the foreground; an object or a kind that does not exist is fine."""
        try:
            self.request("DELETE", f"{path_of(manifest)}?propagationPolicy=Foreground")
        except KubeError as error:
            if error.status != 404:
                raise

    def exists(self, manifest: Json) -> Json | None:
        """The object as it is; None when there is none."""
        try:
            return self.get(path_of(manifest))
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    def wait_condition(self, path: str, condition: str, timeout_seconds: float) -> None:
        """Wait until the object's condition is True."""

        def holds() -> bool:
            conditions = self.get(path).get("status", {}).get("conditions") or []
            return any(c["type"] == condition and c["status"] == "True" for c in conditions)

        wait_until(holds, f"{path}: {condition}", timeout_seconds)

    def account_kubeconfig(self, namespace: str, account: str, path: Path) -> None:
        """Write a kubeconfig, readable by the user only, with a token of the ServiceAccount."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        accounts = collection("v1", "ServiceAccount", namespace)
        token = self.request("POST", f"{accounts}/{account}/token", request)["status"]["token"]
        cluster: Json = {"server": self.configuration.host}
        if self.configuration.verify_ssl:
            cluster["certificate-authority"] = self.configuration.ssl_ca_cert
        else:
            cluster["insecure-skip-tls-verify"] = True
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": account, "user": {"token": token}}],
            "contexts": [{"name": account, "context": {"cluster": "cluster", "user": account}}],
            "current-context": account,
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content))


def wait_until(holds: Callable[[], bool], what: str, timeout_seconds: float) -> None:
    """Poll until it holds. Raises DemoError that names `what` when the time is over."""
    deadline = time.monotonic() + timeout_seconds
    while not holds():
        if time.monotonic() > deadline:
            raise DemoError(f"{what} did not come true within {timeout_seconds:.0f} s")
        time.sleep(POLL_SECONDS)


def _message(data: bytes, reason: str | None) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace").strip() or str(reason)
