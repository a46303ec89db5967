"""The broker's files and command lines: one node in KRaft mode that is broker and controller.

It listens on loopback twice: without any protection, where every client may do everything, and with TLS and a password,
where the user `rlscaler` has no right but those that ACLs give it. Beside a real node it runs in the node's network,
and listens without protection at the node's address, too, for pods.
"""

from __future__ import annotations

import base64
import json
import secrets
import uuid
from dataclasses import dataclass
from pathlib import Path
from string import Template

from cryptography.hazmat.primitives import serialization

from rlscaler_dev.cluster import manifests
from rlscaler_dev.cluster.components import Layout
from rlscaler_dev.cluster.kafka.jars import Jars
from rlscaler_dev.cluster.network import HOST, KAFKA_PORT, NODE_IP

USER = "rlscaler"
"""The user of the protected listener."""

EXPORTED = (
    "kafka.server:type=BrokerTopicMetrics,*",
    "kafka.server:type=ReplicaManager,*",
    "kafka.server:type=group-coordinator-metrics,*",
    "kafka.controller:type=KafkaController,*",
    "kafka.network:type=RequestMetrics,name=RequestsPerSec,*",
    "java.lang:type=Memory",
)
"""The beans that Prometheus sees; all of them would be thousands of series."""


@dataclass(frozen=True)
class Broker:
    """One broker: where its files are and on which ports it listens."""

    layout: Layout

    @property
    def folder(self) -> Path:
        """All of its files; it goes with the cluster's."""
        return self.layout.directory / "kafka"

    @property
    def data(self) -> Path:
        """Topics, committed offsets and groups."""
        return self.folder / "data"

    @property
    def bootstrap_servers(self) -> str:
        """Address (host:port) for clients without a credential."""
        return f"{HOST}:{self.layout.ports['kafka']}"

    @property
    def for_pods(self) -> str | None:
        """Address for clients without a credential in the pods of a real node; None without one."""
        return f"{NODE_IP}:{KAFKA_PORT}" if self.layout.real else None

    @property
    def protected(self) -> str:
        """Address for clients with TLS and a password."""
        return f"{HOST}:{self.layout.ports['kafka-sasl']}"

    @property
    def metrics(self) -> str:
        """host:port that answers Prometheus."""
        return f"{HOST}:{self.layout.ports['kafka-metrics']}"

    @property
    def password(self) -> Path:
        """The file with the password of `USER`."""
        return self.folder / "password"

    @property
    def properties(self) -> Path:
        """The broker's configuration."""
        return self.folder / "broker.properties"

    @property
    def jvm(self) -> list[str]:
        """Options of every JVM that is started here: small, and quick to start."""
        logs = f"-Dlog4j2.configurationFile={(self.folder / 'log4j2.xml').as_uri()}"
        return ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", logs]

    def format(self, java: str, jars: Jars, cluster: uuid.UUID) -> list[str]:
        """Make an empty data folder for a cluster, whose identity Kafka wants as 22 characters of base64."""
        identity = base64.urlsafe_b64encode(cluster.bytes).decode().rstrip("=")
        # One argument, because an identity may begin with a dash, which the tool would take for an option.
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "-c", str(self.properties)]
        return [java, *self.jvm, "-cp", f"{jars.folder}/*", *tool]

    def run(self, java: str, jars: Jars) -> list[str]:
        """Start the broker, with the agent that answers Prometheus."""
        agent = f"-javaagent:{jars.agent}={self.metrics}:{self.folder / 'exporter.yaml'}"
        return [java, *self.jvm, agent, "-cp", f"{jars.folder}/*", "kafka.Kafka", str(self.properties)]

    def write(self) -> None:
        """Write configuration, password and certificate."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.xml").write_text(manifests.text("log4j2.xml"))
        # JSON is YAML, too.
        exporter = {"lowercaseOutputName": True, "lowercaseOutputLabelNames": True, "includeObjectNames": EXPORTED}
        (self.folder / "exporter.yaml").write_text(json.dumps(exporter))
        self.password.touch(mode=0o600)
        self.password.write_text(secrets.token_urlsafe(18))
        keystore = self.folder / "keystore.pem"
        keystore.touch(mode=0o600)
        keystore.write_text(_pkcs8(self.layout.pki.admin_key) + self.layout.pki.admin_cert.read_text())
        self.properties.touch(mode=0o600)
        self.properties.write_text(self._settings())

    def _settings(self) -> str:
        clients = f"PLAINTEXT://{self.bootstrap_servers},SASL_SSL://{self.protected}"
        return Template(manifests.text("broker.properties")).substitute(
            clients=clients + (f",PODS://{self.for_pods}" if self.for_pods else ""),
            controller=f"{HOST}:{self.layout.ports['kafka-controller']}",
            folder=self.folder,
            password=self.password.read_text(),
            user=USER,
        )


def _pkcs8(key: Path) -> str:
    """The private key as Java reads it."""
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    encoded = loaded.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return encoded.decode()
