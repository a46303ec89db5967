"""The Kafka topics that a policy's replicas consume: `spec.signal.kafka`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlscaler_core.api.base import Model, Rule
from rlscaler_core.api.metrics import TLS, SecretKey

Server = Annotated[str, Field(min_length=3, max_length=261, pattern=r"^[^\s,/]+:[0-9]{1,5}$")]
Topic = Annotated[str, Field(min_length=1, max_length=249, pattern=r"^[a-zA-Z0-9._-]+$")]

MECHANISMS = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class SASL(Model):
    """Credentials of the operator for the brokers."""

    mechanism: MECHANISMS = "SCRAM-SHA-512"
    """SASL mechanism; `PLAIN` sends the password as it is, so use it with `tls`."""
    username: SecretKey
    """Key that holds the user name."""
    password: SecretKey
    """Key that holds the password."""


class Kafka(Model):
    """Topics and the consumer group whose members the targets' pods are."""

    bootstrap_servers: Annotated[list[Server], Field(min_length=1, max_length=16)]
    """Brokers to begin with, each `host:port`. The operator's administrator has to allow them
    (`kafka.allowedServers` of the chart)."""
    topics: Annotated[list[Topic], Field(min_length=1, max_length=16)]
    """Topics that the group consumes."""
    group: Annotated[str, Field(min_length=1, max_length=255)]
    """The consumers' `group.id`."""
    offset_reset: Literal["earliest", "latest"] = "latest"
    """The consumers' `auto.offset.reset`: where they begin in a partition of which nothing was committed."""
    tls: TLS | None = None
    """Certificate authority and client certificate, from Secrets in the policy's namespace; `{}` is TLS that is checked
    with the authorities of the operator's system; default: no TLS."""
    sasl: SASL | None = None
    """User name and password, from Secrets in the policy's namespace; default: none."""

    rules = (
        Rule(
            cel="self.topics.all(topic, self.topics.exists_one(other, other == topic))",
            holds=lambda kafka: len(set(kafka.topics)) == len(kafka.topics),
            message="topics names a topic twice: name each once",
            field="topics",
        ),
    )


class Source(Model):
    """Source of the load and its delay, in place of the series of `metrics`."""

    kafka: Kafka
    """Topics and the consumer group whose members the targets' pods are."""
