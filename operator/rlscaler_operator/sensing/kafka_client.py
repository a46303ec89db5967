"""Clients that read topics and consumer groups from Kafka's brokers: one for each cluster and credential.

The client is librdkafka's, which asks in threads of its own. Every request has a deadline, and only topics and groups
that policies name are read. A fault in librdkafka ends its process, so the operator runs this code in a process of its
own (`kafka_process`), which imports little.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rlscaler_operator.exceptions import MetricsError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

log = logging.getLogger("rlscaler.kafka")

IDLE_SECONDS = 900.0
"""Time without a request after which a client is closed: its policy is gone or its credential was replaced."""

MOST_PARTITIONS = 2000
"""Most partitions of a policy's topics: the history of each takes about 1 KiB."""

CLIENT_MISSING = (
    "KafkaClientMissing",
    "the operator has no Kafka client: install rlscaler[kafka], or use the operator's image, which has it",
)

UNREACHABLE = "BrokerUnreachable"
"""Reason of a cluster that does not answer."""

Partition = tuple[str, int]
"""Topic and number."""


class GroupTopics(NamedTuple):
    """Consumer group and topics of one policy."""

    group: str
    topics: tuple[str, ...]


@dataclass(slots=True)
class GroupState:
    """State of one policy's group and topics. An unknown offset is missing in its dictionary."""

    time: float
    """Monotonic time of the newest offsets."""
    topic_ids: dict[str, str]
    """IDs of the topics by name: a topic that is deleted and made again has another ID."""
    partitions: list[Partition]
    start: dict[Partition, int] = field(default_factory=dict)
    end: dict[Partition, int] = field(default_factory=dict)
    committed: dict[Partition, int] = field(default_factory=dict)
    owner: dict[Partition, str] = field(default_factory=dict)
    """Member that reads each partition."""
    members: int = 0
    stable: bool = True
    """True while no rebalance is under way."""


Answer = GroupState | MetricsError


class Cluster(NamedTuple):
    """Cluster and credential; policies with equal ones share a client."""

    settings: tuple[tuple[str, str | int], ...]
    """Settings of librdkafka, by name."""
    name: str
    """Name in messages, such as `Kafka kafka:9092`."""
    user: str
    """User that needs the rights."""


class Clients:
    """Clients of all Kafka clusters of policies."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._clients: dict[Cluster, _Client] = {}

    async def look(self, cluster: Cluster, wanted: Sequence[GroupTopics]) -> dict[GroupTopics, Answer]:
        """Ask for all of `wanted` at once. A failure is the answer for the groups that it concerns; never raises."""
        answers: dict[GroupTopics, Answer]
        try:
            answers = await self._client(cluster).look(wanted)
        except MetricsError as error:
            answers = dict.fromkeys(wanted, error)
        except Exception as error:
            log.exception("%s could not be read", cluster.name)
            answers = dict.fromkeys(wanted, MetricsError(f"{cluster.name} cannot be read: {error}", UNREACHABLE))
        # A client that lost the coordinator of a group may never find it again, where a new one does at once.
        if any(isinstance(answer, MetricsError) and answer.reason == UNREACHABLE for answer in answers.values()):
            self._clients.pop(cluster, None)
        return answers

    def _client(self, cluster: Cluster) -> _Client:
        """Return the client of a cluster, and close idle ones. Raises MetricsError."""
        client = self._clients.get(cluster)
        if client is None:
            client = self._clients[cluster] = _Client(cluster, self._timeout_seconds)
        client.asked_at = time.monotonic()
        oldest = client.asked_at - IDLE_SECONDS
        self._clients = {key: other for key, other in self._clients.items() if other.asked_at >= oldest}
        return client


class _Client:
    """Client of one cluster with one credential."""

    def __init__(self, cluster: Cluster, timeout_seconds: float) -> None:
        """Raises MetricsError where the client is not installed or its settings are invalid."""
        self._cluster, self._timeout_seconds = cluster, timeout_seconds
        self.asked_at = time.monotonic()
        self._trouble: Any = None
        """Newest error of the connection since the last answer."""
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ImportError as error:
            raise MetricsError(CLIENT_MISSING[1], CLIENT_MISSING[0]) from error
        try:
            settings: dict[str, Any] = {**dict(cluster.settings), "error_cb": self._note}
            self._admin: AdminClient = AdminClient(settings)
        except (KafkaException, ValueError) as error:
            raise MetricsError(f"{cluster.name} cannot be read: {error}", UNREACHABLE) from error

    def _note(self, error: Any) -> None:
        self._trouble = error

    async def look(self, wanted: Sequence[GroupTopics]) -> dict[GroupTopics, Answer]:
        """Ask for topics, then for groups and their commits, then for the ends of the partitions."""
        topics = await self._topics({topic for names in wanted for topic in names.topics})
        answers = {names: _begin(names, topics) for names in wanted}
        answers |= await self._groups(_states(answers))
        # The ends come last, so that no commit lies beyond the end that is read beside it.
        await self._offsets(_states(answers).values())
        return answers

    async def _topics(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the description of each topic, or MetricsError."""
        from confluent_kafka import TopicCollection

        requests = self._admin.describe_topics(TopicCollection(sorted(names)), request_timeout=self._timeout_seconds)
        answers = await self._answers(requests)
        return {
            name: self._error(answer, f"topic {name}") if isinstance(answer, BaseException) else answer
            for name, answer in answers.items()
        }

    async def _groups(self, states: Mapping[GroupTopics, GroupState]) -> dict[GroupTopics, MetricsError]:
        """Fill in members and commits of each group; return the errors of the groups for which that failed."""
        failed: dict[GroupTopics, MetricsError] = {}

        def fill(fill_in: Callable[[GroupState, Any], None], names: GroupTopics, answer: Any) -> None:
            try:
                fill_in(states[names], answer)
            except BaseException as error:
                failed[names] = self._error(error, f"consumer group {names.group}")

        described = await self._described({names.group for names in states})
        for names in states:
            fill(_fill_members, names, described[names.group])
        # Commits are asked for only where the coordinator has just answered for the group: librdkafka crashes on the
        # answer of a broker that is not the coordinator (https://github.com/confluentinc/librdkafka/issues/5040).
        commits = await self._commits({names: state for names, state in states.items() if names not in failed})
        for names, offsets in commits.items():
            fill(_fill_commits, names, offsets)
        return failed

    async def _described(self, groups: set[str]) -> dict[str, Any]:
        if not groups:
            return {}
        requests = self._admin.describe_consumer_groups(sorted(groups), request_timeout=self._timeout_seconds)
        return await self._answers(requests)

    async def _commits(self, states: Mapping[GroupTopics, GroupState]) -> dict[GroupTopics, Any]:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        requests: dict[Any, Future[Any]] = {}
        for names, state in states.items():
            partitions = [TopicPartition(*partition) for partition in state.partitions]
            request = [ConsumerGroupTopicPartitions(names.group, partitions)]
            futures = self._admin.list_consumer_group_offsets(request, request_timeout=self._timeout_seconds)
            requests[names] = futures[names.group]
        return await self._answers(requests)

    async def _offsets(self, states: Collection[GroupState]) -> None:
        """Fill in the oldest and the next offset of each partition."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        partitions = sorted({partition for state in states for partition in state.partitions})
        if not partitions:
            return
        requests: dict[Any, Future[Any]] = {}
        at: tuple[tuple[str, Any], ...] = (
            ("start", OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
            ("end", OffsetSpec.latest()),  # type: ignore[no-untyped-call]
        )
        for kind, spec in at:
            request = {TopicPartition(*partition): spec for partition in partitions}
            futures = self._admin.list_offsets(request, request_timeout=self._timeout_seconds)
            requests |= {(kind, (place.topic, place.partition)): future for place, future in futures.items()}
        answers = await self._answers(requests)
        now = time.monotonic()
        known = {place: answer.offset for place, answer in answers.items() if not isinstance(answer, BaseException)}
        for state in states:
            state.time = now
            state.start = {at: known["start", at] for at in state.partitions if ("start", at) in known}
            state.end = {at: known["end", at] for at in state.partitions if ("end", at) in known}

    async def _answers(self, requests: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
        """Return the answers, or the exceptions in their place. Each request ends by its deadline."""
        futures = [asyncio.wrap_future(future) for future in requests.values()]
        answers = await asyncio.gather(*futures, return_exceptions=True)
        # This calls `_note` with the errors of the connections.
        self._admin.poll(0)
        if any(not isinstance(answer, BaseException) for answer in answers):
            self._trouble = None
        return dict(zip(requests, answers, strict=True))

    def _error(self, error: BaseException, subject: str) -> MetricsError:
        """Return the error of a failed request about a topic or a group, with reason and remedy."""
        from confluent_kafka import KafkaError, KafkaException

        if not isinstance(error, KafkaException):
            return MetricsError(f"{subject}: {error!r}", UNREACHABLE)
        cause: KafkaError = error.args[0]
        where = self._cluster.name
        described = _DESCRIBED.get(cause.name())
        if described is not None:
            reason, text = described
            return MetricsError(text.format(subject=subject, where=where, user=self._cluster.user), reason)
        trouble = self._trouble.name() if self._trouble is not None else cause.name()
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
    "UNKNOWN_TOPIC_OR_PART": ("TopicMissing", "{subject} does not exist at {where}: create it, or correct the name"),
    "TOPIC_EXCEPTION": ("TopicMissing", "{subject} is no valid name: correct spec.signal.kafka.topics"),
    "TOPIC_AUTHORIZATION_FAILED": (
        "TopicForbidden",
        "{subject} may not be described at {where}: grant it with kafka-acls --add --allow-principal User:{user} "
        "--operation Describe --topic NAME",
    ),
    "GROUP_AUTHORIZATION_FAILED": (
        "GroupForbidden",
        "{subject} may not be described at {where}: grant it with kafka-acls --add --allow-principal User:{user} "
        "--operation Describe --group NAME",
    ),
    "COORDINATOR_NOT_AVAILABLE": ("CoordinatorMoving", "{subject} has no coordinator at {where} for a moment: wait"),
    "NOT_COORDINATOR": ("CoordinatorMoving", "{subject} changes its coordinator at {where}: wait"),
    "COORDINATOR_LOAD_IN_PROGRESS": ("CoordinatorMoving", "the coordinator of {subject} at {where} is starting: wait"),
    "INVALID_GROUP_ID": ("GroupMissing", "{subject} is no valid name: correct spec.signal.kafka.group"),
}
"""Reason and text by the name of Kafka's error."""

_NO_GROUP = ("GROUP_ID_NOT_FOUND",)
"""Errors of a group that has no member and never had one."""


def _states(answers: Mapping[GroupTopics, Answer]) -> dict[GroupTopics, GroupState]:
    """Return the answers that are no errors."""
    return {names: answer for names, answer in answers.items() if isinstance(answer, GroupState)}


def _begin(names: GroupTopics, topics: Mapping[str, Any]) -> Answer:
    """Return a state with the partitions of a policy's topics, or the error of one topic."""
    state = GroupState(time.monotonic(), {}, [])
    for name in names.topics:
        topic = topics[name]
        if isinstance(topic, MetricsError):
            return topic
        state.topic_ids[name] = str(topic.topic_id)
        state.partitions += [(name, partition.id) for partition in topic.partitions]
    if len(state.partitions) > MOST_PARTITIONS:
        text = (
            f"the topics of consumer group {names.group} have more than {MOST_PARTITIONS} partitions: split the topics "
            "among several groups and policies"
        )
        return MetricsError(text, "TooManyPartitions")
    state.partitions.sort()
    return state


def _fill_members(state: GroupState, group: Any) -> None:
    """Fill in the members of a group of any protocol, and their partitions. Raises the broker's error."""
    from confluent_kafka import ConsumerGroupState, KafkaException

    if isinstance(group, KafkaException) and group.args[0].name() in _NO_GROUP:
        return
    if isinstance(group, BaseException):
        raise group
    state.members = len(group.members)
    quiet = (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
    state.stable = group.state in quiet
    known = set(state.partitions)
    for member in group.members:
        assigned = member.assignment.topic_partitions if member.assignment is not None else []
        places = ((place.topic, place.partition) for place in assigned)
        state.owner |= dict.fromkeys((place for place in places if place in known), member.member_id)


def _fill_commits(state: GroupState, offsets: Any) -> None:
    """Fill in the committed offsets; partitions without a commit are left out. Raises the broker's error."""
    from confluent_kafka import KafkaException

    if isinstance(offsets, KafkaException) and offsets.args[0].name() in _NO_GROUP:
        return
    if isinstance(offsets, BaseException):
        raise offsets
    for place in offsets.topic_partitions:
        if place.error is not None:
            raise KafkaException(place.error)
        if place.offset >= 0:
            state.committed[place.topic, place.partition] = place.offset
