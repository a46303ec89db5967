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
    """The broker tells each member at its heartbeats what to give up and what to take; members wait for nobody."""


PROTOCOLS = (
    Protocol("range", 3.0, stops_all=True, broker_shares=False),
    Protocol("cooperative-sticky", 3.0, stops_all=False, broker_shares=False),
    Protocol("consumer", 5.0, stops_all=False, broker_shares=True),
)
"""The names are those of `rlscaler load` and of the clients: two assignors of the classic protocol, and KIP-848."""

NAMES = tuple(protocol.name for protocol in PROTOCOLS)

JOIN_SECONDS = 0.1
"""From a consumer's start to the request with which it joins: it connects, and asks who coordinates its group."""

SYNC_SECONDS = 0.05
"""From the last member's request to join to every member knowing its partitions, in the classic protocol."""

FETCH_SECONDS = 0.1
"""From being given a partition to its first message: the commit is read, and messages are fetched."""

SESSION_SECONDS = 45.0
"""After the last heartbeat of a member that went without a word: the clients' default."""
