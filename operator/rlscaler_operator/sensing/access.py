"""Access to the Prometheus of a policy: its URL, and credentials from Secrets."""

from __future__ import annotations

import base64
import binascii
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rlscaler_core.api.metrics import Metrics, PrometheusAuth, SecretKey
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.references import Name, References, Source
from rlscaler_operator.exceptions import CredentialError
from rlscaler_operator.settings import Settings

Secret = Mapping[str, bytes]

FIELD = "spec.metrics.prometheus.auth"

NAMESPACE = "{namespace}"
"""Placeholder of the policy's namespace in the parameter of own queries."""

TOKEN = re.compile(r"[!-~]+")
"""Pattern of a bearer token in a header: visible ASCII without a space."""


PEM = re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?-----END [A-Z0-9 ]+-----", re.DOTALL)
"""Pattern of a block of PEM. Between the blocks bundles have comments, in any language."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM texts. An empty `ca` means the system's authorities, an empty `certificate` means no client certificate."""

    ca: str = ""
    certificate: str = ""
    private_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """URL and credential of a Prometheus; policies with equal access share a client and their queries."""

    url: str
    bearer_token: str = field(default="", repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    certificates: Certificates | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Names and values of further headers, such as the tenant."""
    labels: tuple[tuple[str, str], ...] = ()
    """Names and values of labels that all series must have, such as the cluster's."""
    refused: tuple[str, str] | None = None
    """Reason and message if this Prometheus must not be asked; None = it may be asked."""


def access_of(metrics: Metrics, key: Key, settings: Settings, secrets: References[Secret]) -> Access | None:
    """Return the access to the Prometheus in `spec.metrics` of the policy `key`.

    The result is None while a Secret is read for the first time. No credential is sent to a URL that is not allowed.
    """
    prometheus = metrics.prometheus
    url = prometheus.url or settings.prometheus_url
    if (trouble := url_trouble(url)) is not None:
        text = f"spec.metrics.prometheus.url: {url!r} is no URL ({trouble}): correct it to http(s)://host:port/path"
        return Access(url, refused=("UrlInvalid", text))
    if not settings.may_query(url):
        text = f"{url} is not an allowed Prometheus: ask the operator's administrator for allowedPrometheusUrls"
        return Access(url, refused=("PrometheusNotAllowed", text))
    headers, labels = settings.headers_of(url, key[0]), settings.labels_of(url)
    for name, value in prometheus.match_labels.items():
        if labels.setdefault(name, value) != value:
            text = (
                f"the operator's administrator sets {name}={labels[name]} (RLSCALER_MATCH_LABELS): remove {name} from "
                "spec.metrics.prometheus.matchLabels"
            )
            return Access(url, refused=("MatchLabelsFixed", text))
    matched = tuple(sorted(labels.items()))
    if prometheus.auth is None:
        return Access(url, headers=tuple(headers.items()), labels=matched)
    tenant = prometheus.auth.tenant
    if tenant is not None and tenant.header.lower() in map(str.lower, headers):
        text = f"the operator's administrator sets {tenant.header} (RLSCALER_PROMETHEUS_HEADERS): remove {FIELD}.tenant"
        return Access(url, refused=("TenantFixed", text))
    try:
        access = _with_credentials(url, prometheus.auth, key[0], secrets)
        return None if access is None else replace(access, headers=(*headers.items(), *access.headers), labels=matched)
    except CredentialError as error:
        return Access(url, refused=(error.reason, str(error)))


def url_trouble(url: str) -> str | None:
    """Return why a text is no URL of a server; None where it is one."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # reading it raises ValueError where it is no number
        return None if parts.hostname else "it names no host"
    except ValueError as error:
        return str(error)


class OwnAccess(NamedTuple):
    """Access for a policy's own queries."""

    access: Access
    parameters: tuple[tuple[str, str], ...] = ()
    """Names and values that are sent with each query."""


def own_access(access: Access, metrics: Metrics, namespace: str, settings: Settings) -> OwnAccess:
    """Return the access for own queries of a policy in `namespace`, whose other queries use `access`."""
    if not settings.allow_own_queries:
        text = "the operator's administrator has forbidden spec.metrics.queries (RLSCALER_ALLOW_OWN_QUERIES): remove it"
        return OwnAccess(replace(access, refused=("OwnQueriesForbidden", text)))
    if access.refused is not None or not settings.own_query_parameter:
        return OwnAccess(_at(access, metrics, settings))
    if metrics.prometheus.url is not None:
        text = (
            "queries of its own are kept to their namespace by the operator's Prometheus only "
            "(RLSCALER_OWN_QUERY_PARAMETER): remove spec.metrics.queries or spec.metrics.prometheus.url"
        )
        return OwnAccess(replace(access, refused=("OwnQueriesForbidden", text)))
    name, _, value = settings.own_query_parameter.partition("=")
    return OwnAccess(_at(access, metrics, settings), ((name, value.replace(NAMESPACE, namespace)),))


def _at(access: Access, metrics: Metrics, settings: Settings) -> Access:
    if metrics.prometheus.url is not None or not settings.own_query_url:
        return access
    return replace(access, url=settings.own_query_url)


def _with_credentials(url: str, auth: PrometheusAuth, namespace: str, secrets: References[Secret]) -> Access | None:
    """Return the access with the credentials of the Secrets; None while one is read. Raises CredentialError."""
    references = {"token": auth.bearer_token}
    if auth.basic is not None:
        references |= {"username": auth.basic.username, "password": auth.basic.password}
    if auth.tls is not None:
        references |= {"ca": auth.tls.ca, "certificate": auth.tls.certificate, "private_key": auth.tls.private_key}
    if auth.tenant is not None:
        references["tenant"] = auth.tenant.id
    texts = secret_texts(references, namespace, secrets, FIELD)
    if texts is None:
        return None
    token = texts.get("token", "").strip()
    if auth.bearer_token is not None and not TOKEN.fullmatch(token):
        raise _unusable(auth.bearer_token, namespace, FIELD, "is not a bearer token: one line without spaces")
    basic = (texts["username"].strip("\r\n"), texts["password"].strip("\r\n")) if auth.basic is not None else None
    if auth.basic is not None and ":" in texts["username"]:
        raise _unusable(auth.basic.username, namespace, FIELD, "is not a user name: HTTP allows no colon in it")
    certificates = None if auth.tls is None else certificates_of(texts, namespace, f"{FIELD}.tls")
    headers: tuple[tuple[str, str], ...] = ()
    if auth.tenant is not None:
        headers = ((auth.tenant.header, texts["tenant"].strip()),)
        if not TOKEN.fullmatch(headers[0][1]):
            raise _unusable(auth.tenant.id, namespace, f"{FIELD}.tenant", "is not a tenant: one line without spaces")
    return Access(url, token, basic, certificates, headers)


def secret_texts(
    references: Mapping[str, SecretKey | None], namespace: str, secrets: References[Secret], field: str
) -> dict[str, str] | None:
    """Return the texts of keys of Secrets that `field` of a policy names, without the references that are None.

    The result is None while a Secret is read for the first time. Raises CredentialError.
    """
    named = {name: reference for name, reference in references.items() if reference is not None}
    # Every Secret is asked for, so that all of them are read at the same time.
    texts = {name: _secret_text(reference, namespace, secrets, field) for name, reference in named.items()}
    known = {name: text for name, text in texts.items() if text is not None}
    return known if len(known) == len(texts) else None


def _secret_text(reference: SecretKey, namespace: str, secrets: References[Secret], field: str) -> str | None:
    held = secrets.get(Name(namespace, reference.name))
    if held.value is None:
        if held.error is not None:
            raise held.error
        return None
    if reference.key not in held.value:
        there = ", ".join(sorted(held.value)) or "none"
        raise _unusable(reference, namespace, field, f"does not exist (there are: {there})")
    try:
        return held.value[reference.key].decode()
    except UnicodeDecodeError as error:
        raise _unusable(reference, namespace, field, "is not text") from error


def _unusable(reference: SecretKey, namespace: str, field: str, trouble: str) -> CredentialError:
    text = f"key {reference.key!r} of Secret {namespace}/{reference.name} ({field}) {trouble}"
    return CredentialError(text, "SecretInvalid")


@lru_cache(maxsize=256)
def _certificate_trouble(certificates: Certificates) -> str:
    """Return why the certificates cannot be used; empty = they can."""
    try:
        tls_context(certificates)
    except (ssl.SSLError, ValueError, TypeError) as error:
        return str(error)
    return ""


def certificates_of(texts: Mapping[str, str], namespace: str, field: str) -> Certificates:
    """Return the certificates in the texts of Secrets that `field` of a policy names. Raises CredentialError."""
    names = [name for name in Certificates.__dataclass_fields__ if texts.get(name)]
    blocks = {name: "".join(f"{block}\n" for block in PEM.findall(texts[name])) for name in names}
    if empty := [name for name, text in blocks.items() if not text]:
        keys = " and ".join(empty).replace("_k", "K")
        text = f"{field}.{keys}: its Secret in {namespace} holds no PEM: it begins with -----BEGIN"
        raise CredentialError(text, "SecretInvalid")
    certificates = Certificates(**blocks)
    try:
        trouble = _certificate_trouble(certificates)
    except OSError as error:
        # Of this machine and of now, not of the text: it is tried again.
        raise CredentialError(f"{field}: its certificates cannot be loaded: {error}", "SecretUnavailable") from error
    if trouble:
        raise CredentialError(f"{field}: its Secrets in {namespace} hold no usable PEM: {trouble}", "SecretInvalid")
    return certificates


def tls_context(certificates: Certificates) -> ssl.SSLContext:
    """Return a TLS context. Raises ssl.SSLError or ValueError where a text is no valid PEM."""
    context = ssl.create_default_context(cadata=certificates.ca or None)
    if certificates.certificate:
        with _file_of(f"{certificates.certificate}\n{certificates.private_key}\n") as path:
            context.load_cert_chain(path, password=_no_password)
    return context


@contextmanager
def _file_of(text: str) -> Iterator[str]:
    """Yield the path of a file with `text`: the ssl module reads a certificate chain from files only."""
    if not hasattr(os, "memfd_create"):
        with NamedTemporaryFile(prefix="rlscaler-", suffix=".pem") as file:
            file.write(text.encode())
            file.flush()
            yield file.name
        return
    # In memory: a full or read-only disk stops nothing, and no private key comes to lie on it.
    with os.fdopen(os.memfd_create("rlscaler"), "wb") as memory:
        memory.write(text.encode())
        memory.flush()
        yield f"/proc/self/fd/{memory.fileno()}"


def _no_password() -> str:
    """Fail where the ssl module would ask for the password at the terminal."""
    raise ValueError("the private key is encrypted: store it without a passphrase")


def _decoded(name: Name, body: Mapping[str, Any]) -> Secret:
    try:
        return {key: base64.b64decode(text, validate=True) for key, text in (body.get("data") or {}).items()}
    except (binascii.Error, ValueError) as error:
        raise CredentialError(f"Secret {name.namespace}/{name.name} is not base64: {error}", "SecretInvalid") from error


SECRETS = Source(
    kind="Secret",
    plural="secrets",
    load=_decoded,
    keeps_last_good=False,
    error=CredentialError,
    remedy="create it, or correct spec.metrics.prometheus.auth or spec.signal.kafka",
)
