"""Questions of the score plugin in kube-scheduler, one for each pod, and their answers: bytes over HTTP.

Little-endian. A question is a header, N rows, new names of nodes separated by line feeds, and the pod as JSON. Nodes
are numbered by the plugin, in a roster whose names it sends once; a server without that roster answers 409 Conflict,
and the plugin sends all names. An answer is N bytes, the levels 0 to 100 in the order of the rows, and a sentence in
UTF-8. The other side is dev/rlscaler_dev/cluster/tools/scheduler/wire.go.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.placement.types import Int
from rlscaler_scheduler.cache import Cache
from rlscaler_scheduler.extender import MOST_NODES, InvalidCallError, check_names, check_pod
from rlscaler_scheduler.intake import check_json
from rlscaler_scheduler.objects import MEBI, PodFacts, Resources, pod_facts
from rlscaler_scheduler.suggest import Counted

MAGIC = b"RLS1"
"""The last character is the version of the format."""

HEADER = struct.Struct("<4sIQIII")
"""Magic, N, roster, names of it that were sent before, bytes of the new names, bytes of the pod."""

ROW = np.dtype([("number", "<u4"), ("pods", "<u4"), ("cpu_milli", "<i8"), ("memory", "<i8")])
"""One node: its number in the roster, and kube-scheduler's count there, assumed pods included (memory in bytes)."""

MOST_NAMES = 4 * MOST_NODES
"""Most names in all rosters together; those that were not used for longest are forgotten."""

ROSTERS = 64
"""Most rosters in memory: one for each profile of each kube-scheduler that asks, and some that are no longer used."""


class Question:
    """One question of the plugin."""

    def __init__(self, body: bytes, resources: Resources) -> None:
        """Raises InvalidCallError."""
        try:
            magic, count, self.roster, self.sent, names, about = HEADER.unpack_from(body)
            if magic != MAGIC:
                raise InvalidCallError(
                    f"the question begins with {magic!r} and not with {MAGIC!r}: the plugin and the suggestion server "
                    "are of different releases; use those of one"
                )
            if count > MOST_NODES:
                raise InvalidCallError(f"the question is about {count} nodes; at most {MOST_NODES} are scored")
            end = HEADER.size + count * ROW.itemsize
            if len(body) != end + names + about:
                raise InvalidCallError(f"the question has {len(body)} bytes, its header says {end + names + about}")
            self.table: NDArray[np.void] = np.frombuffer(body, ROW, count, HEADER.size)
            self.names: Sequence[str] = body[end : end + names].decode().split("\n") if names else ()
            check_names(self.names)
            check_json(body[end + names :])
            self.facts: PodFacts = pod_facts(json.loads(body[end + names :]), resources)
            check_pod(self.facts)
        except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidCallError(f"not a question of the score plugin ({error!r})") from error

    @property
    def counted(self) -> Counted:
        """Count of kube-scheduler."""
        table = self.table
        return Counted(table["cpu_milli"].astype(float), table["memory"] / MEBI, table["pods"].astype(float))


@dataclass
class _Roster:
    names: list[str]
    rows: Int
    version: int
    """Version of the cache for which the rows hold."""


class Rosters:
    """The rosters that plugins have sent, the last used ones."""

    def __init__(self) -> None:
        self._held: dict[int, _Roster] = {}

    def rows(self, question: Question, cache: Cache) -> Int | None:
        """(N,) rows of the cache for the nodes of a question; None where their names have to be sent again.

        Raises InvalidCallError where a row has a number that no name was sent for.
        """
        held = self._held.pop(question.roster, None) or _Roster([], np.zeros(0, np.int64), -1)
        if len(held.names) < question.sent:
            return None
        if question.sent + len(question.names) > MOST_NAMES:
            raise InvalidCallError(f"a roster has more than {MOST_NAMES} names: begin a new one")
        if question.names or held.version != cache.version or len(held.names) != question.sent:
            held.names[question.sent :] = question.names
            held.rows, held.version = cache.rows_of(held.names), cache.version
        self._held[question.roster] = held
        while len(self._held) > ROSTERS or sum(len(roster.names) for roster in self._held.values()) > MOST_NAMES:
            del self._held[next(iter(self._held))]
        numbers = question.table["number"]
        if len(numbers) and numbers.max() >= len(held.rows):
            raise InvalidCallError(f"node {numbers.max()} is none of the {len(held.rows)} whose names were sent")
        rows: Int = held.rows[numbers]
        return rows


def answer(levels: Int, sentence: str) -> bytes:
    """The levels (N,), then the sentence."""
    return levels.astype(np.uint8).tobytes() + sentence.encode()
