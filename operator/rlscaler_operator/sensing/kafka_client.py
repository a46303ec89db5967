"""What Kafka's brokers say of topics and consumer groups: one client for each cluster and credential.

The client is librdkafka's, which asks in threads of its own. Every request has a deadline, and only the topics and
groups that policies name are asked for. A fault in librdkafka ends the process that it runs in, so that the operator
runs this in a process of its own (`kafka_process`), which imports little.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rlscaler_operator.exceptions import MetricsError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

log = logging.getLogger("rlscaler.kafka")

IDLE_SECONDS = 900.0
"""Time without a question after which a client is closed: its policy is gone or its credential was replaced."""

MOST_PARTITIONS = 2000
"""Most partitions of a policy's topics: their history takes about 1 KiB each."""

CLIENT_MISSING = (
    "KafkaClientMissing",
    "the operator has no Kafka client: install rlscaler[kafka], or use the operator's image, which has it",
)

UNREACHABLE = "BrokerUnreachable"
"""Reason of a cluster that does not answer."""

Partition = tuple[str, int]
"""Topic and number."""


class Wanted(NamedTuple):
    """What is asked for one policy."""

    group: str
    topics: tuple[str, ...]


@dataclass(slots=True)
class Found:
    """What the brokers said of one policy's group and topics; an offset that is not known is not there."""

    time: float
    """Monotonic time of the newest offsets."""
    topic_ids: dict[str, str]
    """Which topic of the name it is: one that is deleted and made again has another id."""
    partitions: list[Partition]
    start: dict[Partition, int] = field(default_factory=dict)
    end: dict[Partition, int] = field(default_factory=dict)
    committed: dict[Partition, int] = field(default_factory=dict)
    owner: dict[Partition, str] = field(default_factory=dict)
    """The member that reads a partition."""
    members: int = 0
    stable: bool = True
    """No rebalance is under way."""


Answer = Found | MetricsError


class Cluster(NamedTuple):
    """A cluster and the credential that it is asked with; policies with equal ones share a client."""

    settings: tuple[tuple[str, str | int], ...]
    """Settings of librdkafka, by name."""
    name: str
    """What messages call it, such as `Kafka kafka:9092`."""
    user: str
    """The user that rights are granted to."""


class Clients:
    """The clients of all clusters that policies' streams are in."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._clients: dict[Cluster, _Client] = {}

    async def look(self, cluster: Cluster, wanted: Sequence[Wanted]) -> dict[Wanted, Answer]:
        """Ask for all of `wanted` at once. Any failure is the answer for those that it concerns; never raises."""
        answers: dict[Wanted, Answer]
        try:
            answers = await self._client(cluster).look(wanted)
        except MetricsError as error:
            answers = dict.fromkeys(wanted, error)
        except Exception as error:
            log.exception("%s could not be read", cluster.name)
            answers = dict.fromkeys(wanted, MetricsError(f"{cluster.name} cannot be read: {error}", UNREACHABLE))
        # A client that lost the coordinator of a group may never find it again, where a new one does at once.
        if any(isinstance(one, MetricsError) and one.reason == UNREACHABLE for one in answers.values()):
            self._clients.pop(cluster, None)
        return answers

    def _client(self, cluster: Cluster) -> _Client:
        """Raises MetricsError."""
        client = self._clients.get(cluster)
        if client is None:
            client = self._clients[cluster] = _Client(cluster, self._timeout_seconds)
        client.asked_at = time.monotonic()
        idle = [other for other, one in self._clients.items() if client.asked_at - one.asked_at > IDLE_SECONDS]
        for other in idle:
            del self._clients[other]
        return client


class _Client:
    """One cluster, read with one credential."""

    def __init__(self, cluster: Cluster, timeout_seconds: float) -> None:
        """Raises MetricsError where the client is not installed or its settings are of no use."""
        self._cluster, self._timeout_seconds = cluster, timeout_seconds
        self.asked_at = time.monotonic()
        self._trouble: Any = None
        """The newest error of the connection, since the last answer."""
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise MetricsError(CLIENT_MISSING[1], CLIENT_MISSING[0]) from error
        try:
            chosen: dict[str, Any] = {**dict(cluster.settings), "error_cb": self._note}
            self._admin: AdminClient = AdminClient(chosen)
        except (KafkaException, ValueError) as error:
            raise MetricsError(f"{cluster.name} cannot be read: {error}", UNREACHABLE) from error

    def _note(self, error: Any) -> None:
        self._trouble = error

    async def look(self, wanted: Sequence[Wanted]) -> dict[Wanted, Answer]:
        """Ask for topics, then for what was committed, then for the ends: no commit is beyond the end beside it."""
        topics = await self._topics({topic for one in wanted for topic in one.topics})
        answers = {one: _begin(one, topics) for one in wanted}
        found = {one: answer for one, answer in answers.items() if isinstance(answer, Found)}
        answers |= await self._groups(found)
        found = {one: answer for one, answer in answers.items() if isinstance(answer, Found)}
        await self._offsets(found.values())
        return answers

    async def _topics(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the description of each topic, or MetricsError."""
        from confluent_kafka import TopicCollection

        asked = self._admin.describe_topics(TopicCollection(sorted(names)), request_timeout=self._timeout_seconds)
        answers = await self._answers(asked)
        return {
            name: self._error(answer, f"topic {name}") if isinstance(answer, BaseException) else answer
            for name, answer in answers.items()
        }

    async def _groups(self, found: Mapping[Wanted, Found]) -> dict[Wanted, MetricsError]:
        """Take members and commits of each group into what was found; return why that failed.

        Commits are asked for only where the coordinator has just answered for the group: librdkafka crashes on the
        answer of a broker that is not the group's coordinator (https://github.com/confluentinc/librdkafka/issues/5040).
        """
        failed: dict[Wanted, MetricsError] = {}
        described = await self._described({one.group for one in found})
        for one, into in found.items():
            try:
                _take_group(into, described[one.group])
            except BaseException as error:
                failed[one] = self._error(error, f"consumer group {one.group}")
        commits = await self._commits({one: into for one, into in found.items() if one not in failed})
        for one, offsets in commits.items():
            try:
                _take_commits(found[one], offsets)
            except BaseException as error:
                failed[one] = self._error(error, f"consumer group {one.group}")
        return failed

    async def _described(self, groups: set[str]) -> dict[str, Any]:
        if not groups:
            return {}
        asked = self._admin.describe_consumer_groups(sorted(groups), request_timeout=self._timeout_seconds)
        return await self._answers(asked)

    async def _commits(self, found: Mapping[Wanted, Found]) -> dict[Wanted, Any]:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        asked: dict[Any, Future[Any]] = {}
        for one, into in found.items():
            partitions = [TopicPartition(*partition) for partition in into.partitions]
            request = [ConsumerGroupTopicPartitions(one.group, partitions)]
            futures = self._admin.list_consumer_group_offsets(request, request_timeout=self._timeout_seconds)
            asked[one] = futures[one.group]
        return await self._answers(asked)

    async def _offsets(self, found: Iterable[Found]) -> None:
        """Take oldest and next offset of each partition into what was found."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        found = list(found)
        partitions = sorted({partition for one in found for partition in one.partitions})
        if not partitions:
            return
        asked: dict[Any, Future[Any]] = {}
        at: tuple[tuple[str, Any], ...] = (
            ("start", OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
            ("end", OffsetSpec.latest()),  # type: ignore[no-untyped-call]
        )
        for kind, spec in at:
            request = {TopicPartition(*partition): spec for partition in partitions}
            futures = self._admin.list_offsets(request, request_timeout=self._timeout_seconds)
            asked |= {(kind, (one.topic, one.partition)): future for one, future in futures.items()}
        answers = await self._answers(asked)
        now = time.monotonic()
        known = {place: answer.offset for place, answer in answers.items() if not isinstance(answer, BaseException)}
        for one in found:
            one.time = now
            one.start = {at: known["start", at] for at in one.partitions if ("start", at) in known}
            one.end = {at: known["end", at] for at in one.partitions if ("end", at) in known}

    async def _answers(self, asked: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
        """Return the answers, or the exceptions in their place; a request ends by its deadline in any case."""
        futures = [asyncio.wrap_future(future) for future in asked.values()]
        answers = await asyncio.gather(*futures, return_exceptions=True)
        # This calls `_note` with what happened to the connections.
        self._admin.poll(0)
        if any(not isinstance(answer, BaseException) for answer in answers):
            self._trouble = None
        return dict(zip(asked, answers, strict=True))

    def _error(self, error: BaseException, what: str) -> MetricsError:
        """Return the reason and the remedy of a failed request about a topic or a group."""
        from confluent_kafka import KafkaError, KafkaException

        if not isinstance(error, KafkaException):
            return MetricsError(f"{what}: {error!r}", UNREACHABLE)
        said: KafkaError = error.args[0]
        where = self._cluster.name
        described = _DESCRIBED.get(said.name())
        if described is not None:
            reason, text = described
            return MetricsError(text.format(what=what, where=where, user=self._cluster.user), reason)
        trouble = self._trouble.name() if self._trouble is not None else said.name()
        if trouble in ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"):
            text = f"{where} refuses the login: correct spec.signal.kafka.sasl or its Secrets"
            return MetricsError(text, "BrokerAuthenticationFailed")
        if trouble == "_SSL":
            text = f"TLS with {where} fails: correct spec.signal.kafka.tls, its Secrets, or the port"
            return MetricsError(text, "BrokerTLSFailed")
        text = (
            f"{where} does not answer: check that the brokers run, that they can be reached from the operator's pod, "
            "and spec.signal.kafka.bootstrapServers"
        )
        return MetricsError(text, UNREACHABLE)


_DESCRIBED = {
    "UNKNOWN_TOPIC_OR_PART": ("TopicMissing", "{what} does not exist at {where}: create it, or correct the name"),
    "TOPIC_EXCEPTION": ("TopicMissing", "{what} is no valid name: correct spec.signal.kafka.topics"),
    "TOPIC_AUTHORIZATION_FAILED": (
        "TopicForbidden",
        "{what} may not be described at {where}: grant it with kafka-acls --add --allow-principal User:{user} "
        "--operation Describe --topic NAME",
    ),
    "GROUP_AUTHORIZATION_FAILED": (
        "GroupForbidden",
        "{what} may not be described at {where}: grant it with kafka-acls --add --allow-principal User:{user} "
        "--operation Describe --group NAME",
    ),
    "COORDINATOR_NOT_AVAILABLE": ("CoordinatorMoving", "{what} has no coordinator at {where} for a moment: wait"),
    "NOT_COORDINATOR": ("CoordinatorMoving", "{what} changes its coordinator at {where}: wait"),
    "COORDINATOR_LOAD_IN_PROGRESS": ("CoordinatorMoving", "the coordinator of {what} at {where} is starting: wait"),
    "INVALID_GROUP_ID": ("GroupMissing", "{what} is no valid name: correct spec.signal.kafka.group"),
}
"""Reason and text by the name of Kafka's error."""

_NO_GROUP = ("GROUP_ID_NOT_FOUND",)
"""Errors of a group that has no member and never had one."""


def _begin(one: Wanted, topics: Mapping[str, Any]) -> Answer:
    """Return the partitions of a policy's topics, or why they are not known."""
    found = Found(time.monotonic(), {}, [])
    for name in one.topics:
        topic = topics[name]
        if isinstance(topic, MetricsError):
            return topic
        found.topic_ids[name] = str(topic.topic_id)
        found.partitions += [(name, partition.id) for partition in topic.partitions]
    if len(found.partitions) > MOST_PARTITIONS:
        text = (
            f"the topics of consumer group {one.group} have more than {MOST_PARTITIONS} partitions: split the topics "
            "among several groups and policies"
        )
        return MetricsError(text, "TooManyPartitions")
    found.partitions.sort()
    return found


def _take_group(into: Found, group: Any) -> None:
    """Note who reads what, of a group of any protocol. Raises what the broker answered."""
    from confluent_kafka import ConsumerGroupState, KafkaException

    if isinstance(group, KafkaException) and group.args[0].name() in _NO_GROUP:
        return
    if isinstance(group, BaseException):
        raise group
    into.members = len(group.members)
    quiet = (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
    into.stable = group.state in quiet
    here = set(into.partitions)
    for member in group.members:
        assigned = member.assignment.topic_partitions if member.assignment is not None else []
        for one in assigned:
            if (one.topic, one.partition) in here:
                into.owner[one.topic, one.partition] = member.member_id


def _take_commits(into: Found, offsets: Any) -> None:
    """Note what was committed; partitions of which nothing was are left out. Raises what the broker answered."""
    from confluent_kafka import KafkaException

    if isinstance(offsets, KafkaException) and offsets.args[0].name() in _NO_GROUP:
        return
    if isinstance(offsets, BaseException):
        raise offsets
    for one in offsets.topic_partitions:
        if one.error is not None:
            raise KafkaException(one.error)
        if one.offset >= 0:
            into.committed[one.topic, one.partition] = one.offset
