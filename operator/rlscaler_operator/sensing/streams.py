"""Measurement of policies whose replicas are consumers of a stream: offsets in, readings out.

The brokers are asked once for all policies that share a cluster and a credential, and their answers are measured in one
array for policies of about as many partitions.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rlscaler_core.api.kafka import Kafka
from rlscaler_core.streams import Look, Measured, Memory, initial_memory, measure, with_partitions
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.brokers import Brokers
from rlscaler_operator.sensing.kafka_access import KafkaAccess
from rlscaler_operator.sensing.kafka_client import GroupState, GroupTopics, Partition
from rlscaler_operator.sensing.results import Reading, unknown

log = logging.getLogger("rlscaler.streams")

FEWEST_COLUMNS = 8
"""Least number of partitions in the array of a policy."""

AT_ONCE = 4096
"""Most partitions in one array: some 20 MB with the intermediate results."""


class Stream(NamedTuple):
    """Result of one look at a policy's stream; NaN is unknown."""

    arrival_rate: Reading
    """Produced messages/s."""
    p95_latency: Reading
    """95th percentile of the waiting time of messages, in milliseconds."""
    lag_messages: float = math.nan
    """Waiting messages, without those of stuck partitions."""
    partitions: int = 0
    """Partitions with messages; 0 = unknown."""
    settling: bool = False
    """True while the group rebalances, or new consumers have not joined or committed yet."""
    processed: float = math.nan
    """Messages/s that the group processes."""
    service_rate: float = math.nan
    """Messages/s that one consumer can process."""
    notes: tuple[tuple[str, str], ...] = ()
    """Reason and message of faults for the consumers' owner."""

    @property
    def consumed(self) -> tuple[float, int, bool, float]:
        """Lag, partitions, rebalance and processed messages/s, as in `Samples`."""
        return self.lag_messages, self.partitions, self.settling, self.processed


class Asker(NamedTuple):
    """Policy whose stream is looked at."""

    key: Key
    kafka: Kafka
    ready: int
    """Number of its ready consumers, which should be members of the group."""


@dataclass(slots=True)
class _Watched:
    """Memory of one policy's stream."""

    source: tuple[KafkaAccess, GroupTopics]
    memory: Memory
    columns: list[Partition] = field(default_factory=list)
    topic_ids: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    """Numbers of the group's members, which they keep from look to look."""


class Streams:
    """Looks at the streams of policies, and the memory of each."""

    def __init__(self, timeout_seconds: float) -> None:
        self._brokers = Brokers(timeout_seconds)
        self._watched: dict[Key, _Watched] = {}
        self._latest: dict[Key, Stream] = {}

    def latest(self, key: Key) -> Stream:
        """Return the result of the last look at a policy's stream."""
        return self._latest.get(key) or _unknown("NotMeasured", "the brokers have not been asked yet")

    def forget(self, key: Key) -> None:
        """Forget a policy that is deleted or has no stream any more."""
        self._watched.pop(key, None)
        self._latest.pop(key, None)

    def close(self) -> None:
        self._brokers.close()

    async def look(self, access: KafkaAccess, askers: Sequence[Asker]) -> float:
        """Look at the streams of policies that share a cluster; return the seconds of the look. Never raises."""
        began = time.monotonic()
        wanted = {asker.key: GroupTopics(asker.kafka.group, tuple(asker.kafka.topics)) for asker in askers}
        answers = await self._brokers.look(access, list(dict.fromkeys(wanted.values())))
        seen: list[tuple[Asker, _Watched, GroupState]] = []
        for asker in askers:
            answer = answers[wanted[asker.key]]
            if isinstance(answer, MetricsError):
                self._latest[asker.key] = _unknown(answer.reason, str(answer))
                continue
            try:
                seen.append((asker, self._watch(asker.key, (access, wanted[asker.key]), answer), answer))
            except Exception as error:
                log.exception("%s/%s: its stream could not be looked at", *asker.key)
                self._watched.pop(asker.key, None)
                self._latest[asker.key] = _unknown("InternalError", f"its offsets could not be read: {error!r}")
        for group in _alike(seen):
            try:
                self._measure(group)
            except Exception as error:
                log.exception("the streams of %d policies could not be measured", len(group))
                for asker, _, _ in group:
                    self._watched.pop(asker.key, None)
                    self._latest[asker.key] = _unknown("InternalError", f"its offsets could not be measured: {error!r}")
        return time.monotonic() - began

    def _watch(self, key: Key, source: tuple[KafkaAccess, GroupTopics], state: GroupState) -> _Watched:
        """Return the memory of a policy's stream, with room for its partitions."""
        watched = self._watched.get(key)
        if watched is None or watched.source != source:
            watched = self._watched[key] = _Watched(source, initial_memory(1, FEWEST_COLUMNS))
        known = set(watched.columns)
        watched.columns += [partition for partition in state.partitions if partition not in known]
        # Powers of two: policies with about as many partitions share an array.
        room = FEWEST_COLUMNS
        while room < len(watched.columns):
            room *= 2
        watched.memory = with_partitions(watched.memory, room)
        return watched

    def _measure(self, group: Sequence[tuple[Asker, _Watched, GroupState]]) -> None:
        looks = [_look(asker, watched, state) for asker, watched, state in group]
        memory = Memory.concat([watched.memory for _, watched, _ in group])
        measured, memory = measure(memory, Look.concat(looks))
        for i, (asker, watched, state) in enumerate(group):
            watched.memory = memory.take(slice(i, i + 1))
            watched.topic_ids = state.topic_ids
            self._latest[asker.key] = _stream(asker.kafka, state, measured.view(slice(i, i + 1)))


def _alike(
    seen: Iterable[tuple[Asker, _Watched, GroupState]],
) -> Iterable[list[tuple[Asker, _Watched, GroupState]]]:
    """Yield groups whose arrays have the same number of columns, with at most `AT_ONCE` partitions in all."""
    groups: dict[int, list[tuple[Asker, _Watched, GroupState]]] = defaultdict(list)
    for row in seen:
        groups[row[1].memory.committed.shape[1]].append(row)
    for columns, group in groups.items():
        size = max(1, AT_ONCE // columns)
        for begin in range(0, len(group), size):
            yield group[begin : begin + size]


def _look(asker: Asker, watched: _Watched, state: GroupState) -> Look:
    """Return the look of one row; `there` is False in a column without a partition."""
    room = watched.memory.committed.shape[1]
    columns = watched.columns
    known = set(state.partitions)
    _number(watched, state)

    def filled(values: dict[Partition, int]) -> np.ndarray:
        row = np.full((1, room), np.nan)
        row[0, : len(columns)] = [values.get(partition, math.nan) for partition in columns]
        return row

    there, renewed = np.zeros((1, room), np.bool_), np.zeros((1, room), np.bool_)
    there[0, : len(columns)] = [partition in known for partition in columns]
    other = {name for name, number in state.topic_ids.items() if watched.topic_ids.get(name, number) != number}
    renewed[0, : len(columns)] = [partition[0] in other for partition in columns]
    owner = np.full((1, room), -1, np.int32)
    owner[0, : len(columns)] = [watched.numbers.get(state.owner.get(partition, ""), -1) for partition in columns]
    return Look(
        time=np.array([state.time]),
        there=there,
        renewed=renewed,
        start=filled(state.start),
        end=filled(state.end),
        committed=filled(_readable(state)),
        owner=owner,
        members=np.array([state.members], np.int32),
        ready=np.array([asker.ready], np.int32),
        stable=np.array([state.stable]),
        earliest=np.array([asker.kafka.offset_reset == "earliest"]),
    )


def _readable(state: GroupState) -> dict[Partition, int]:
    """Return the commits from which a group can read on, without those beyond the end: their messages are gone."""
    return {at: offset for at, offset in state.committed.items() if offset <= state.end.get(at, offset)}


def _number(watched: _Watched, state: GroupState) -> None:
    """Number the members: a member keeps its number, a new one gets a number that no member of both looks has."""
    members = set(state.owner.values())
    taken = set(watched.numbers.values())
    numbers = {member: number for member, number in watched.numbers.items() if member in members}
    free = (number for number in range(2 * len(members) + len(taken) + 1) if number not in taken)
    watched.numbers = numbers | {member: next(free) for member in sorted(members - numbers.keys())}


def _stream(kafka: Kafka, state: GroupState, measured: Measured) -> Stream:
    """Return the readings of one measured row."""
    group, names = kafka.group, ", ".join(kafka.topics)
    certain, lag = bool(measured.certain[0]), float(measured.lag_messages[0])
    if len(state.end) < len(state.partitions):
        text = f"a partition of {names} has no leader that answers: see kafka-topics --describe --topic {names}"
        return _unknown("PartitionUnavailable", text)
    rate = float(measured.production[0])
    produced = Reading(rate, 0.0, may_lower=certain)
    if not math.isfinite(rate):
        produced = unknown("WindowEmpty", f"production of {names} takes two looks to be known", 0.0)
    waits = Reading(1000 * float(measured.lag_seconds[0]), 0.0, may_lower=certain)
    if not waits.known:
        waits = unknown(*_why_unknown(group, names, state), 0.0)
    return Stream(
        arrival_rate=produced,
        p95_latency=waits,
        lag_messages=lag,
        # A topic that has been quiet for long needs one consumer for the next message.
        partitions=max(1, int(measured.with_traffic[0])),
        settling=bool(measured.settling[0]),
        processed=float(measured.processed[0]),
        service_rate=float(measured.service_rate[0]),
        notes=tuple(_notes(group, names, state, measured)),
    )


def _why_unknown(group: str, names: str, state: GroupState) -> tuple[str, str]:
    """Return reason and message of a lag that is unknown although the brokers answered."""
    if not state.members and not state.committed:
        text = (
            f"consumer group {group} has no member and has committed nothing in {names}: start its consumers, or "
            "correct spec.signal.kafka.group"
        )
        return "GroupMissing", text
    return "OffsetsReset", f"the offsets of consumer group {group} were set back: its lag is not known at this look"


def _notes(group: str, names: str, state: GroupState, measured: Measured) -> Iterable[tuple[str, str]]:
    """Yield reason and message of faults for the consumers' owner."""
    # No text holds a figure that changes from look to look: each would be a new Event.
    see = f"kafka-consumer-groups --describe --group {group}"
    if not math.isfinite(float(measured.lag_messages[0])):
        yield _why_unknown(group, names, state)
    if measured.stuck[0]:
        yield (
            "PartitionStuck",
            f"a partition that consumer group {group} reads has messages and does not move while others do: no "
            f"replicas are added for it; find it with {see}, and skip or mend the message that its consumer cannot "
            "process",
        )
    if any(offset > state.end.get(at, offset) for at, offset in state.committed.items()):
        yield (
            "OffsetsOutOfRange",
            f"consumer group {group} has committed offsets beyond the end of a partition of {names}, as after a topic "
            f"was truncated: set them with kafka-consumer-groups --reset-offsets --group {group}",
        )
    if math.isfinite(float(measured.lag_messages[0])) and not measured.certain[0]:
        yield (
            "PartitionsUncommitted",
            f"consumer group {group} has committed nothing in a partition of {names}, so what waits there is a lower "
            f"bound and nothing is scaled down; see {see}",
        )


def _unknown(reason: str, message: str) -> Stream:
    return Stream(unknown(reason, message), unknown(reason, message))
