"""The figures of a course, measured or simulated, and the table that shows both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from benchmarks.stream_calibration.course import Course
from rich.table import Table

FIGURES = ("join_seconds", "stop_seconds", "orphan_seconds", "p95_seconds")
TITLES = ("join, s", "stop, s", "orphan, s", "p95 lag, s")


@dataclass(frozen=True, slots=True)
class Figures:
    """What rebalances of a course cost; NaN where there was none of the kind."""

    join_seconds: float
    """Seconds that pass from a newcomer's start to its first message, the mean over the newcomers."""
    stop_seconds: float
    """The longest time for which a consumer that stayed had no work when others came or went."""
    orphan_seconds: float
    """Seconds that pass until a partition of a consumer that left is read again, the mean over the partitions."""
    p95_seconds: float
    """Seconds within which the work on 95 % of the messages ends, counted from their moment in the schedule."""


def mean(all_of: Iterable[Figures]) -> Figures:
    """The mean of each figure over those that have it."""
    table = np.array([[getattr(one, name) for name in FIGURES] for one in all_of])
    known = np.isfinite(table)
    number = known.sum(axis=0)
    sums = np.where(known, table, 0.0).sum(axis=0)
    return Figures(*np.where(number > 0, sums / np.maximum(number, 1), np.nan).tolist())


@dataclass(frozen=True, slots=True)
class Pair:
    """One course, or the mean of several, on the broker and in the simulator."""

    protocol: str
    batch: str
    sizes: str
    measured: Figures
    simulated: Figures

    def errors(self) -> list[float]:
        """Give the error of the simulator in % of what was measured, one number for each of `FIGURES`."""
        pairs = ((getattr(self.measured, name), getattr(self.simulated, name)) for name in FIGURES)
        return [100 * (simulated - measured) / measured for measured, simulated in pairs]

    def to_json(self) -> dict[str, Any]:
        """All of it, with the errors."""
        return asdict(self) | {"errors_percent": dict(zip(FIGURES, self.errors(), strict=True))}


def pair(courses: Sequence[Course], measured: Sequence[Figures], simulated: Sequence[Figures]) -> Pair:
    """The means of these courses under what they have in common."""
    batch, sizes = ({name(one) for one in courses} for name in (lambda one: one.batch, lambda one: one.sizes))
    only = [found.pop() if len(found) == 1 else "all" for found in (batch, sizes)]
    return Pair(courses[0].protocol, *only, mean(measured), mean(simulated))


def table_of(pairs: Iterable[Pair], title: str) -> Table:
    """Rows of `measured simulated error` for each figure."""
    table = Table(title=title, title_justify="left")
    for heading in ("protocol", "batch", "consumers"):
        table.add_column(heading, no_wrap=True)
    for heading in TITLES:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in pairs:
        cells = [
            f"{getattr(one.measured, name):.2f} {getattr(one.simulated, name):.2f} {error:+.0f} %"
            for name, error in zip(FIGURES, one.errors(), strict=True)
        ]
        table.add_row(one.protocol, one.batch, one.sizes, *cells)
    return table
