"""Credentials from Secrets, and a real HTTPS server that insists on them."""

import asyncio
import base64
import json
import ssl
import tempfile
from dataclasses import replace

import pytest
from pydantic import ValidationError

from rlscaler_core.api.metrics import Metrics
from rlscaler_dev.cluster import pki
from rlscaler_operator.cluster.references import Name, References
from rlscaler_operator.exceptions import CredentialError
from rlscaler_operator.sensing.access import SECRETS, Access, Certificates, access_of, certificates_of, own_access
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.queries import Query
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry
from tests.harness.serving import Quiet, serving

SETTINGS = Settings(prometheus_url="https://prometheus")
QUERIES = [Query("a", "service", "up")]


def key(name, key):
    return {"name": name, "key": key}


@pytest.fixture
def access(policy_body, monkeypatch):
    """The access of a policy with `auth`, where Secrets hold what is given: text, an error, or nothing yet."""

    def of(auth, url=None, **held):
        secrets = References(None, SECRETS, 30.0)
        for name, content in held.items():
            one = secrets.get(Name("ns", name))
            if isinstance(content, Exception):
                one.error = content
            elif content is not None:
                one.value = {k: v if isinstance(v, bytes) else v.encode() for k, v in content.items()}
        body = policy_body()
        body["spec"]["metrics"] = {"prometheus": {"auth": auth} | ({"url": url} if url else {})}
        policy = Registry().put(body)
        return access_of(policy.spec.metrics, policy.key, SETTINGS, secrets)

    return of


BEARER = {"bearerToken": key("s", "token")}
BASIC = {"basic": {"username": key("s", "user"), "password": key("s", "word")}}


@pytest.mark.parametrize(
    ("url", "own", "labels"),
    [
        (None, {}, {"cluster": "eu"}),
        (None, {"region": "west", "cluster": "eu"}, {"cluster": "eu", "region": "west"}),
        ("https://theirs", {"k8s": "a-1"}, {"k8s": "a-1"}),
        (None, {"cluster": "us"}, None),
    ],
)
def test_labels_of_all_series_are_the_administrators_at_his_prometheus_and_the_policys(policy_body, url, own, labels):
    settings = SETTINGS.model_copy(
        update={"match_labels": ("cluster=eu",), "allowed_prometheus_urls": ("https://theirs",)}
    )
    metrics = Metrics.model_validate({"prometheus": {"matchLabels": own} | ({"url": url} if url else {})})
    access = access_of(metrics, ("ns", "chat"), settings, References(None, SECRETS, 30.0))
    if labels is None:
        assert access.refused[0] == "MatchLabelsFixed"
        assert "spec.metrics.prometheus.matchLabels" in access.refused[1]
    else:
        assert (dict(access.labels), access.refused) == (labels, None)


@pytest.mark.parametrize("labels", [{"a-b": "x"}, {"": "x"}, {"cluster": 'eu"} or vector(1) #'}, {"cluster": ""}])
def test_labels_that_are_none_are_refused_by_name(labels):
    with pytest.raises(ValidationError, match="matchLabels"):
        Metrics.model_validate({"prometheus": {"matchLabels": labels}})


def test_a_bearer_token_is_taken_without_its_line_end(access):
    assert access(BEARER, s={"token": "abc\n"}) == Access("https://prometheus", "abc")


def test_user_name_and_password(access):
    found = access(BASIC, s={"user": "me", "word": "pass word\n"})
    assert found == Access("https://prometheus", basic=("me", "pass word"))


def test_a_secret_that_is_not_read_yet_is_waited_for(access):
    assert access(BEARER, s=None) is None


@pytest.mark.parametrize(
    ("auth", "held", "reason", "says"),
    [
        (BEARER, {"other": "x"}, "SecretInvalid", "'token' of Secret ns/s"),
        (BEARER, {"token": ""}, "SecretInvalid", "one line"),
        (BEARER, {"token": "two words"}, "SecretInvalid", "one line"),
        (BEARER, {"token": "a\r\nX-Header: b"}, "SecretInvalid", "one line"),
        (BEARER, {"token": b"\xff"}, "SecretInvalid", "not text"),
        (BASIC, {"user": "me:too", "word": "x"}, "SecretInvalid", "no colon"),
        (BEARER, CredentialError("no", "SecretForbidden"), "SecretForbidden", "no"),
        ({"tls": {"ca": key("s", "ca")}}, {"ca": "garbage"}, "SecretInvalid", "PEM"),
    ],
)
def test_what_cannot_be_used_is_said(access, auth, held, reason, says):
    found = access(auth, s=held)
    assert found.refused[0] == reason
    assert says in found.refused[1]


@pytest.mark.parametrize(
    "url", ["http://[x", "http://a:port", "http://[::1]:99999", "http://:80", "https://a]b", "http://?"]
)
def test_a_text_that_is_no_url_is_refused_by_its_field(access, url):
    reason, text = access(None, url=url).refused
    assert reason == "UrlInvalid"
    assert "spec.metrics.prometheus.url" in text


def test_no_secret_is_read_for_a_url_that_is_not_allowed(access):
    found = access(BEARER, url="https://elsewhere", s={"token": "abc"})
    assert found.refused[0] == "PrometheusNotAllowed"
    assert found.bearer_token == ""


def test_credentials_are_not_printed():
    shown = repr(Access("u", "abc", ("me", "xyz"), Certificates("", "", "KEY")))
    assert not any(secret in shown for secret in ("abc", "xyz", "KEY"))


def test_a_secrets_data_is_decoded():
    name = Name("ns", "s")
    body = {"data": {"token": base64.b64encode(b"abc").decode()}}
    assert SECRETS.load(name, body) == {"token": b"abc"}
    with pytest.raises(CredentialError):
        SECRETS.load(name, {"data": {"token": "*"}})


class Authority:
    """A certificate authority and what it signed, in PEM."""

    def __init__(self, folder):
        made = pki.create(folder)
        paths = {"ca": made.ca_cert, "certificate": made.admin_cert, "private_key": made.admin_key}
        self.texts = {name: path.read_text() for name, path in paths.items()}
        self.other_key = made.proxy_key.read_text()
        self.client = Certificates(**self.texts)
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=made.ca_cert)
        self.context.load_cert_chain(made.admin_cert, made.admin_key)
        self.context.verify_mode = ssl.CERT_REQUIRED


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def https(authority):
    """The URL of a Prometheus that talks only to clients with a certificate of the authority and the token abc."""

    class Handler(Quiet):
        def do_POST(self):  # noqa: N802
            self.body()
            allowed = self.headers.get("Authorization") == "Bearer abc"
            found = {"status": "success", "data": {"resultType": "vector", "result": []}}
            self.answer(200 if allowed else 401, json.dumps(found).encode())

    with serving(Handler, authority.context) as url:
        yield url


def ask(access):
    async def once():
        prometheus = Prometheus(access, timeout_seconds=2.0)
        try:
            return (await prometheus.ask(QUERIES))["a"]
        finally:
            await prometheus.close()

    return asyncio.run(once())


def test_mutual_tls_and_a_token_are_accepted(https, authority):
    assert ask(Access(https, "abc", certificates=authority.client)) == {}


def test_a_wrong_token_is_said_to_be_refused(https, authority):
    error = ask(Access(https, "xyz", certificates=authority.client))
    assert error.reason == "PrometheusUnauthorized"


def test_a_server_of_another_authority_is_not_trusted(https, authority, tmp_path):
    other = pki.create(tmp_path).ca_cert.read_text()
    error = ask(Access(https, "abc", certificates=replace(authority.client, ca=other)))
    assert error.reason == "PrometheusUnreachable"
    assert "its certificate is not trusted (" in str(error)


def test_a_client_without_a_certificate_is_turned_away(https, authority):
    assert ask(Access(https, "abc", certificates=Certificates(authority.client.ca))).reason == "PrometheusUnreachable"


def test_where_no_authority_is_named_the_systems_count(https):
    assert ask(Access(https, "abc")).reason == "PrometheusUnreachable"


def test_a_key_that_does_not_belong_to_the_certificate_is_said(access, authority):
    auth = {"tls": {"certificate": key("s", "crt"), "privateKey": key("s", "key")}}
    found = access(auth, s={"crt": authority.client.certificate, "key": authority.other_key})
    assert found.refused[0] == "SecretInvalid"


def own(metrics=None, **settings):
    """How own queries of a policy in namespace `team` are asked."""
    chosen = Settings(prometheus_url="http://prometheus:9090", allowed_prometheus_urls=("http://mine",), **settings)
    metrics = Metrics.model_validate({"queries": {"arrivalRate": "up"}, **(metrics or {})})
    access = access_of(metrics, ("team", "chat"), chosen, None)
    return own_access(access, metrics, "team", chosen)


def test_comments_around_certificates_may_be_in_any_language(authority):
    texts = {"ca": f"# Société Générale \u2603\n{authority.client.ca}\n# fin"}
    assert certificates_of(texts, "ns", "field") == Certificates(f"{authority.client.ca.strip()}\n")


@pytest.mark.parametrize(
    "text", ["\u00e9", "-----BEGIN CERTIFICATE-----\n\u00e9\n-----END CERTIFICATE-----", "\0", "x" * 9]
)
@pytest.mark.parametrize("part", ["ca", "certificate", "private_key"])
def test_bytes_that_are_no_certificate_are_refused_by_their_field(authority, part, text):
    texts = authority.texts | {part: text}
    with pytest.raises(CredentialError, match="field"):
        certificates_of(texts, "ns", "field")


def test_a_client_certificate_needs_no_disk(authority, monkeypatch):
    """/tmp may be full or read-only."""
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    assert certificates_of(authority.texts, "ns", "field").certificate


def test_own_queries_go_where_the_others_go_unless_the_administrator_says_otherwise():
    found = own()
    assert (found.access.url, found.parameters, found.access.refused) == ("http://prometheus:9090", (), None)
    assert own(allow_own_queries=False).access.refused[0] == "OwnQueriesForbidden"


def test_own_queries_are_kept_to_their_namespace_by_a_server_that_can():
    found = own(own_query_url="http://proxy:8080", own_query_parameter="namespace={namespace}")
    assert (found.access.url, found.parameters) == ("http://proxy:8080", (("namespace", "team"),))
    metrics = own(own_query_parameter="extra_label=namespace={namespace}")
    assert (metrics.access.url, metrics.parameters) == ("http://prometheus:9090", (("extra_label", "namespace=team"),))


def test_a_prometheus_of_the_policys_own_is_no_way_around_that():
    there = {"prometheus": {"url": "http://mine"}}
    assert own(there).access.url == "http://mine"
    assert own(there, own_query_url="http://proxy:8080").access.url == "http://mine"
    enforced = own(there, own_query_url="http://proxy:8080", own_query_parameter="namespace={namespace}")
    assert enforced.access.refused[0] == "OwnQueriesForbidden"


@pytest.mark.parametrize(
    "parameter", ["namespace", "={namespace}", "namespace=fixed", "a={namespace}&b=c", "a b={namespace}"]
)
def test_a_parameter_that_names_no_namespace_is_refused(parameter):
    with pytest.raises(ValueError, match="own_query_parameter"):
        Settings(own_query_parameter=parameter)


TENANT = {"tenant": {"id": key("s", "tenant")}}


def test_the_tenant_of_a_secret_is_a_header(access):
    assert access(TENANT, s={"tenant": "team-a|team-b\n"}).headers == (("X-Scope-OrgID", "team-a|team-b"),)
    thanos = {"tenant": TENANT["tenant"] | {"header": "THANOS-TENANT"}}
    assert access(thanos | BEARER, s={"tenant": "t", "token": "abc"}) == Access(
        "https://prometheus", "abc", headers=(("THANOS-TENANT", "t"),)
    )
    for text in ("", "two words", "a\r\nX-Header: b"):
        assert "is not a tenant" in access(TENANT, s={"tenant": text}).refused[1]


def test_the_tenant_of_the_operators_own_prometheus_is_the_administrators():
    headers = {"prometheus_headers": ("X-Scope-OrgID={namespace}",)}
    assert own(**headers).access.headers == (("X-Scope-OrgID", "team"),)
    proxy = own(**headers, own_query_url="http://proxy:8080", own_query_parameter="namespace={namespace}")
    assert (proxy.access.url, proxy.access.headers) == ("http://proxy:8080", (("X-Scope-OrgID", "team"),))
    assert own({"prometheus": {"url": "http://mine"}}, **headers).access.headers == ()
    for url in (None, "http://prometheus:9090/prometheus"):
        there = {"prometheus": {"auth": TENANT} | ({"url": url} if url else {})}
        reason, text = own(there, **headers).access.refused
        assert (reason, "remove spec.metrics.prometheus.auth.tenant" in text) == ("TenantFixed", True)
    with pytest.raises(ValueError, match="prometheus_headers"):
        Settings(prometheus_headers=("X-Scope-OrgID",))
