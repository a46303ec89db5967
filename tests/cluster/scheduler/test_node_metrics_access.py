"""Node metrics from a real Prometheus that lets in only those who have what it demands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest
import requests

from rlscaler_dev.cluster import pki
from rlscaler_dev.exposition import ExpositionServer
from tests.cluster.scheduler.test_node_metrics import exposition
from tests.harness.scraping import Protection, prometheus
from tests.harness.serving import Quiet, serving
from tests.harness.waiting import until

PASSWORD, PASSWORD_BCRYPT = "correct horse", "$2b$04$ST0SvkrU1Vew8jEN5vElqesMXc5dOdvpj8V.4gJ4Gox/dJfJPQ9.i"

ALL_MEASURED = "rlscaler_scheduler_nodes_measured 12.0"


@pytest.fixture
def target(nodes) -> Iterator[str]:
    """Address of what says how much the nodes use."""
    began = monotonic()
    server = ExpositionServer(lambda: exposition(nodes, monotonic() - began))
    yield server.address
    server.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch) -> None:
    monkeypatch.setenv("RLSCALER_SCHEDULER_NODE_METRICS_SECONDS", "1")


def said(folder: Path, text: str) -> None:
    """Wait until the server's log has the text."""
    until(lambda: text in (folder / "suggestions.log").read_text(), 60)


def test_mutual_tls_and_a_password_that_is_corrected_while_it_runs(server, target, folder):
    protection = Protection(pki.create(folder / "pki"), "scheduler", PASSWORD, PASSWORD_BCRYPT)
    credentials = folder / "credentials"
    credentials.mkdir()
    held = protection.pki
    for name, source in (("ca.crt", held.ca_cert), ("tls.crt", held.proxy_cert), ("tls.key", held.proxy_key)):
        (credentials / name).write_text(source.read_text())
    (credentials / "username").write_text("scheduler\n")
    (credentials / "password").write_text("wrong\n")
    with prometheus([(target, {})], honor_labels=True, protection=protection) as url:
        suggestions = server("--prometheus-url", url, "--prometheus-credentials", str(credentials))
        said(folder, "node metrics cannot be read: ")
        said(folder, "401")
        assert ALL_MEASURED not in suggestions.metrics()
        (credentials / "password").write_text(PASSWORD + "\n")
        until(lambda: ALL_MEASURED in suggestions.metrics(), 60)
        said(folder, "node metrics are read again")
        (credentials / "tls.crt").unlink()
        (credentials / "tls.key").unlink()
        said(folder, "CERTIFICATE_REQUIRED")


def test_a_prometheus_of_an_authority_that_is_not_known_is_not_asked(server, target, folder):
    protection = Protection(pki.create(folder / "pki"), "scheduler", PASSWORD, PASSWORD_BCRYPT)
    credentials = folder / "credentials"
    credentials.mkdir()
    for name, text in (("username", "scheduler"), ("password", PASSWORD)):
        (credentials / name).write_text(text)
    with prometheus([(target, {})], honor_labels=True, protection=protection) as url:
        suggestions = server("--prometheus-url", url, "--prometheus-credentials", str(credentials))
        said(folder, "its certificate is not trusted (")
        assert ALL_MEASURED not in suggestions.metrics()


@contextmanager
def behind_a_token(url: str, token: str) -> Iterator[str]:
    """The URL of what passes on to `url` the questions of those who have the token: Prometheus checks none itself."""

    class Gate(Quiet):
        def do_POST(self) -> None:  # noqa: N802
            body = self.rfile.read(int(self.headers["Content-Length"]))
            content, status = b"", 401
            if self.headers.get("Authorization") == f"Bearer {token}":
                kind = {"Content-Type": self.headers["Content-Type"]}
                answer = requests.post(url + self.path, data=body, headers=kind, timeout=30)
                content, status = answer.content, answer.status_code
            self.answer(status, content)

    with serving(Gate) as gate:
        yield gate


def test_a_token_that_is_renewed(server, target, folder):
    credentials = folder / "credentials"
    credentials.mkdir()
    (credentials / "token").write_text("old")
    with prometheus([(target, {})], honor_labels=True) as behind, behind_a_token(behind, "new") as url:
        suggestions = server("--prometheus-url", url, "--prometheus-credentials", str(credentials))
        said(folder, "401")
        (credentials / "token").write_text("new")
        until(lambda: ALL_MEASURED in suggestions.metrics(), 60)
        said(folder, "node metrics are read again")
