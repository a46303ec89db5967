"""Columns of the charts of one policy, from Prometheus, the decision log and the status. Pure.

A table has its own times; the browser joins tables. Unknown is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rlscaler_live.ui.decisions import Decision
from rlscaler_live.ui.prometheus import Columns, Window
from rlscaler_live.ui.what_if import Side
from rlscaler_operator.cli.pages import POOLS

RANGES = {"1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600, "7d": 7 * 24 * 3600}
POINTS = 400
SHORTEST_STEP = 15.0

Body = Mapping[str, Any]
Table = dict[str, list[Any]]


def window(name: str, now: float, at: float | None = None, newest: float | None = None) -> Window:
    """Return the range of a chart: it ends now, or half a range after an older moment that is looked at.

    :param newest: time of the newest decision of a log, where nothing else has values.
    """
    length = RANGES[name]
    end = now if newest is None or newest > now - length else newest + 0.05 * length
    if at is not None and not end - length <= at <= end:
        end = at + length / 2
    return Window(end - length, end, max(SHORTEST_STEP, length / POINTS))


def of_prometheus(columns: Columns, window: Window, body: Body) -> Table:
    """Return load, late share, capacity and replicas as the operator has exported them."""
    times = sorted({time for column in columns.values() for time in column})
    each = (body.get("status") or {}).get("capacity") or {}

    def column(*labels: str) -> list[float | None]:
        values = columns.get(labels, {})
        return [values.get(time) for time in times]

    table: Table = {"time": [*times], "load": column("rlscaler_signal", "arrival_rate")}
    table["late"] = _late(column("rlscaler_slo_requests_total"), column("rlscaler_slo_late_requests_total"))
    for pool in POOLS:
        for name, state in (("ready", "ready"), ("wanted", "desired")):
            table[f"{name}_{pool}"] = column("rlscaler_replicas", pool, state)
    pools = [pool for pool in POOLS if any(value is not None for value in table[f"ready_{pool}"])]
    if pools and all(each.get(pool) is not None for pool in pools):
        rows = zip(*(table[f"ready_{pool}"] for pool in pools), strict=True)
        table["capacity"] = [_capacity(row, [each[pool] for pool in pools]) for row in rows]
    return _filled(table)


def of_log(decisions: Sequence[Decision], window: Window) -> Table:
    """Return load, forecast, capacity and replicas of the decisions in a range."""
    lines = [line for line in decisions if window.start <= line.time <= window.end]
    table: Table = {
        "time": [line.time for line in lines],
        "load": [line.load for line in lines],
        "low": [line.expected[0] for line in lines],
        "high": [line.expected[1] for line in lines],
        "capacity": [line.capacity for line in lines],
    }
    for pool in POOLS:
        table[f"ready_{pool}"] = [line.ready.get(pool) for line in lines]
        table[f"wanted_{pool}"] = [line.wanted.get(pool) for line in lines]
    return _filled(table)


def of_side(side: Side) -> Table:
    """Return the replicas of the HPA formula."""
    table: Table = {"time": [*side.time]}
    for number, pool in enumerate(POOLS):
        table[f"hpa_{pool}"] = [pair[number] for pair in side.replicas]
    return table


def of_status(body: Body) -> Table:
    """Return the replicas of the last few decisions in the status."""
    changes = sorted((body.get("status") or {}).get("history") or (), key=lambda change: str(change["time"]))
    table: Table = {"time": [seconds(change["time"]) for change in changes]}
    for pool in POOLS:
        table[f"wanted_{pool}"] = [change["desired"].get(pool) for change in changes]
    return _filled(table)


def late_minutes(table: Table, objective: float) -> tuple[int, int] | None:
    """Return the minutes in which more requests were late than the objective allows, and all minutes with requests."""
    shares = [share for share in table.get("late", ()) if share is not None]
    if not shares or len(table["time"]) < 2:
        return None
    minutes = (table["time"][-1] - table["time"][0]) / (len(table["time"]) - 1) / 60
    return round(minutes * sum(share > 100 - objective for share in shares)), round(minutes * len(shares))


def seconds(time: str) -> float:
    """Return Unix seconds of an RFC 3339 time."""
    moment = datetime.fromisoformat(time)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _late(requests: Sequence[float | None], late: Sequence[float | None]) -> list[float | None]:
    """Return the late share in % between each two values; None where nothing arrived or a counter began anew."""
    shares: list[float | None] = [None] * len(requests)
    for i in range(1, len(requests)):
        before, after = (requests[i - 1], late[i - 1]), (requests[i], late[i])
        if None in before or None in after:
            continue
        arrived, missed = (new - old for new, old in zip(after, before, strict=True))  # type: ignore[operator]
        if arrived > 0 and missed >= 0:
            shares[i] = min(100.0, 100 * missed / arrived)
    return shares


def _capacity(ready: Sequence[float | None], each: Sequence[float]) -> float | None:
    known = [n * rate for n, rate in zip(ready, each, strict=True) if n is not None]
    return math.fsum(known) if len(known) == len(each) else None


def _filled(table: Table) -> Table:
    """Return a table without the columns that have no value."""
    return {name: column for name, column in table.items() if any(value is not None for value in column)}
