"""State of a policy's HTTPRoute: shares that a data plane may still use, and foreign writers of the weights. Pure.

Patching a weight changes an object in the API server; the proxies that send the requests follow later. Until they have,
a pool may get the share that it had before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rlscaler_operator.cluster.kube import FIELD_MANAGER
from rlscaler_operator.state.schedule import GrowingBackoff

Shares = tuple[float, float]
"""The part of the traffic that the GPU and the CPU pool get, 0-1; both are 1 where it is not known."""

UNKNOWN: Shares = (1.0, 1.0)

CONFIRM_SECONDS = 30.0
"""Longest time for a Gateway to report a route's new generation before the policy reports its delay."""

SHARES_KEPT = 32
"""Replaced shares that are kept one by one; the oldest of more are joined."""

FOREIGN_INTERVALS = 5
"""Action intervals of the first pause after a foreign writer has set the weights back for the second time."""


class Replaced(NamedTuple):
    """Shares that were in force until `at`, on the monotonic clock, when generation `generation` came."""

    at: float
    generation: int
    shares: Shares


@dataclass(slots=True)
class TrafficShift:
    """Shares of the traffic that the data plane may still use."""

    shares: Shares | None = None
    """The shares of the route now; None before the first look."""
    replaced: list[Replaced] = field(default_factory=list)
    """Earlier shares that may still be in force, oldest first."""

    def look(self, shares: Shares, generation: int, now: float) -> None:
        """Note the shares of a route as it is now. The shares before the first look are unknown."""
        if shares == self.shares:
            return
        # The proxies may use the former shares until they have seen this generation.
        self.replaced.append(Replaced(now, generation, self.shares or UNKNOWN))
        self.shares = shares
        if len(self.replaced) > SHARES_KEPT:
            first, second, *rest = self.replaced
            self.replaced = [Replaced(second.at, second.generation, _highest(first.shares, second.shares)), *rest]

    def settle(self, acknowledged: float, drain_seconds: float, now: float) -> None:
        """Forget shares that were replaced `drain_seconds` ago or earlier, by a generation that was acknowledged."""
        self.replaced = [
            earlier
            for earlier in self.replaced
            if now - earlier.at < drain_seconds or earlier.generation > acknowledged
        ]

    def in_force(self) -> Shares:
        """Return the largest share of each pool that the data plane may use."""
        highest = self.shares or UNKNOWN
        for earlier in self.replaced:
            highest = _highest(highest, earlier.shares)
        return highest

    def overdue(self, acknowledged: float, now: float) -> bool:
        """Return True where a Gateway has not acknowledged a generation within `CONFIRM_SECONDS`."""
        return any(
            earlier.generation > acknowledged and now - earlier.at >= CONFIRM_SECONDS for earlier in self.replaced
        )


def _highest(shares: Shares, other: Shares) -> Shares:
    return max(shares[0], other[0]), max(shares[1], other[1])


@dataclass(slots=True)
class ForeignWeights:
    """Watches a route for weights that another writer set after the operator's last write."""

    known: tuple[tuple[int, int], ...] | None = None
    """Weights of the two backends by rule, in sorted order, as written or taken note of last."""
    manager: str = ""
    """The field manager that set others last."""
    backoff: GrowingBackoff = field(default_factory=GrowingBackoff)

    def look(self, weights: tuple[tuple[int, int], ...], manager: str, interval_seconds: float, now: float) -> bool:
        """Return True where another manager has just set other weights, once per write.

        The operator sets its own again at once the first time, and after a pause that grows with each repetition.
        """
        if self.known is None or weights == self.known or manager in ("", FIELD_MANAGER):
            self.known = weights
            return False
        self.known, self.manager = weights, manager
        self.backoff.again(now, FOREIGN_INTERVALS * interval_seconds)
        return True


@dataclass(slots=True)
class TrafficState:
    """State of the traffic of a policy's pools. `actuation/apply.py` writes it."""

    shift: TrafficShift = field(default_factory=TrafficShift)
    foreign: ForeignWeights = field(default_factory=ForeignWeights)
    pending: Mapping[str, int] = field(default_factory=dict)
    """Replicas by pool that were decided upon and wait for the traffic to leave."""
    follows: bool = False
    """The HTTPRoute has the decided weights, so each pool gets its part of the traffic."""
    generation: int = -1
    """Generation of the spec that `pending` was decided under."""
    restoring_since: float | None = None
    """When restoring began, on the monotonic clock; None before the policy is deleted."""
    restore_tries: int = 0
    """Attempts at restoring that failed."""
    restored: bool = False
    """Weights and replicas of a deleted policy are as they were, or given up."""
