"""A thin client of the API server: plain JSON objects over one connection pool.

It authenticates with the client certificate or the token of a kubeconfig; the `kubernetes` package's loader resolves
exec plugins and the like for clusters that the user brings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from rlscaler_dev.exceptions import ApiError

Json = dict[str, Any]
FIELD_MANAGER = "rlscaler-dev"
PARALLEL = 8
TOKEN_SECONDS = 24 * 3600

BUSY = Retry(3, connect=0, read=False, other=0, allowed_methods=None, raise_on_status=False)
"""A server that says when to ask again (Retry-After) is asked again, such as right after a definition was created."""

CLUSTER_SCOPED = {
    "APIService",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "GatewayClass",
    "Namespace",
    "Node",
    "NodeScoringPolicy",
    "RLScalingBudget",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
"""Kinds without a namespace; every other object is in its namespace, or in `default`."""


def collection(api_version: str, kind: str, namespace: str | None = None) -> str:
    """URL path of a collection, such as `/apis/apps/v1/namespaces/NAMESPACE/deployments`."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    plural = kind.lower() + ("es" if kind.endswith("s") else "s")
    plural = re.sub(r"(?<=[^aeiou])ys$", "ies", plural)
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def collection_of(manifest: Json) -> str:
    """URL path of the collection that the object belongs to."""
    kind = manifest["kind"]
    namespace = None if kind in CLUSTER_SCOPED else manifest["metadata"].get("namespace", "default")
    return collection(manifest["apiVersion"], kind, namespace)


def path_of(manifest: Json) -> str:
    """URL path of the object."""
    return f"{collection_of(manifest)}/{manifest['metadata']['name']}"


class KubeClient:
    """Requests to one API server. Raises ApiError with the server's own message."""

    def __init__(self, server: str, session: requests.Session, timeout_seconds: float = 60.0) -> None:
        self.server = server.rstrip("/")
        self.timeout_seconds = timeout_seconds
        self._session = session
        adapter = HTTPAdapter(pool_maxsize=PARALLEL, max_retries=BUSY)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        session.trust_env = False

    @classmethod
    def from_kubeconfig(cls, path: Path) -> KubeClient:
        """A client for the file's current context."""
        from kubernetes.client import Configuration
        from kubernetes.config import load_kube_config

        configuration = Configuration()
        try:
            load_kube_config(config_file=str(path), client_configuration=configuration)
        except Exception as error:  # the client library raises whatever a malformed file leads to
            raise ApiError(f"cannot use kubeconfig {path}: {' '.join(str(error).split())}") from error
        session = requests.Session()
        session.verify = (configuration.ssl_ca_cert or True) if configuration.verify_ssl else False
        if configuration.cert_file:
            session.cert = (configuration.cert_file, configuration.key_file)

        def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
            # Asked for every request: a token of an exec plugin is renewed when it is about to expire.
            if token := configuration.get_api_key_with_prefix("BearerToken", "authorization"):
                request.headers["Authorization"] = token
            return request

        session.auth = authorize
        return cls(configuration.host, session)

    @classmethod
    def with_certificate(cls, server: str, authority: Path, certificate: Path, key: Path) -> KubeClient:
        """A client without the `kubernetes` package, which takes a second to import."""
        session = requests.Session()
        session.verify, session.cert = str(authority), (str(certificate), str(key))
        return cls(server, session)

    @property
    def authority(self) -> str | bool:
        """File of the CA that the server's certificate is checked with; True = the system's, False = unchecked."""
        return self._session.verify if isinstance(self._session.verify, bool) else str(self._session.verify)

    def __enter__(self) -> KubeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def open(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        content_type: str = "application/json",
        **options: Any,
    ) -> requests.Response:
        """The answer as it is; `options` are those of `requests.Session.request`."""
        options["headers"] = {"Content-Type": content_type, **options.get("headers", {})}
        options.setdefault("timeout", self.timeout_seconds)
        try:
            data = json.dumps(body) if body is not None else None
            answer = self._session.request(method, self.server + path, data=data, **options)
            if answer.ok:
                return answer
            content = _decoded(answer)
        except OSError as error:  # raised by requests, and for missing certificates
            raise ApiError(f"{method} {self.server}{path}: {error}") from error
        message = content.get("message", content) if isinstance(content, dict) else content
        raise ApiError(f"{method} {path}: {message}", answer.status_code)

    def request(self, method: str, path: str, body: Json | None = None, **options: Any) -> Any:
        """The decoded answer (text where it is not JSON)."""
        return _decoded(self.open(method, path, body, **options))

    def merge(self, path: str, body: Json) -> Any:
        """PATCH with a merge patch."""
        return self.request("PATCH", path, body, content_type="application/merge-patch+json")

    def get(self, path: str) -> Any:
        """GET."""
        return self.request("GET", path)

    def find(self, path: str) -> Json | None:
        """GET; None where there is no such object."""
        try:
            body: Json = self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return body

    def apply(self, manifest: Json) -> Json:
        """Server-side apply."""
        parameters = {"fieldManager": FIELD_MANAGER, "force": "true"}
        answer: Json = self.request(
            "PATCH", path_of(manifest), manifest, params=parameters, content_type="application/apply-patch+yaml"
        )
        return answer

    def apply_all(self, manifests: Iterable[Json]) -> None:
        """Server-side apply, several at a time."""
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(self.apply, manifests))

    def create(self, manifest: Json) -> bool:
        """POST; False when the object is there already."""
        try:
            self.request("POST", collection_of(manifest), manifest)
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        return True

    def delete(self, path: str) -> None:
        """DELETE; a missing object is fine."""
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def token(self, namespace: str, account: str, bound_to: Json | None = None) -> str:
        """A token of a ServiceAccount; one that is bound to an object ends with it."""
        spec: Json = {"expirationSeconds": TOKEN_SECONDS} | ({"boundObjectRef": bound_to} if bound_to else {})
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"{collection('v1', 'ServiceAccount', namespace)}/{account}/token"
        return str(self.request("POST", path, request)["status"]["token"])


def _decoded(answer: requests.Response) -> Any:
    return answer.json() if answer.headers.get("Content-Type", "").startswith("application/json") else answer.text


def has_condition(thing: Json, type_: str) -> bool:
    """Whether the object's condition of this type is True."""
    conditions = thing.get("status", {}).get("conditions") or ()
    return any(condition["type"] == type_ and condition["status"] == "True" for condition in conditions)
