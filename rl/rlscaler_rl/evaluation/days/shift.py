"""Days on services that differ from the nominal one in one respect: all of them are played side by side."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import numpy as np

from rlscaler_core.decision.types import Bool
from rlscaler_rl.evaluation.days import contenders as who
from rlscaler_rl.evaluation.days.compare import Request, described, score_rows
from rlscaler_rl.evaluation.days.play import Days, Job, played_side_by_side, prepared
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.days.table import DayTable, Score
from rlscaler_rl.simulation.episode import Result
from rlscaler_rl.simulation.scenario import NOMINAL, scraped_every
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.day_splits import SHIFTS, Shift

LEAST_OF_MOST = 0.6
"""The shortest cold start over the longest, about as in the nominal service."""

OWN_SENSORS: dict[str, dict[str, float]] = {
    "hpa": {"scrape": 15.0, "window": 15.0},
    "kpa": {name: NOMINAL[name] for name in ("scrape", "window", "arrival_window")},
}
"""Autoscalers that do not go by Prometheus, and how they measure: by metrics-server, and by scrapes of their own."""

LoadFor = Callable[[str, float], ServiceLoad]
"""(name, requests/s of all replicas) -> the load as a service of this capacity meets it."""


@dataclass(frozen=True, slots=True)
class Shifted:
    """One respect in which the service differs, with one value."""

    name: str
    columns: dict[str, Any]
    """Columns of `Scenarios` that differ from the nominal service."""

    @property
    def capacity_rps(self) -> float:
        """Requests/s that all replicas of the service answer."""
        service = NOMINAL | self.columns
        return float(np.dot(service["rps"], service["max_replicas"]))


def shifted_columns(shift: Shift, value: Any) -> dict[str, Any]:
    """Give the columns of `Scenarios` that make the nominal service differ in one respect."""
    columns = {shift.column: value}
    if shift.column == "cold_start_high":
        columns["cold_start_low"] = tuple(LEAST_OF_MOST * seconds for seconds in value)
    if shift.column == "max_replicas":
        columns["schedulable"] = value
    if shift.column == "scrape":
        columns |= scraped_every(value)
    return columns


def all_shifts(respects: Sequence[str]) -> list[Shifted]:
    """Give every value of the respects of these names."""
    return [
        Shifted(f"{shift.name} {_shown(value)}", shifted_columns(shift, value))
        for shift in SHIFTS
        if shift.name in respects
        for value in shift.values
    ]


def _shown(value: Any) -> str:
    return ", ".join(f"{one:g}" for one in (value if isinstance(value, tuple) else (value,)))


def compare_shifts(
    request: Request, load_for: LoadFor, shifts: Sequence[Shifted], progress: Callable[[str], None]
) -> list[tuple[str, DayTable]]:
    """Give a table for each of the shifts. A load needs the same share of each service's capacity.

    The loads are those that `request` names; no contender is tuned.
    """
    began = time.monotonic()
    names = [load.name for load in request.loads]
    load_once = cache(load_for)  # so that days of services of the same capacity are drawn once
    loads = [[load_once(name, shifted.capacity_rps) for name in names] for shifted in shifts]
    chosen = [[(load, day) for load in some for day in load.parts[Part.TEST][-request.days :]] for some in loads]
    count = len(chosen[0])
    progress(f"the past of {count * len(shifts)} days of {len(shifts)} services")
    days = prepared([one for some in chosen for one in some], **request.service | _columns(shifts, count))
    parts = [days.take(np.arange(first, first + count)) for first in range(0, count * len(shifts), count)]
    scores: list[list[Score]] = [[] for _ in shifts]
    contenders = [*who.untuned(request.policies), who.hindsight()]
    scraped = np.repeat(["scrape" in shifted.columns for shifted in shifts], count)
    results = dict(_played(days, contenders, scraped, request, progress))
    for contender in contenders:
        for place, part in enumerate(parts):
            rows = slice(place * count, (place + 1) * count)
            scores[place] += score_rows(contender, part, results[contender.name].take(rows))
    seconds, peak = round(time.monotonic() - began, 1), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return [
        (
            shifted.name,
            DayTable(
                kind="shift",
                level=request.level,
                share=request.share,
                version=version("rlscaler"),
                loads=[described(load, part) for load in some],
                scores=sorted(rows, key=lambda row: names.index(row.load)),
                seconds=seconds,
                peak_mib=peak,
            ),
        )
        for shifted, some, part, rows in zip(shifts, loads, parts, scores, strict=True)
    ]


def _played(
    days: Days,
    contenders: Sequence[who.Contender],
    scraped: Bool,
    request: Request,
    progress: Callable[[str], None],
) -> Iterator[tuple[str, Result]]:
    """Play all contenders, and give their results by name.

    Those of `OWN_SENSORS` go by theirs in the rows (N,) that differ in how they are `scraped`.
    """
    by_prometheus = [one for one in contenders if one.name not in OWN_SENSORS]
    for some in (by_prometheus, *([one] for one in contenders if one.name in OWN_SENSORS)):
        sensors = OWN_SENSORS.get(some[0].name, {})
        own = {name: np.where(scraped, value, getattr(days.scenarios, name)) for name, value in sensors.items()}
        measured = replace(days, scenarios=replace(days.scenarios, **own))
        done = partial(_tell, some, progress)
        found = played_side_by_side(measured, [Job(one.make) for one in some], request.level, done)
        yield from ((contender.name, result) for contender, (result, _) in zip(some, found, strict=True))


def _tell(some: Sequence[who.Contender], progress: Callable[[str], None], number: int) -> None:
    progress(some[number].label)


def _columns(shifts: Sequence[Shifted], count: int) -> dict[str, Any]:
    """Give the columns that differ in any of the services, one value for each of their `count` rows."""
    names = dict.fromkeys(name for shifted in shifts for name in shifted.columns)
    return {
        name: np.repeat(np.array([(NOMINAL | shifted.columns)[name] for shifted in shifts]), count, axis=0)
        for name in names
    }


def shift_markdown(tables: Sequence[tuple[str, DayTable]]) -> Iterator[str]:
    """Give the lines of the report: the mean of J and of lateness over the loads, a row for each service."""
    contenders = tables[0][1].contenders()
    yield f"| J (late %) | {' | '.join(row.label for row in contenders.values())} |"
    yield f"|---|{'---|' * len(contenders)}"
    for name, table in tables:
        means = {who: [_mean(table, who, metric) for metric in ("j", "late_percent")] for who in contenders}
        least = min(means[who][0] for who, row in contenders.items() if row.role != "reference")
        cells = [
            f"**{j:.2f} ({late:.2f})**" if j <= 1.0005 * least and row.role != "reference" else f"{j:.2f} ({late:.2f})"
            for row, (j, late) in zip(contenders.values(), means.values(), strict=True)
        ]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    yield "Mean over the loads. Bold: the least J of those that do not know the future. Pairs: GPU, CPU."


def _mean(table: DayTable, contender: str, metric: str) -> float:
    return float(np.mean([row.mean(metric) for row in table.scores if row.contender == contender]))
