"""Result of a simulation of consumers: a row for each autoscaler, for a terminal and as JSON."""

from __future__ import annotations

import math

from rlscaler_core.decision.types import Float
from rlscaler_rl.results.document import Document
from rlscaler_rl.results.table import Column, Table


class Spread(Document):
    """One figure over all seeds. JSON has null where a value is not finite; the description of the figure says why."""

    mean: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Float) -> Spread:
        """Return the spread of `values` (N,), one for each seed."""
        return cls(mean=float(values.mean()), least=float(values.min()), most=float(values.max()))

    def __format__(self, form: str) -> str:
        """Return `mean (least-most)`, or the mean alone where all seeds print alike."""
        mean, least, most = (_text(value, form) for value in (self.mean, self.least, self.most))
        return mean if mean == least == most else f"{mean} ({least}-{most})"


def _text(value: float, form: str) -> str:
    if math.isnan(value):
        return "-"
    return "never" if math.isinf(value) else format(value, form)


class Row(Document):
    """Figures of one autoscaler; None where the least possible row has no such figure."""

    contender: str
    label: str
    p95_lag_seconds: Spread | None = None
    """Seconds within which 95 % of the messages were processed; infinity where more were never processed, NaN where
    there was no message."""

    late_percent: Spread | None = None
    """Share of the messages, in %, that waited longer than the objective or were never processed."""

    consumer_seconds: Spread
    """Seconds for which each pod existed, added up from the begin of the load to its end."""

    performance_cost: Spread | None = None
    """Messages that waited no longer than the objective, for each of these seconds: performance over cost."""

    rebalances_per_hour: Spread | None = None
    """Generations of the group an hour, over the same time."""

    left: Spread | None = None
    """Messages that were not processed at the end of the load: work that is not in `consumer_seconds`."""

    j: Spread | None = None
    """Cost + 0.5 for each percent late, as for a service; messages that are left at the end are paid for."""


COLUMNS: dict[str, Column] = {
    "autoscaler": "{0.label}",
    "p95 lag s": "{0.p95_lag_seconds:.1f}",
    "late %": "{0.late_percent:.1f}",
    "consumer-\nseconds": "{0.consumer_seconds:.0f}",
    "in time a\nsecond": "{0.performance_cost:.1f}",
    "rebalances\nan hour": "{0.rebalances_per_hour:.0f}",
    "J": lambda row: "-" if row.j is None else f"{row.j.mean:.1f}",
}


class Consumers(Document):
    """The simulated group; everything else is as in `rlscaler demo kafka`."""

    partitions: int
    messages_per_second: float
    """Messages that one consumer processes a second."""

    protocol: str
    objective_seconds: float
    """Longest wait of a message that is in time."""

    fewest: int
    most: int


class Simulation(Document):
    """All rows, on equal messages and cold starts."""

    load: str
    load_seconds: int
    seeds: int
    consumers: Consumers
    rows: list[Row]
    notes: list[str]

    def table(self) -> Table:
        """Return the rows for a terminal."""
        group = f"{self.consumers.partitions} partitions, {self.consumers.protocol}"
        seeds = f"mean of {self.seeds} seeds (least-most)" if self.seeds > 1 else "one seed"
        return Table.of(COLUMNS, self.rows, f"{self.load}, {self.load_seconds:,} s; {group}; {seeds}")
