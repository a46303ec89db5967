"""How groups share their partitions, and what that costs in time: what is known of each of the three protocols."""

from __future__ import annotations

from typing import NamedTuple


class Protocol(NamedTuple):
    """One way in which a group gives its partitions to its members."""

    name: str
    heartbeat_seconds: float
    """Between two heartbeats of a member, at which it learns that its group changes: the clients' default."""
    stops_all: bool
    """Members give up all of their partitions before they are shared anew."""
    broker_shares: bool
    """The broker tells each member at its heartbeats what to give up and what to take, so that no member
    waits for all others."""


PROTOCOLS = (
    Protocol("range", 3.0, stops_all=True, broker_shares=False),
    Protocol("cooperative-sticky", 3.0, stops_all=False, broker_shares=False),
    Protocol("consumer", 5.0, stops_all=False, broker_shares=True),
)
"""The names are those of `rlscaler load` and of the clients: two assignors of the classic protocol, and KIP-848."""

NAMES = tuple(protocol.name for protocol in PROTOCOLS)

JOIN_SECONDS = 0.03
"""A consumer takes so long from its start to its request to join: it connects, and asks who coordinates its group."""

SYNC_SECONDS = 0.02
"""In the classic protocol, every member knows its partitions so long after the last one has asked to join."""

FETCH_SECONDS = 0.03
"""A member takes so long from being given a partition to its first message: it reads the commit, and fetches."""

MORE_SECONDS = 0.2
"""A member that reads already takes so much longer for a partition that it is given beside its others."""

POLL_SECONDS = 0.1
"""How long a consumer waits for a batch to be full. What came by then is a batch that keeps it busy for less."""

SESSION_SECONDS = 45.0
"""A member that went without a word is taken to be gone so long after its last heartbeat: the clients' default."""
