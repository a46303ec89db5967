"""A Prometheus of its own that scrapes what a test says, with the labels that a ServiceMonitor or an HA pair gives."""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
import yaml

from rlscaler_dev.cluster import binaries
from rlscaler_dev.cluster.network import free_ports
from rlscaler_dev.cluster.pki import Pki
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.exposition import ExpositionServer
from tests.harness.waiting import until

Labels = Mapping[str, str]


class Counters:
    """Serves series on one port: counters that rise steadily from when it was made, and gauges."""

    def __init__(self) -> None:
        self._began = time.time()
        self._series: list[tuple[str, float, bool]] = []
        self._server = ExpositionServer(self.text)
        self.address = self._server.address

    def counter(self, name: str, rate: float, **labels: str) -> None:
        self._series.append((_series(name, labels), rate, True))

    def gauge(self, name: str, value: float, **labels: str) -> None:
        self._series.append((_series(name, labels), value, False))

    def recorded(self, path: Path, per_second: float = 1 / 60, growing: Mapping[str, float] = {}) -> None:
        """Serve an exposition from a file: gauges as they are, counters from 0 on, `per_second` of what it says each
        second. Gauges in `growing` rise by so much a second instead."""
        types: dict[str, str] = {}
        for line in path.read_text().splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                types[name] = kind
            elif line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                name = series.partition("{")[0]
                rises = types.get(name, "histogram") in ("counter", "histogram")
                if name in growing:
                    self._series.append((series, growing[name], True))
                else:
                    self._series.append((series, float(value) * (per_second if rises else 1.0), rises))

    def text(self) -> str:
        seconds = time.time() - self._began
        values = (f"{name} {value * seconds if rises else value}" for name, value, rises in self._series)
        return "".join(f"{line.removesuffix(' nan') if line[0] == '#' else line}\n" for line in values)

    def histogram(self, name: str) -> None:
        """Say that the series that follow are those of a histogram."""
        self._series.append((f"# TYPE {name} histogram", math.nan, False))

    def close(self) -> None:
        self._server.close()


def about(rate: float) -> object:
    """What a rate over five scrapes is compared with. A scrape that is late on a busy machine moves it by up to a
    fifth; a series that is left out or counted twice moves it by more."""
    return pytest.approx(rate, rel=0.25)


def _series(name: str, labels: Labels) -> str:
    inner = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{inner}}}"


@dataclass(frozen=True)
class Protection:
    """What a Prometheus demands of those who ask it: TLS with a client certificate, a user and a password."""

    pki: Pki
    user: str
    password: str
    password_bcrypt: str

    def web_config(self) -> dict[str, object]:
        """Prometheus's web configuration."""
        tls = {
            "cert_file": str(self.pki.admin_cert),
            "key_file": str(self.pki.admin_key),
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": str(self.pki.ca_cert),
        }
        return {"tls_server_config": tls, "basic_auth_users": {self.user: self.password_bcrypt}}

    def of_requests(self) -> dict[str, object]:
        """Arguments with which `requests` is let in."""
        pki = self.pki
        certificate = (str(pki.proxy_cert), str(pki.proxy_key))
        return {"verify": str(pki.ca_cert), "cert": certificate, "auth": (self.user, self.password)}


@contextmanager
def prometheus(
    targets: Sequence[tuple[str, Labels]],
    honor_labels: bool = False,
    scrape_seconds: int = 1,
    protection: Protection | None = None,
    native_histograms: bool = False,
) -> Iterator[str]:
    """The URL of a Prometheus that scrapes each (address, target labels), every second unless told otherwise.

    With `native_histograms` it converts classic ones to native ones with their buckets.
    """
    with ConsoleReporter() as progress:
        binary = binaries.provide(["prometheus"], progress)["prometheus"]["path"]
    (port,) = free_ports(1)
    job = {
        "job_name": "targets",
        "honor_labels": honor_labels,
        "static_configs": [{"targets": [address], "labels": dict(labels)} for address, labels in targets],
    }
    scrape = f"{scrape_seconds}s"
    every = {"scrape_interval": scrape, "scrape_timeout": scrape}
    config = {"global": every | {"convert_classic_histograms_to_nhcb": native_histograms}, "scrape_configs": [job]}
    with tempfile.TemporaryDirectory(prefix="prometheus-") as folder:
        path = Path(folder) / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        command = [
            binary,
            f"--config.file={path}",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        if protection is not None:
            web = Path(folder) / "web.yml"
            web.write_text(yaml.safe_dump(protection.web_config()))
            command.append(f"--web.config.file={web}")
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        url = f"{'https' if protection else 'http'}://127.0.0.1:{port}"
        try:
            until(lambda: _ready(url, protection), 30)
            yield url
        finally:
            process.terminate()
            process.wait(20)


def _ready(url: str, protection: Protection | None) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=2, **(protection.of_requests() if protection else {})).ok
    except requests.RequestException:
        return False
