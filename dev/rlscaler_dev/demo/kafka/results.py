"""The figures of the contenders from their raw records: `summary.json`, and a table in Markdown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlscaler_dev import markdown
from rlscaler_dev.demo.kafka.plan import MESSAGES_PER_SECOND
from rlscaler_dev.demo.kafka.recorder import REBALANCE_COLUMNS
from rlscaler_dev.demo.records import REPLICA_COLUMNS, Float, Steps, read_columns, read_steps
from rlscaler_loadgen.streams.journal import PROCESSED, PRODUCED

SPEC, EXISTING, READY, STARTING = (REPLICA_COLUMNS.index(name) for name in ("spec", "existing", "ready", "starting"))


HEAD = (
    *("", "p95 time lag (s)", "longest (s)", "messages late", "consumer-seconds", "left at the load's end"),
    *("rebalances", "lost", "processed again"),
)


@dataclass(frozen=True, slots=True)
class Played:
    """The records of one contender. Times are seconds since the load began."""

    name: str
    title: str
    protocol: str
    slo_seconds: float
    duration: float
    """Length of the load in seconds."""
    written: Float
    """(M,) when the schedule wanted each message written, not falling."""
    done: Float
    """(M,) when the work on it ended for the first time; infinity where it never did."""
    duplicates: int
    """Times that a message was worked on again."""
    replicas: Steps
    """Columns REPLICA_COLUMNS."""
    rebalances: Steps
    """One column: rebalances since the broker began."""

    @property
    def seconds(self) -> Float:
        """(T,) the ends of the seconds until the last message was processed, and of the load at least."""
        ended = self.done[np.isfinite(self.done)]
        return np.arange(1.0, np.ceil(max(self.duration, ended.max(initial=0.0))) + 1)

    def lag(self) -> Float:
        """Seconds (T,) for which the oldest message waits that is not processed; 0 where none waits."""
        result = np.zeros(len(self.seconds))
        for i, now in enumerate(self.seconds):
            waits = (self.written <= now) & (self.done > now)
            if waits.any():
                result[i] = now - self.written[np.argmax(waits)]
        return result


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one contender."""

    title: str
    protocol: str
    messages: int
    """Messages that were written."""
    p95_lag_seconds: float | None
    """Time from a message's moment in the schedule to the end of the work on it, which 95 % take at most; None where
    more than 5 % were never processed."""
    worst_lag_seconds: float | None
    """The longest of these times; None where a message was never processed."""
    late: int
    """Messages that took longer than the objective."""
    late_percent: float
    consumer_seconds: float
    """Every pod that exists, also while it starts or terminates, over the time of the load."""
    left: int
    """Messages that were not processed at the load's end: work that is not in `consumer_seconds`."""
    rebalances: int | None
    """Generations of the group from the load's begin until the last message; None where the broker was not measured."""
    lost: int
    """Messages that were written and never processed."""
    duplicates: int
    """Times that a message was processed again."""


def read(data: Path) -> Played:
    """Read the records of a contender."""
    run = json.loads((data / "run.json").read_text())
    begun = run["begun"]
    written, done, duplicates = _messages(data)
    return Played(
        name=run["contender"],
        title=run["title"],
        protocol=run["protocol"],
        slo_seconds=run["slo_ms"] / 1000,
        duration=run["duration_seconds"],
        written=written - begun,
        done=done - begun,
        duplicates=duplicates,
        replicas=read_steps(data / "replicas.csv", REPLICA_COLUMNS, begun),
        rebalances=read_steps(data / "rebalances.csv", REBALANCE_COLUMNS[1:], begun),
    )


def _messages(data: Path) -> tuple[Float, Float, int]:
    """Return the times (M,) at which messages were written and processed, in Unix seconds, and the repeated ones."""
    produced = read_columns(data / "produced.csv", PRODUCED)
    processed = read_columns(data / "processed.csv", PROCESSED)
    places = _places(produced["partition"], produced["offset"])
    ends, first = np.array(processed["time"], np.float64), dict[tuple[int, int], float]()
    for place, end in zip(_places(processed["partition"], processed["offset"]), ends.tolist(), strict=True):
        first[place] = min(end, first.get(place, np.inf))
    written = np.array(produced["scheduled_at"], np.float64)
    done = np.array([first.get(place, np.inf) for place in places], np.float64)
    order: NDArray[np.int64] = np.argsort(written, kind="stable")
    return written[order], done[order], len(ends) - len(first)


def _places(partitions: list[str], offsets: list[str]) -> list[tuple[int, int]]:
    return [(int(partition), int(offset)) for partition, offset in zip(partitions, offsets, strict=True)]


def figures(played: Played) -> Figures:
    """Return the figures of one contender."""
    waited = played.done - played.written
    late = waited > played.slo_seconds
    p95 = float(np.percentile(waited, 95, method="higher")) if len(waited) else np.nan
    existing = played.replicas.integral(np.array([0.0, played.duration]))[0, EXISTING]
    return Figures(
        title=played.title,
        protocol=played.protocol,
        messages=len(waited),
        p95_lag_seconds=_known(p95),
        worst_lag_seconds=_known(float(waited.max(initial=0.0))),
        late=int(late.sum()),
        late_percent=round(100 * float(np.mean(late)), 2) if len(late) else 0.0,
        consumer_seconds=round(float(existing), 1),
        left=int(np.sum(played.done > played.duration)),
        rebalances=_rebalances(played),
        lost=int(np.isinf(played.done).sum()),
        duplicates=played.duplicates,
    )


def _known(seconds: float) -> float | None:
    return round(seconds, 2) if np.isfinite(seconds) else None


def _rebalances(played: Played) -> int | None:
    first, last = played.rebalances.at(np.array([0.0, played.seconds[-1]]))[:, 0]
    return int(last - first) if np.isfinite(last - first) else None


def table(contenders: list[Figures]) -> str:
    """Return the table of all contenders.

    Its last row has the fewest consumer-seconds that the messages take: the work on them, with every consumer full.
    """
    rows = [
        [
            row.title,
            _cell(row.p95_lag_seconds, ".1f"),
            _cell(row.worst_lag_seconds, ".1f"),
            f"{row.late:,d} of {row.messages:,d} ({row.late_percent:.1f} %)",
            f"{row.consumer_seconds:,.0f}",
            f"{row.left:,d}",
            _cell(row.rebalances, "d"),
            f"{row.lost}",
            f"{row.duplicates}",
        ]
        for row in contenders
    ]
    # All contenders of a demo get the same messages, so the work on them is the same.
    least = max((row.messages for row in contenders), default=0) / MESSAGES_PER_SECOND
    return markdown.table(HEAD, [*rows, ["least possible", "-", "-", "-", f"{least:,.0f}", *"----"]])


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
