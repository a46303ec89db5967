"""Command lines of a cluster's processes, and the files and ports that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import yaml

from rlscaler_dev.cluster import network
from rlscaler_dev.cluster.network import HOST
from rlscaler_dev.cluster.pki import Pki

PORTS = (
    "apiserver",
    "etcd",
    "etcd-peer",
    "controller-manager",
    "scheduler",
    "kwok",
    "metrics-server",
    "prometheus",
    "prometheus-adapter",
    "gateway",
)
"""One port each; chosen together, so that none is chosen twice."""

KAFKA_PORTS = ("kafka", "kafka-sasl", "kafka-controller", "kafka-metrics")
"""Those of the broker, chosen when it is first started."""

OPTIONS: Mapping[str, list[str]] = yaml.safe_load(
    resources.files("rlscaler_dev.cluster").joinpath("data", "commands.yaml").read_text()
)


@dataclass(frozen=True)
class Layout:
    """Files of one cluster, ports of its components, and their binaries."""

    directory: Path
    ports: Mapping[str, int]
    binaries: Mapping[str, str]
    """Tool -> path of its binary."""
    real: bool = False
    """Whether a real node is beside the played ones."""

    @property
    def pki(self) -> Pki:
        """The cluster's certificates."""
        return Pki.at(self.directory / "pki")

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{HOST}:{self.ports['apiserver']}"

    @property
    def prometheus_url(self) -> str:
        """URL of Prometheus."""
        return f"http://{HOST}:{self.ports['prometheus']}"

    @property
    def prometheus_ready(self) -> str:
        """URL that answers with success once Prometheus answers queries."""
        return f"{self.prometheus_url}/-/ready"

    @property
    def gateway_url(self) -> str:
        """URL of the Gateway's data plane beside a real node."""
        return f"http://{HOST}:{self.ports['gateway']}"

    @property
    def targets_dir(self) -> Path:
        """Prometheus scrapes the targets of every JSON or YAML file in here."""
        return self.directory / "targets"

    @property
    def kwok_config(self) -> Path:
        """Stages, usage and metrics that kwok plays."""
        return self.directory / "kwok.yaml"

    @property
    def prometheus_config(self) -> Path:
        """Prometheus's configuration file."""
        return self.directory / "prometheus.yml"

    @property
    def adapter_rules(self) -> Path:
        """Series that prometheus-adapter serves."""
        return self.directory / "adapter-rules.yaml"


def command(layout: Layout, name: str) -> list[str]:
    """Return the command line of a process, by the name of its binary, with the options of `data/commands.yaml`."""
    place = "beside a real node" if layout.real else "alone"
    values = {"layout": layout, "ports": layout.ports, "pki": layout.pki, "host": HOST, "network": network}
    options = [*OPTIONS[name], *OPTIONS.get(f"{name} {place}", ())]
    return [layout.binaries[name], *(option.format(**values) for option in options)]
