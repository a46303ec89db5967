"""Outcomes of the requests of one run: per second, per request and in total.

Three outcomes that exclude each other: `ok` was answered within the SLO, `late` was answered after it, `failed` was not
answered (an error, a rejection, or the client's timeout). A failed request enters the percentiles with the client's
timeout, so that rejecting requests never makes a service look faster.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

TIMELINE_COLUMNS = (
    "time", "timestamp", "rate", "sent", "ok", "late", "failed", "p50_ms", "p95_ms", "dispatch_lag_ms",
)  # fmt: skip
REQUEST_COLUMNS = ("scheduled_at", "latency_ms", "outcome", "status", "pool")
LATE_GENERATOR_MS = 50.0
"""Where 1 % of the requests leave later than this after their time, the generator is not keeping up."""


@dataclass
class _Second:
    """Events of one second of the run; an answer counts in the second in which it comes."""

    sent: int = 0
    ok: int = 0
    late: int = 0
    failed: int = 0
    latency_ms: list[float] = field(default_factory=list)
    lag_ms: float = 0.0

    def row(self) -> list[Any]:
        return [
            self.sent,
            self.ok,
            self.late,
            self.failed,
            *_percentiles(self.latency_ms, 50, 95),
            round(self.lag_ms, 2),
        ]


@dataclass
class Recorder:
    """Collects outcomes. Times are seconds of the run.

    started_at: unix time of the run's begin.
    """

    rate: np.ndarray[Any, np.dtype[np.float64]]
    slo_ms: float
    timeout_ms: float
    started_at: float
    timeline: TextIO | None = None
    requests: TextIO | None = None

    def __post_init__(self) -> None:
        self._seconds: dict[int, _Second] = defaultdict(_Second)
        self._written = 0
        self._latency_ms, self._answered_ms, self._lag_ms = array("d"), array("d"), array("d")
        self._sent = self._ok = self._late = self._failed = 0
        self._timeline = csv.writer(self.timeline, lineterminator="\n") if self.timeline else None
        self._requests = csv.writer(self.requests, lineterminator="\n") if self.requests else None
        for writer, columns in ((self._timeline, TIMELINE_COLUMNS), (self._requests, REQUEST_COLUMNS)):
            if writer:
                writer.writerow(columns)

    @property
    def outstanding(self) -> int:
        """Requests sent of which nothing is known yet."""
        return self._sent - self._ok - self._late - self._failed

    def sent(self, scheduled: float, lag_ms: float = 0.0) -> None:
        """A request leaves, `lag_ms` after its time."""
        second = self._seconds[int(scheduled)]
        second.sent += 1
        second.lag_ms = max(second.lag_ms, lag_ms)
        self._lag_ms.append(lag_ms)
        self._sent += 1

    def ended(self, now: float, scheduled: float, latency_ms: float, status: int, pool: str = "") -> None:
        """A request that was `sent` is over; status 0 = no answer."""
        second = self._seconds[int(now)]
        answered = status == 200 and latency_ms <= self.timeout_ms
        if answered and latency_ms <= self.slo_ms:
            self._ok, second.ok = self._ok + 1, second.ok + 1
        elif answered:
            self._late, second.late = self._late + 1, second.late + 1
        else:
            self._failed, second.failed = self._failed + 1, second.failed + 1
        if answered:
            self._answered_ms.append(latency_ms)
        counted = latency_ms if answered else self.timeout_ms
        self._latency_ms.append(counted)
        second.latency_ms.append(counted)
        if self._requests:
            outcome = "ok" if answered else "failed"
            at = f"{self.started_at + scheduled:.4f}"
            self._requests.writerow([at, round(latency_ms, 3), outcome, status, pool])

    def flush(self, now: float) -> None:
        """Write the seconds that are over, and flush the files."""
        while self._written + 1 <= now:
            self._write_second()
        for file in (self.timeline, self.requests):
            if file:
                file.flush()

    def _write_second(self) -> None:
        second = self._written
        self._written += 1
        row = self._seconds.pop(second, _Second()).row()
        rate = round(float(self.rate[second]), 3) if second < len(self.rate) else 0.0
        if self._timeline:
            self._timeline.writerow([second, f"{self.started_at + second:.3f}", rate, *row])

    def finish(self, now: float, interrupted: bool = False) -> dict[str, Any]:
        """Write the remaining seconds and return the totals; call once."""
        last = max(self._seconds, default=-1) + 1
        self.flush(max(last, min(now, len(self.rate))))
        duration = len(self.rate) if not interrupted else max(now, 1e-9)
        p50, p95, p99 = _percentiles(self._latency_ms, 50, 95, 99)
        lag_p99, lag_max = _percentiles(self._lag_ms, 99, 100)
        return {
            "started_at": self.started_at,
            "duration_s": round(float(duration), 3),
            "interrupted": interrupted,
            "requests": self._sent,
            "ok": self._ok,
            "late": self._late,
            "failures": self._failed,
            "unfinished": self.outstanding,
            "goodput_rps": round(self._ok / duration, 4),
            "p50_ms": p50,
            "p95_ms": p95,
            "p99_ms": p99,
            "answered_p95_ms": _percentiles(self._answered_ms, 95)[0],
            "slo_ms": self.slo_ms,
            "slo_violation_ratio": round((self._late + self._failed) / max(1, self._sent), 6),
            "dispatch_lag_p99_ms": lag_p99,
            "dispatch_lag_max_ms": lag_max,
            "generator_late": lag_p99 is not None and lag_p99 > LATE_GENERATOR_MS,
        }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file that is never seen half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def _percentiles(values: Any, *ranks: float) -> list[float | None]:
    """Exact percentiles; None where there is nothing to take them of."""
    if not len(values):
        return [None] * len(ranks)
    return [round(float(value), 3) for value in np.percentile(np.asarray(values), ranks)]


@dataclass
class Relay:
    """Stands in for the `Recorder` on a worker: stores events until the next report."""

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
        """Return the stored events, and forget them."""
        events, self._events = self._events, []
        return events


def replay(recorder: Recorder, events: list[list[Any]]) -> None:
    """Record the events that a worker reported."""
    for event in events:
        if len(event) == 2:
            recorder.sent(*event)
        else:
            recorder.ended(*event)
