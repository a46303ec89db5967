"""Which Prometheus a policy is measured by, and the credentials from Secrets that it is asked with."""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

from rlscaler_core.api.metrics import Metrics, PrometheusAuth, SecretKey
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.references import Name, References, Source
from rlscaler_operator.exceptions import CredentialError
from rlscaler_operator.settings import Settings

Secret = Mapping[str, bytes]

FIELD = "spec.metrics.prometheus.auth"

NAMESPACE = "{namespace}"
"""What stands for the policy's namespace in the parameter of own queries."""

TOKEN = re.compile(r"[!-~]+")
"""Pattern of a bearer token that may stand in a header: visible ASCII without a space."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM texts. An empty `ca` means the system's authorities, an empty `certificate` means no client certificate."""

    ca: str = ""
    certificate: str = ""
    private_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """A Prometheus and the credential it is asked with; policies with equal access share a client and their queries."""

    url: str
    bearer_token: str = field(default="", repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    certificates: Certificates | None = None
    refused: tuple[str, str] | None = None
    """Reason and message if this Prometheus must not be asked; None = it may be."""


def access_of(metrics: Metrics, key: Key, settings: Settings, secrets: References[Secret]) -> Access | None:
    """Return how the Prometheus of the policy `key` is asked, by its `spec.metrics`.

    The result is None while a Secret is read for the first time. No credential is sent to a URL that is not allowed.
    """
    prometheus = metrics.prometheus
    url = prometheus.url or settings.prometheus_url
    if not settings.may_query(url):
        text = f"{url} is not an allowed Prometheus: ask the operator's administrator for allowedPrometheusUrls"
        return Access(url, refused=("PrometheusNotAllowed", text))
    if prometheus.auth is None:
        return Access(url)
    try:
        return _with_credentials(url, prometheus.auth, key[0], secrets)
    except CredentialError as error:
        return Access(url, refused=(error.reason, str(error)))


class OwnAccess(NamedTuple):
    """How a policy's own queries are asked."""

    access: Access
    parameters: tuple[tuple[str, str], ...] = ()
    """Names and values that are sent with each query."""


def own_access(access: Access, metrics: Metrics, namespace: str, settings: Settings) -> OwnAccess:
    """Return how the own queries of a policy in `namespace` are asked, whose other queries are asked by `access`."""
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
    named = {"token": auth.bearer_token}
    if auth.basic is not None:
        named |= {"username": auth.basic.username, "password": auth.basic.password}
    if auth.tls is not None:
        named |= {"ca": auth.tls.ca, "certificate": auth.tls.certificate, "private_key": auth.tls.private_key}
    found: dict[str, str] = {}
    waiting = False
    for what, reference in named.items():
        if reference is not None:
            text = secret_text(reference, namespace, secrets, FIELD)
            waiting |= text is None
            found[what] = text or ""
    if waiting:
        return None
    token = found.get("token", "").strip()
    if auth.bearer_token is not None and not TOKEN.fullmatch(token):
        raise _unusable(auth.bearer_token, namespace, FIELD, "is not a bearer token: one line without spaces")
    basic = (found["username"].strip("\r\n"), found["password"].strip("\r\n")) if auth.basic is not None else None
    certificates = None
    if auth.tls is not None:
        certificates = Certificates(found.get("ca", ""), found.get("certificate", ""), found.get("private_key", ""))
        checked_certificates(certificates, namespace, f"{FIELD}.tls")
    return Access(url, token, basic, certificates)


def secret_text(reference: SecretKey, namespace: str, secrets: References[Secret], field: str) -> str | None:
    """Return the text under one key of a Secret that `field` of a policy names; None while it is read the first time.

    Raises CredentialError.
    """
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


def _unusable(reference: SecretKey, namespace: str, field: str, what: str) -> CredentialError:
    text = f"key {reference.key!r} of Secret {namespace}/{reference.name} ({field}) {what}"
    return CredentialError(text, "SecretInvalid")


@lru_cache(maxsize=256)
def _certificate_trouble(certificates: Certificates) -> str:
    """Say why the certificates cannot be used; empty = they can."""
    try:
        tls_context(certificates)
    except (ssl.SSLError, ValueError) as error:
        return str(error)
    return ""


def checked_certificates(certificates: Certificates, namespace: str, field: str) -> Certificates:
    """Return the certificates that `field` of a policy names. Raises CredentialError where they cannot be used."""
    if trouble := _certificate_trouble(certificates):
        raise CredentialError(f"{field}: its Secrets in {namespace} hold no usable PEM: {trouble}", "SecretInvalid")
    return certificates


def tls_context(certificates: Certificates) -> ssl.SSLContext:
    """Make a TLS context. Raises ssl.SSLError or ValueError where a text is not the PEM that it should be."""
    context = ssl.create_default_context(cadata=certificates.ca or None)
    if certificates.certificate:
        with NamedTemporaryFile("w", prefix="rlscaler-", suffix=".pem") as file:
            # The ssl module reads a certificate chain from files only; only this user may read this one.
            file.write(f"{certificates.certificate}\n{certificates.private_key}\n")
            file.flush()
            context.load_cert_chain(file.name, password=_no_password)
    return context


def _no_password() -> str:
    """Fail where the ssl module would ask for the password at the terminal."""
    raise ValueError("the private key is encrypted: store it without a passphrase")


def _decoded(name: Name, body: Mapping[str, Any]) -> Secret:
    try:
        return {key: base64.b64decode(text, validate=True) for key, text in (body.get("data") or {}).items()}
    except binascii.Error as error:
        raise CredentialError(f"Secret {name.namespace}/{name.name} is not base64: {error}", "SecretInvalid") from error


SECRETS = Source(
    kind="Secret",
    plural="secrets",
    load=_decoded,
    keeps_last_good=False,
    error=CredentialError,
    remedy="create it, or correct spec.metrics.prometheus.auth or spec.signal.kafka",
)
