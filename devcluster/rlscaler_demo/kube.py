"""The API server as the demo needs it: plain JSON, server-side apply, a ServiceAccount's kubeconfig, watches."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml
from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.config import ConfigException, load_kube_config

from .exceptions import DemoError

Json = dict[str, Any]

FIELD_MANAGER = "rlscaler-demo"
TIMEOUT_SECONDS = 15.0
WATCH_SECONDS = 240
RETRY_SECONDS = 0.5
TOKEN_SECONDS = 24 * 3600
GONE = 410

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

    def open(self, method: str, path: str, body: Json | None = None, content_type: str = "application/json") -> Any:
        """The urllib3 response, its body not read yet."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        arguments = self._client.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            response = self._client.call_api(
                *arguments, _request_timeout=(TIMEOUT_SECONDS, WATCH_SECONDS + 30)
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


def _message(data: bytes, reason: str | None) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace").strip() or str(reason)


class Watch(threading.Thread):
    """Follows one collection until stopped; reconnects and lists again as needed.

    `replace` gets all objects after every list, `change` every event (ADDED, MODIFIED or DELETED, object) after that.
    Both run in this thread, one at a time.
    """

    def __init__(
        self, kube: Kube, path: str, replace: Callable[[list[Json]], None], change: Callable[[str, Json], None]
    ) -> None:
        super().__init__(name=f"watch {path}", daemon=True)
        self._kube, self._path = kube, path
        self._replace, self._change = replace, change
        self._stopping = threading.Event()
        self._response: Any = None
        self.synced = threading.Event()
        self.error: KubeError | None = None

    def run(self) -> None:
        version = ""
        while not self._stopping.is_set():
            try:
                if not version:
                    version = self._list()
                for event in self._events(version):
                    version = self._handle(event)
                self.error = None
            except KubeError as error:
                self.error = error
                version = "" if error.status == GONE else version
                self._stopping.wait(RETRY_SECONDS)

    def stop(self) -> None:
        """End the thread, also out of a blocked read."""
        self._stopping.set()
        response = self._response
        if response is not None:
            with contextlib.suppress(ValueError, OSError):  # the read has ended by itself
                response.shutdown()
        if self.is_alive():
            self.join(TIMEOUT_SECONDS)

    def _list(self) -> str:
        answer = self._kube.get(self._path)
        self._replace(answer["items"])
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    def _events(self, version: str) -> Iterator[Json]:
        query = urlencode({"watch": "true", "resourceVersion": version, "timeoutSeconds": WATCH_SECONDS})
        response = self._response = self._kube.open("GET", f"{self._path}?{query}&allowWatchBookmarks=true")
        buffer = b""
        try:
            for chunk in response.stream(65536):
                *lines, buffer = (buffer + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
                if self._stopping.is_set():
                    return
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError(f"watch {self._path}: {error}") from error
        finally:
            self._response = None
            response.close()

    def _handle(self, event: Json) -> str:
        kind, thing = event["type"], event["object"]
        if kind == "ERROR":
            raise KubeError(f"watch {self._path}: {thing.get('message')}", int(thing.get("code", 0)))
        if kind != "BOOKMARK":
            self._change(kind, thing)
        return str(thing["metadata"]["resourceVersion"])
