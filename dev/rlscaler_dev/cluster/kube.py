"""A thin client of the API server: plain JSON objects over one connection pool.

Only what starting a cluster needs. Authentication by the client certificate or token of a kubeconfig; the `kubernetes`
package's loader resolves exec plugins and the like for clusters that the user brings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
import tenacity
from requests.adapters import HTTPAdapter

from rlscaler_dev.cluster.exceptions import ApiError, StartError

Json = dict[str, Any]
FIELD_MANAGER = "rlscaler-devcluster"
PARALLEL = 8

_COLLECTIONS = {
    "Namespace": ("namespaces", False),
    "Node": ("nodes", False),
    "Service": ("services", True),
    "ServiceAccount": ("serviceaccounts", True),
    "APIService": ("apiservices", False),
    "ClusterRole": ("clusterroles", False),
    "ClusterRoleBinding": ("clusterrolebindings", False),
    "RoleBinding": ("rolebindings", True),
    "CustomResourceDefinition": ("customresourcedefinitions", False),
    "EndpointSlice": ("endpointslices", True),
    "GatewayClass": ("gatewayclasses", False),
}
"""Kind -> (plural, namespaced) of what is applied here."""


class KubeClient:
    """Requests to one API server. Raises ApiError with the server's own message."""

    def __init__(self, server: str, session: requests.Session, timeout_seconds: float = 60.0) -> None:
        self.server = server.rstrip("/")
        self.timeout_seconds = timeout_seconds
        self._session = session
        adapter = HTTPAdapter(pool_maxsize=PARALLEL)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        session.trust_env = False

    @classmethod
    def from_kubeconfig(cls, path: Path) -> KubeClient:
        """A client for the file's current context."""
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException, load_kube_config

        configuration = Configuration()
        try:
            load_kube_config(config_file=str(path), client_configuration=configuration)
        except (ConfigException, OSError, TypeError) as error:
            raise ApiError(f"cannot use kubeconfig {path}: {error}") from error
        session = requests.Session()
        session.verify = (configuration.ssl_ca_cert or True) if configuration.verify_ssl else False
        if configuration.cert_file:
            session.cert = (configuration.cert_file, configuration.key_file)
        if token := configuration.get_api_key_with_prefix("authorization"):
            session.headers["Authorization"] = token
        return cls(configuration.host, session)

    def __enter__(self) -> KubeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def request(self, method: str, path: str, body: Json | None = None, **options: Any) -> Any:
        """The decoded answer (text where it is not JSON)."""
        headers = {"Content-Type": options.pop("content_type", "application/json")}
        try:
            answer = self._session.request(
                method,
                self.server + path,
                data=json.dumps(body) if body is not None else None,
                headers=headers,
                timeout=self.timeout_seconds,
                **options,
            )
        except OSError as error:  # of requests, and of missing certificates
            raise ApiError(f"{method} {self.server}{path}: {error}") from error
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        content = answer.json() if is_json else answer.text
        if not answer.ok:
            message = content.get("message", content) if isinstance(content, dict) else content
            raise ApiError(f"{method} {path}: {message}", answer.status_code)
        return content

    def get(self, path: str) -> Any:
        """GET."""
        return self.request("GET", path)

    def apply(self, manifest: Json) -> Json:
        """Server-side apply."""
        parameters = {"fieldManager": FIELD_MANAGER, "force": "true"}
        path = f"{collection_path(manifest)}/{manifest['metadata']['name']}"
        answer: Json = self.request(
            "PATCH", path, manifest, params=parameters, content_type="application/apply-patch+yaml"
        )
        return answer

    def apply_all(self, manifests: Iterable[Json]) -> None:
        """Server-side apply, several at a time."""
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(self.apply, manifests))

    def create(self, manifest: Json) -> bool:
        """POST; False when the object is there already."""
        try:
            self.request("POST", collection_path(manifest), manifest)
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


def collection_path(manifest: Json) -> str:
    """URL path of the collection that the object belongs to."""
    plural, namespaced = _COLLECTIONS[manifest["kind"]]
    version = manifest["apiVersion"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if namespaced:
        prefix += f"/namespaces/{manifest['metadata'].get('namespace', 'default')}"
    return f"{prefix}/{plural}"


def wait_until(condition: Callable[[], bool], what: str, timeout_seconds: float, interval_seconds: float = 0.1) -> None:
    """Poll until `condition` holds; refused connections count as not yet.

    Raises StartError that names `what` and the last refusal; any StartError of `condition` ends the wait at once.
    """
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout_seconds),
        wait=tenacity.wait_fixed(interval_seconds),
        retry=tenacity.retry_if_exception_type((ApiError, requests.RequestException))
        | tenacity.retry_if_result(lambda held: not held),
    )
    try:
        retrying(condition)
    except tenacity.RetryError as error:
        reason = error.last_attempt.exception()
        raise StartError(
            f"{what} did not happen within {timeout_seconds:.0f} s" + (f": {reason}" if reason else "")
        ) from error
