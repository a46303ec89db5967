"""Replicas that a target was asked for and that are not ready, for whatever reason, and since when. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class _Step(NamedTuple):
    """The fewest replicas that were asked for from `since` until now, and the most that were ready."""

    since: float
    replicas: int
    ready: int


@dataclass(slots=True)
class Lacking:
    """Replicas of one target that do not serve: refused, without a node, starting, or not ready any more.

    A replica counts from the time at which it was asked for, or was ready last. Replicas that become ready are taken
    for those that were asked for first, so that a pool that keeps growing lacks none for longer than a cold start.
    """

    _steps: list[_Step] = field(default_factory=list)
    """Oldest first; each step lacks at least one replica, and a newer one lacks more."""

    def note(self, replicas: int, ready: int, now: float) -> None:
        """Note the replicas that are asked for and those that are ready from `now` on."""
        steps: list[_Step] = []
        for step in (*self._steps, _Step(now, replicas, ready)):
            fewest, most = min(step.replicas, replicas), max(step.ready, ready)
            # What was asked for before, and is there now or is not asked for any more, lacks no longer.
            if fewest > most and (not steps or (fewest, most) != steps[-1][1:]):
                steps.append(_Step(step.since, fewest, most))
        self._steps = steps

    def seconds(self, now: float) -> float:
        """Return for how long the replica that was asked for first has been lacking; 0 where none is."""
        return max(0.0, now - self._steps[0].since) if self._steps else 0.0

    def longer_than(self, seconds: float, now: float) -> int:
        """Return how many replicas have been lacking for more than `seconds`."""
        old = [step for step in self._steps if step.since < now - seconds]
        return old[-1].replicas - old[-1].ready if old else 0
