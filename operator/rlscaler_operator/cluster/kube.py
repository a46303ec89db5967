"""Client of the API server: one generic client of plain JSON objects.

The typed classes of the `kubernetes` package cost more memory than the rest of the operator together
(docs/decisions/ has the figures), so only its transport, credentials and token renewal are used.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import kopf
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from rlscaler_core.api import GROUP, PLURAL, VERSION
from rlscaler_operator.exceptions import KubeError, LeaseLostError, OperatorError
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler.kube")

FIELD_MANAGER = "rlscaler"
"""Owner, in managedFields, of the fields that the operator writes."""

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

UNAUTHORIZED, TOO_MANY_REQUESTS = 401, 429

CONFLICTS = (409, 422)
"""HTTP statuses for an outdated resourceVersion, and for a `test` of a JSON patch that does not hold any more."""

CONFLICT_ATTEMPTS = 5
"""Attempts at a write that conflicts with other writers."""

RENEW_SECONDS = 5.0
"""Shortest time between two attempts to read refused credentials anew."""

REVIEWS = "/apis/authorization.k8s.io/v1"
"""Path below which reviews of permissions are created; the API server stores none."""

PAGE = 500
"""Objects in a page of a list."""

NO_SELECTORS: Mapping[str, str] = {}

Json = dict[str, Any]

Timeout = float | Callable[[], float]
"""Seconds, or a function that returns them at the moment when they start to count."""


async def load_configuration(settings: Settings, context: str | None = None) -> Configuration:
    """Load the address and the credentials of the API server, with `context` of the kubeconfig or its current one.

    Raises OperatorError, which names the file, where there are none.
    """
    configuration = Configuration()
    try:
        if context is not None:
            file = None if settings.kubeconfig is None else str(settings.kubeconfig)
            await load_kube_config(config_file=file, context=context, client_configuration=configuration)
        elif settings.kubeconfig is None:
            try:
                load_incluster_config(client_configuration=configuration)
            except ConfigException:
                await load_kube_config(client_configuration=configuration)
        else:
            await load_kube_config(config_file=str(settings.kubeconfig), client_configuration=configuration)
    except Exception as error:  # the client library raises whatever a malformed file leads to
        source = settings.kubeconfig or "service account, $KUBECONFIG or ~/.kube/config"
        detail = " ".join(str(error).split())
        raise OperatorError(
            f"cannot find a cluster in {source}: {detail}; correct it, or name a kubeconfig with --kubeconfig"
        ) from error
    configuration.connection_pool_maxsize = 2 * settings.write_concurrency + 4
    return configuration


@dataclass(frozen=True, kw_only=True)
class NamedConnection(kopf.ConnectionInfo):
    """Connection of kopf with the `tls-server-name` of a kubeconfig, which kopf itself does not know."""

    tls_server_name: str | None = None

    def as_ssl_context(self) -> ssl.SSLContext:
        """Return a context that asks for and checks that name, whatever the host of the URL is."""
        context = super().as_ssl_context()
        if self.tls_server_name:
            wrap, name = context.wrap_bio, self.tls_server_name

            def wrap_bio(*arguments: Any, **options: Any) -> ssl.SSLObject:
                return wrap(*arguments, **options | {"server_hostname": name})

            # asyncio opens each connection by this method.
            context.wrap_bio = wrap_bio  # type: ignore[method-assign]
        return context


async def connection(configuration: Configuration, attempt: int = 0) -> kopf.ConnectionInfo:
    """Return the same credentials for kopf. `attempt` distinguishes them from equal ones that were refused before."""
    token = await configuration.get_api_key_with_prefix("BearerToken")
    return NamedConnection(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        username=configuration.username or None,
        password=configuration.password or None,
        token=token.rpartition(" ")[2] if token else None,  # "Bearer" of a kubeconfig, "bearer" of a pod's account
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
        tls_server_name=configuration.tls_server_name or None,
        priority=attempt,
    )


class Kube:
    """Client of the API server for plain JSON. Every failure is raised as KubeError; nothing is retried."""

    def __init__(
        self,
        configuration: Configuration,
        timeout_seconds: float = 5.0,
        reload: Callable[[], Awaitable[Configuration]] | None = None,
    ) -> None:
        """`reload` reads the credentials anew; without it they never change."""
        self.configuration, self._reload, self._renewed_at = configuration, reload, float("-inf")
        self.timeout_seconds = timeout_seconds
        self._client = ApiClient(configuration)
        self.on_back_off: Callable[[float], None] = lambda _: None
        """Called with the seconds of a pause that the API server asks for (429 with Retry-After)."""

    @property
    def api(self) -> ApiClient:
        """Transport with the credentials, for watches."""
        return self._client

    async def close(self) -> None:
        await self._client.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_seconds: Timeout | None = None,
        **query: str,
    ) -> Json:
        """Send a request and return the object of the answer.

        `timeout_seconds` bounds the whole request, connecting included. A function is called once more right before the
        request is sent, and may raise LeaseLostError then.
        """
        headers = {"Accept": accept, "Content-Type": content_type}
        limit: Timeout = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            async with asyncio.timeout(_seconds(limit)):
                # The body is left out: it is JSON already, and to search it for models takes as long as all the rest.
                method, url, headers, *_ = await self._client.param_serialize(
                    method=method,
                    resource_path=f"{path}?{urlencode(query)}" if query else path,
                    header_params=headers,
                    auth_settings=["BearerToken"],
                )
                # The deadline of a lease is checked once more, right before the request leaves.
                timeout = _seconds(limit)
                response = await self._client.call_api(method, url, headers, body, _request_timeout=timeout)
                data = await response.read()
        except LeaseLostError:
            raise
        except ApiException as error:
            await self._refused(error.status, error.headers)
            raise KubeError(error.status or 0, _message(error.body, error.reason)) from error
        except Exception as error:  # credentials that cannot be renewed fail in as many ways as there are plugins
            raise KubeError(0, f"{method} {path}: {str(error) or type(error).__name__}") from error
        if not 200 <= response.status < 300:
            await self._refused(response.status, response.headers)
            raise KubeError(response.status, _message(data, response.reason))
        try:
            answer = json.loads(data) if data else {}
        except ValueError as error:
            raise KubeError(0, f"{method} {path}: the answer is no JSON: is a proxy in between?") from error
        if not isinstance(answer, dict):
            raise KubeError(0, f"{method} {path}: the answer is no object: is a proxy in between?")
        return answer

    async def renew(self) -> None:
        """Read the credentials anew, for a token that was rotated."""
        if self._reload is None or time.monotonic() - self._renewed_at < RENEW_SECONDS:
            return
        self._renewed_at = time.monotonic()
        try:
            self.configuration = await self._reload()
        except OperatorError as error:
            log.warning("credentials were refused and cannot be read anew: %s", error)
            return
        before, self._client = self._client, ApiClient(self.configuration)
        await before.close()

    async def _refused(self, status: int | None, headers: Any) -> None:
        if status == UNAUTHORIZED:
            await self.renew()
        if status == TOO_MANY_REQUESTS:
            text = str((headers or {}).get("Retry-After", ""))
            self.on_back_off(float(text) if text.isdecimal() else 1.0)

    async def get(self, path: str) -> Json:
        return await self.request("GET", path)

    async def get_metadata(self, path: str) -> Json:
        """Return the `metadata` of an object without the rest, which may be large."""
        return (await self.request("GET", path, accept=METADATA_ONLY)).get("metadata") or {}

    async def patch(self, path: str, body: Any, *, timeout_seconds: Timeout | None = None) -> Json:
        """Send a JSON patch (a list) or a merge patch (an object) under the operator's field manager."""
        kind = JSON_PATCH if isinstance(body, list) else MERGE_PATCH
        return await self.request(
            "PATCH", path, body, content_type=kind, timeout_seconds=timeout_seconds, fieldManager=FIELD_MANAGER
        )

    async def create(self, path: str, body: Json) -> Json:
        return await self.request("POST", path, body, fieldManager=FIELD_MANAGER)

    async def replace(self, path: str, body: Json, *, timeout_seconds: Timeout | None = None) -> Json:
        return await self.request("PUT", path, body, timeout_seconds=timeout_seconds, fieldManager=FIELD_MANAGER)


class ReadOnly(Kube):
    """Client that cannot change anything: it sends reads, reviews of permissions and dry runs only."""

    async def request(self, method: str, path: str, body: Any = None, **options: Any) -> Json:
        if method != "GET" and options.get("dryRun") != "All" and not path.startswith(REVIEWS):
            raise KubeError(0, f"{method} {path}: this command changes nothing")
        return await super().request(method, path, body, **options)


async def listed(
    kube: Kube,
    namespaces: Iterable[str],
    api_version: str,
    plural: str,
    *,
    optional: bool = False,
    metadata_only: bool = False,
    selectors: Mapping[str, str] = NO_SELECTORS,
) -> AsyncIterator[Json]:
    """Yield all objects of a kind in the namespaces, or in the whole cluster where none is named.

    An `optional` kind has no objects where its API is not installed. `selectors` are further parameters of the list,
    such as `labelSelector`. Raises OperatorError.
    """
    accept = METADATA_LIST if metadata_only else "application/json"
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    for path in [f"{root}/namespaces/{n}/{plural}" for n in namespaces] or [f"{root}/{plural}"]:
        query = {"limit": str(PAGE), **selectors}
        while True:
            try:
                page = await kube.request("GET", path, accept=accept, timeout_seconds=30.0, **query)
            except KubeError as error:
                if error.status == 404 and optional:
                    return
                remedies = {404: "; apply crds/ first", 403: "; grant what docs/operator-permissions.md lists"}
                raise OperatorError(f"cannot list {plural}: {error}{remedies.get(error.status, '')}") from error
            for body in page.get("items") or ():  # null for none, of metadata alone
                yield body
            token = page.get("metadata", {}).get("continue")
            if not token:
                break
            query["continue"] = token


def policy_path(key: tuple[str, str], subresource: str = "") -> str:
    """Return the path of an RLScalingPolicy by its namespace and name, or of its subresource."""
    return object_path(f"{GROUP}/{VERSION}", PLURAL, *key, subresource)


def object_path(api_version: str, plural: str, namespace: str, name: str = "", subresource: str = "") -> str:
    """Return a path such as `/apis/apps/v1/namespaces/ns/deployments/name/scale`."""
    root = "/api" if "/" not in api_version else "/apis"
    parts = [root, api_version, "namespaces", namespace, plural, name, subresource]
    return "/".join(part for part in parts if part)


def _seconds(timeout: Timeout) -> float:
    return timeout() if callable(timeout) else timeout


def _message(body: Any, reason: Any) -> str:
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(reason)
