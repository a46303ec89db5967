"""Records of consumers, each in its pod's folder, and members of the group beside the ready pods."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from rlscaler_dev.cluster.kube import Json, KubeClient, collection, has_condition
from rlscaler_dev.demo.records import CsvWriter
from rlscaler_dev.demo.tails import Tail
from rlscaler_loadgen.streams.journal import PROCESSED

ASK_SECONDS = 5.0


class Collected:
    """Puts the tables of all pods together into one, as they grow."""

    def __init__(self, folders: Path, path: Path) -> None:
        """Below `folders` each pod has a folder of its name; `path` is the table of all."""
        self._folders, self._path = folders, path
        self._tails: dict[Path, Tail] = {}
        path.write_text(",".join(PROCESSED) + "\n")

    def pull(self) -> None:
        """Append the new rows."""
        for path in self._folders.glob(f"*/{self._path.name}"):
            self._tails.setdefault(path, Tail(path))
        rows = [line for tail in self._tails.values() for line in tail.lines() if line[:1].isdigit()]
        with self._path.open("a") as file:
            file.writelines(f"{row}\n" for row in rows)


@dataclass(frozen=True, slots=True)
class Seen:
    """The group at one moment."""

    time: float
    """Unix seconds."""
    ready: frozenset[str]
    """Names of the pods that are ready."""
    members: frozenset[str] | None
    """Client ids of the group's members, which are their pods' names; None while it rebalances."""

    @property
    def agree(self) -> bool:
        """Whether the ready pods are the members."""
        return self.members == self.ready


class Group:
    """Asks the group's coordinator and the API server, and writes `members.csv`."""

    def __init__(self, kube: KubeClient, pods: tuple[str, str], broker: str, group: str, data: Path) -> None:
        """`pods`: namespace and label `app` of those that consume."""
        self._kube, self._broker, self._group = kube, broker, group
        namespace, app = pods
        self._path = f"{collection('v1', 'Pod', namespace)}?labelSelector=app%3D{app}"
        self._admin = AdminClient({"bootstrap.servers": broker, "log_level": 2})
        self._file = CsvWriter(data / "members.csv", ("time", "ready", "members"))
        self.seen: list[Seen] = []

    def look(self) -> Seen:
        """Look once, and write it down."""
        pods: list[Json] = self._kube.get(self._path)["items"]
        staying = (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])
        ready = frozenset(pod["metadata"]["name"] for pod in staying if has_condition(pod, "Ready"))
        members = self._members()
        seen = Seen(time.time(), ready, members)
        self._file.row(f"{seen.time:.3f}", len(ready), "" if members is None else len(members))
        self.seen.append(seen)
        return seen

    def close(self) -> None:
        """Close the table."""
        self._file.close()

    def _members(self) -> frozenset[str] | None:
        answers = self._admin.describe_consumer_groups([self._group], request_timeout=ASK_SECONDS)
        try:
            group = answers[self._group].result(2 * ASK_SECONDS)
        except (KafkaException, TimeoutError):
            return None  # as long as there is no coordinator, too
        if group.state != ConsumerGroupState.STABLE:
            return None
        return frozenset(member.client_id for member in group.members)


def most_agreed(seen: list[Seen]) -> int:
    """The most ready pods that were exactly the members of the group at some moment."""
    return max((len(moment.ready) for moment in seen if moment.agree), default=0)
