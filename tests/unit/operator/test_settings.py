"""Which Prometheus a policy may name, and what a process finds out about itself."""

import pytest

from rlscaler_operator import settings
from rlscaler_operator.settings import Settings

ALLOWED = Settings(prometheus_url="http://prom:9090", allowed_prometheus_urls="https://thanos/tenant-a, http://other:1")


@pytest.mark.parametrize(
    "url",
    [
        "http://prom:9090",
        "http://prom:9090/",
        "http://prom:9090/prefix",
        "https://thanos/tenant-a/",
        "https://thanos/tenant-a/api",
        "http://other:1",
    ],
)
def test_the_operators_own_and_what_is_below_an_allowed_prefix(url):
    assert ALLOWED.may_query(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://prom:90909",
        "http://prom:9090@elsewhere",
        "http://prom:9090.elsewhere/",
        "https://prom:9090",
        "https://thanos/tenant-ab",
        "https://thanos/tenant-a/../tenant-b",
        "https://thanos/tenant-a/%2e%2e/tenant-b",
        "https://thanos/tenant-a/..%2ftenant-b",
        "https://thanos/tenant-a/..\\tenant-b",
        "https://thanos/tenant-a/..;/tenant-b",
        "https://thanos/tenant-a/%252e%252e/tenant-b",
        "https://thanos",
        "http://169.254.169.254/latest",
        "http://[x",
        "https://a]b",
        "http://\u2100.com",
    ],
)
def test_nothing_else(url):
    assert not ALLOWED.may_query(url)


def test_a_star_allows_any():
    assert Settings(allowed_prometheus_urls="*").may_query("http://anything")


def test_the_lease_is_in_the_pods_own_namespace(monkeypatch, tmp_path):
    monkeypatch.setattr(settings, "SERVICE_ACCOUNT", tmp_path)
    assert Settings().lease_namespace == "default"
    (tmp_path / "namespace").write_text("rlscaler-system\n")
    assert Settings().lease_namespace == "rlscaler-system"
    assert Settings(lease_namespace="elsewhere").lease_namespace == "elsewhere"
