"""What became of a worker's requests, on its way to the master's records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlscaler_loadgen.results import Recorder


@dataclass
class Relay:
    """Stands in for the `Recorder` on a worker: keeps what happened until the next report."""

    outstanding: int = 0
    """Requests sent of which nothing is known yet."""
    _events: list[list[Any]] = field(default_factory=list)

    def sent(self, scheduled: float, lag_ms: float = 0.0) -> None:
        self.outstanding += 1
        self._events.append([scheduled, lag_ms])

    def ended(self, now: float, scheduled: float, latency_ms: float, status: int, pool: str = "") -> None:
        self.outstanding -= 1
        self._events.append([now, scheduled, latency_ms, status, pool])

    def take(self) -> list[list[Any]]:
        """What is to be reported; it is forgotten here."""
        events, self._events = self._events, []
        return events


def replay(recorder: Recorder, events: list[list[Any]]) -> None:
    """Record what a worker reported."""
    for event in events:
        if len(event) == 2:
            recorder.sent(*event)
        else:
            recorder.ended(*event)
