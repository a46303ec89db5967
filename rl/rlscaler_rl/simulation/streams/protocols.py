"""Protocols by which a group shares its partitions: the seconds that each takes, and the assignment of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.types import Int


class Protocol(NamedTuple):
    """One way in which a group gives its partitions to its members."""

    name: str
    heartbeat_seconds: float
    """Between two heartbeats of a member, at which it learns that its group changes: the clients' default."""
    stops_all: bool
    """Members give up all of their partitions before they are shared anew."""
    broker_shares: bool
    """The broker assigns partitions to each member at its heartbeats, so that no member waits for all others."""


PROTOCOLS = (
    Protocol("range", 3.0, stops_all=True, broker_shares=False),
    Protocol("cooperative-sticky", 3.0, stops_all=False, broker_shares=False),
    Protocol("consumer", 5.0, stops_all=False, broker_shares=True),
)
"""The names are those of `rlscaler load` and of the clients: two assignors of the classic protocol, and KIP-848."""

NAMES = tuple(protocol.name for protocol in PROTOCOLS)

JOIN_SECONDS = 0.03
"""Seconds from the start of a consumer to its request to join: it connects, and looks up its group's coordinator."""

SYNC_SECONDS = 0.02
"""Seconds from the last request to join until every member knows its partitions, in the classic protocol."""

FETCH_SECONDS = 0.03
"""Seconds from the assignment of a partition to its first message: the member reads the commit, and fetches."""

MORE_SECONDS = 0.2
"""Seconds that a member which reads already takes longer for a further partition."""

POLL_SECONDS = 0.1
"""Seconds that a consumer waits for a full batch. A batch that is not full then keeps it busy for less."""

SESSION_SECONDS = 45.0
"""Seconds after its last heartbeat at which a dead member leaves the group: the clients' default."""

NOBODY = -1


def in_ranges(partitions: int, members: Sequence[int]) -> Int:
    """(partitions,) member of each partition: neighbours together, the first members one more where it is uneven."""
    if not members:
        return np.full(partitions, NOBODY, np.int32)
    each, more = divmod(partitions, len(members))
    counts = [each + (place < more) for place in range(len(members))]
    return np.repeat(np.asarray(members, np.int32), counts)


def sticky(owner: Int, members: Sequence[int]) -> Int:
    """(partitions,) member of each partition, as equal in number as in ranges, with as few that change as can be.

    `owner` (partitions,) says who has each partition now. One is free to be given where that is `NOBODY`, or is no
    member any more.
    """
    if not members:
        return np.full(len(owner), NOBODY, np.int32)
    each, more = divmod(len(owner), len(members))
    has = {member: np.flatnonzero(owner == member).tolist() for member in members}
    order = sorted(members, key=lambda member: -len(has[member]))
    room = {member: each + (place < more) for place, member in enumerate(order)}
    result = np.full(len(owner), NOBODY, np.int32)
    for member in order:
        result[has[member][: room[member]]] = member
        room[member] -= min(len(has[member]), room[member])
    free = iter(np.flatnonzero(result == NOBODY).tolist())
    for member in order:
        for _ in range(room[member]):
            result[next(free)] = member
    return result
