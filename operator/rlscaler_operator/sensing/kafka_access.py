"""Access to the Kafka cluster of a policy's stream: its servers, and credentials from Secrets."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlscaler_core.api.kafka import Kafka
from rlscaler_core.api.metrics import SecretKey
from rlscaler_operator.cluster.references import References
from rlscaler_operator.exceptions import CredentialError
from rlscaler_operator.sensing.access import Certificates, Secret, certificates_of, secret_texts
from rlscaler_operator.settings import Settings

FIELD = "spec.signal.kafka"

PENDING = ("SecretPending", f"the Secrets that {FIELD} names are being read for the first time")
"""Reason and message while the credentials are read."""

LARGEST_ANSWER = 16 * 2**20
"""Most bytes of a broker's answer: offsets and members of some thousand partitions."""


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """Servers and credential of a Kafka cluster; policies with equal access share one client."""

    servers: tuple[str, ...]
    certificates: Certificates | None = None
    """None means no TLS."""
    login: tuple[str, str, str] | None = field(default=None, repr=False)
    """SASL mechanism, user name and password."""
    refused: tuple[str, str] | None = None
    """Reason and message if this cluster must not be asked; None = it may be asked."""


def kafka_access_of(kafka: Kafka, namespace: str, settings: Settings, secrets: References[Secret]) -> KafkaAccess:
    """Return the access to the cluster of a policy in `namespace`. No credential goes to a forbidden server."""
    servers = tuple(sorted(kafka.bootstrap_servers))
    forbidden = [server for server in servers if not settings.may_read_kafka(server)]
    if forbidden:
        text = (
            f"{', '.join(forbidden)} ({FIELD}.bootstrapServers) is not an allowed Kafka: ask the operator's "
            "administrator for kafka.allowedServers of the chart (RLSCALER_ALLOWED_KAFKA_SERVERS)"
        )
        return KafkaAccess(servers, refused=("KafkaNotAllowed", text))
    try:
        return _with_credentials(servers, kafka, namespace, secrets)
    except CredentialError as error:
        return KafkaAccess(servers, refused=(error.reason, str(error)))


def _with_credentials(
    servers: tuple[str, ...], kafka: Kafka, namespace: str, secrets: References[Secret]
) -> KafkaAccess:
    """Return the access with the credentials of the Secrets. Raises CredentialError."""
    references: dict[str, SecretKey | None] = {}
    if kafka.sasl is not None:
        references |= {"username": kafka.sasl.username, "password": kafka.sasl.password}
    if kafka.tls is not None:
        references |= {"ca": kafka.tls.ca, "certificate": kafka.tls.certificate, "private_key": kafka.tls.private_key}
    texts = secret_texts(references, namespace, secrets, FIELD)
    if texts is None:
        return KafkaAccess(servers, refused=PENDING)
    certificates = None if kafka.tls is None else certificates_of(texts, namespace, f"{FIELD}.tls")
    login = None
    if kafka.sasl is not None:
        login = kafka.sasl.mechanism, texts["username"].strip("\r\n"), texts["password"].strip("\r\n")
    return KafkaAccess(servers, certificates, login)


def client_settings(access: KafkaAccess, timeout_seconds: float) -> dict[str, str | int]:
    """Return the settings of a librdkafka client whose requests fail after `timeout_seconds`."""
    milliseconds = max(1000, round(1000 * timeout_seconds))
    settings: dict[str, str | int] = {
        "bootstrap.servers": ",".join(access.servers),
        "client.id": "rlscaler",
        "security.protocol": ("SASL_" if access.login else "")
        + ("PLAINTEXT" if access.certificates is None else "SSL"),
        "socket.timeout.ms": milliseconds,
        "socket.connection.setup.timeout.ms": milliseconds,
        "reconnect.backoff.max.ms": 2000,
        "receive.message.max.bytes": LARGEST_ANSWER,
        "log_level": 2,
    }
    if access.login is not None:
        mechanism, username, password = access.login
        settings |= {"sasl.mechanisms": mechanism, "sasl.username": username, "sasl.password": password}
    if access.certificates is not None:
        pem = access.certificates
        texts = {"ssl.ca.pem": pem.ca, "ssl.certificate.pem": pem.certificate, "ssl.key.pem": pem.private_key}
        settings |= {name: text for name, text in texts.items() if text}
    return settings
