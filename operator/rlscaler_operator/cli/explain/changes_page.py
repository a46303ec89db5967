"""Page of every change of replicas in the audit logs of a policy, with the load and the stages that made it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Group
from rich.text import Text

from rlscaler_core.decision.guards import STAGES
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cli.explain.record_page import written
from rlscaler_operator.cli.terminal import UNKNOWN, simple_table

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that changes the replicas."""

    decision_id: str
    time: float
    """Unix seconds."""
    before: dict[str, int]
    after: dict[str, int]
    load: float | None
    """Load in the unit of the policy's capacity per second; None where the load was not known."""
    capacity: dict[str, float | None]
    """Believed capacity of a replica by pool, in the same unit; None where the pool is absent or nothing is known."""
    stages: tuple[str, ...]
    """Stages of the shield that moved the replicas, the actor's own proposal first."""
    written: str
    """Outcome of the write in words."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a log, and the number of decisions that they are from."""

    decisions: int
    first: float
    last: float
    changes: list[Change]


def changes_of(records: Iterable[Json]) -> Changes | None:
    """Return the changes in the records of one policy; None without a record."""
    seen = list(records)
    if not seen:
        return None
    return Changes(len(seen), seen[0]["time"], seen[-1]["time"], list(_changes(seen)))


def _changes(records: Iterable[Json]) -> Iterator[Change]:
    for record in records:
        before, after = record["base"], record["desired"]
        if before == after:
            continue
        present = (record.get("params") or {}).get("present") or [True] * len(POOLS)
        believed = record.get("capacity") or {}
        rate = (record.get("samples") or {}).get("arrival_rate")
        yield Change(
            decision_id=record["decision_id"],
            time=record["time"],
            before=before,
            after=after,
            load=rate if isinstance(rate, (int, float)) else None,
            capacity={pool: believed.get(pool) if here else None for pool, here in zip(POOLS, present, strict=True)},
            stages=tuple(_stages(record["guards"], before)),
            written=written(record),
        )


def _stages(steps: Iterable[Json], base: dict[str, int]) -> Iterator[str]:
    before = base
    for step in steps:
        if step["after"] != before:
            yield "plan" if step["guard"] == STAGES[0] else step["guard"]
        before = step["after"]


def changes_page(log: Changes, policy: str) -> Group:
    """Return the page."""
    begin, end = (datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M") for time in (log.first, log.last))
    head = f"{policy}, {begin} to {end} UTC: {len(log.changes)} of {log.decisions} decisions change replicas"
    table = simple_table("Time", *POOLS, "load/s", "capacity/s of a replica", "by", "written", "decision")
    for change in log.changes:
        table.add_row(*_cells(change))
    return Group(Text(head + "\n"), table, Text("`rlscaler explain DECISION PATHS` shows one of them in full."))


def _cells(change: Change) -> list[str]:
    moves = [
        f"{change.before[pool]} → {change.after[pool]}" if change.before[pool] != change.after[pool] else ""
        for pool in POOLS
    ]
    known = [f"{pool} {value:.3g}" for pool, value in change.capacity.items() if value is not None]
    return [
        datetime.fromtimestamp(change.time, UTC).strftime("%H:%M:%S"),
        *moves,
        UNKNOWN if change.load is None else f"{change.load:.3g}",
        ", ".join(known) or UNKNOWN,
        ", ".join(change.stages),
        change.written,
        change.decision_id,
    ]
