"""Data of the page of one policy: charts, explained decisions, replays of a changed policy, and preflight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from click import ClickException

from rlscaler_core.api import InvalidPolicy, parse
from rlscaler_live.ui import chart
from rlscaler_live.ui.decisions import DecisionLog
from rlscaler_live.ui.parts import Part, attempted, parts_of
from rlscaler_live.ui.prometheus import Reach, Window
from rlscaler_live.ui.what_if import Change, Side, played
from rlscaler_operator.cli.checks import Check, CheckList
from rlscaler_operator.cli.explain.status_page import status_page
from rlscaler_operator.cli.preflight.preflight import check_policy
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import MetricsError, OperatorError, RecordError

Body = Mapping[str, Any]

MOST_PLAYED = 600
"""Newest decisions that are played again, five hours of them by default: each takes 25 to 45 ms."""

DOCTOR_SECONDS = 90.0

PLAYS = 8
"""Results of plays that are kept."""

NO_LOG = "No decision log is named: older decisions, the forecast and what the HPA formula would have done need "
NO_LOG += "--decision-log."


@dataclass(frozen=True, slots=True)
class Explained:
    """A decision as `rlscaler explain` prints it, and its neighbours in time."""

    parts: list[Part]
    at: float | None = None
    before: float | None = None
    after: float | None = None


class PolicyData:
    """Reads for the pages of single policies. All of it is asked for when a page is opened, none before."""

    def __init__(self, reach: Reach, log: DecisionLog | None) -> None:
        self._reach, self._log = reach, log
        self._plays: dict[tuple[str, Change | None], tuple[Any, list[Side]]] = {}
        self._playing, self._examining = asyncio.Lock(), asyncio.Lock()

    async def charts(self, body: Body, range_name: str, at: float | None) -> dict[str, Any]:
        """Return the tables of the charts, the times of the decisions, and notes on missing sources."""
        tables, notes, decisions = [], [], []
        now = time.time()
        if self._log is None:
            notes.append(NO_LOG)
        else:
            try:
                decisions = await asyncio.to_thread(self._log.decisions, _name(body))
            except RecordError as error:
                notes.append(f"Decision log: {error}.")
        newest = decisions[-1].time if decisions else None
        window = chart.window(range_name, now, at)
        try:
            columns = await self._reach.series(body, window)
            tables.append(chart.of_prometheus(columns, window, body))
        except MetricsError as error:
            notes.append(f"Prometheus: {error}.")
            window = chart.window(range_name, now, at, newest)
        if decisions:
            tables.append(chart.of_log(decisions, window))
        if not tables:
            notes.append("The chart shows the last few decisions of the status only.")
            tables.append(chart.of_status(body))
            window = _around(tables[0], window)
        objective = ((body.get("spec") or {}).get("slo") or {}).get("objective", 99)
        return {
            "tables": tables,
            "notes": notes,
            "window": [window.start, window.end],
            "allowed": 100 - objective,
            "late": chart.late_minutes(tables[0], objective),
            "decisions": [line.time for line in decisions if window.start <= line.time <= window.end],
        }

    async def hpa(self, body: Body) -> dict[str, Any]:
        """Return the replicas that the HPA formula would have had on the load of the log."""
        if self._log is None:
            return {}
        try:
            sides = await self.play(body)
        except RecordError as error:
            return {"note": f"HPA formula: {error}."}
        return {"table": chart.of_side(sides[1])}

    async def explained(self, body: Body, at: float | None) -> Explained:
        """Return the decision at a time or before it, or the newest one."""
        if at is None or self._log is None:
            parts = attempted(status_page, body)
            return Explained([Part(text=NO_LOG), *parts] if at is not None else parts)
        try:
            record = await asyncio.to_thread(self._log.record_at, _name(body), at)
            times = [line.time for line in await asyncio.to_thread(self._log.decisions, _name(body))]
            page = await asyncio.to_thread(self._log.page, record)
        except RecordError as error:
            return Explained([Part(text=str(error))])
        number = times.index(float(record["time"]))
        return Explained(
            list(parts_of(page)),
            at=times[number],
            before=times[number - 1] if number else None,
            after=times[number + 1] if number + 1 < len(times) else None,
        )

    async def doctor(self, kube: Kube, body: Body, prometheus_url: str | None) -> tuple[list[Check], str]:
        """Return the checks of `rlscaler preflight` of a policy, and why there are no more of them."""
        checks = CheckList("json")
        try:
            async with self._examining, asyncio.timeout(DOCTOR_SECONDS):
                await check_policy(kube, dict(body), parse(body), checks, prometheus_url=prometheus_url)
        except TimeoutError:
            return checks.checks, f"it took more than {DOCTOR_SECONDS:g} s: what is above is what was found"
        except (InvalidPolicy, OperatorError, ClickException) as error:
            return checks.checks, str(error)
        return checks.checks, ""

    async def play(self, body: Body, change: Change | None = None) -> list[Side]:
        """Play the load of the log under the HPA formula and, with a `change`, the policy. Raises RecordError."""
        if self._log is None:
            raise RecordError("no decision log is named: start the page with --decision-log")
        log, name = self._log, _name(body)

        def play() -> list[Side]:
            records = sorted(log.records(name), key=lambda record: float(record["time"]))
            return played(records[-MOST_PLAYED:], log.actors, change)

        key = name, change
        async with self._playing:
            stamp = await asyncio.to_thread(log.stamp)
            known = self._plays.get(key)
            if known is None or known[0] != stamp:
                while len(self._plays) >= PLAYS:
                    self._plays.pop(next(iter(self._plays)))
                known = self._plays[key] = stamp, await asyncio.to_thread(play)
        return known[1]


def _name(body: Body) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def _around(table: chart.Table, window: Window) -> Window:
    times = table.get("time", [])
    if not times:
        return window
    return window._replace(start=min(times[0] - 60, window.start), end=max(times[-1] + 60, window.end))
