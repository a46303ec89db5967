"""What each autoscaler of simulated consumers came to: one row each, for a terminal and as JSON."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict
from rich.table import Table

from rlscaler_core.decision.types import Float


class Spread(BaseModel):
    """One figure over all seeds. JSON has null for what is not finite: see the figure."""

    model_config = ConfigDict(frozen=True)

    mean: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Float) -> Spread:
        """The spread of `values` (N,), one for each seed."""
        return cls(mean=float(values.mean()), least=float(values.min()), most=float(values.max()))

    def text(self, form: str) -> str:
        """`mean (least-most)`, or the mean alone where all seeds agree."""
        mean, least, most = (_text(value, form) for value in (self.mean, self.least, self.most))
        return mean if mean == least == most else f"{mean} ({least}-{most})"


def _text(value: float, form: str) -> str:
    if math.isnan(value):
        return "-"
    return "never" if math.isinf(value) else format(value, form)


class Row(BaseModel):
    """What one autoscaler came to; None for what the least possible says nothing about."""

    model_config = ConfigDict(frozen=True)

    contender: str
    label: str
    p95_lag_seconds: Spread | None = None
    """Seconds that 95 % of the messages waited at most; infinity where more were never processed, NaN where there was
    no message."""

    late_percent: Spread | None = None
    """Share of the messages, in %, that waited longer than the objective or were never processed."""

    consumer_seconds: Spread
    """Seconds for which each pod existed, added up from the load's begin to its end."""

    performance_cost: Spread | None = None
    """Messages that waited no longer than the objective, for each of these seconds: performance over cost."""

    rebalances_per_hour: Spread | None = None
    """Generations of the group an hour, over the same time."""

    left: Spread | None = None
    """Messages that were not processed at the load's end: work that is not in `consumer_seconds`."""

    j: Spread | None = None
    """Cost + 0.5 for each percent that was late, as of a service; what was left is paid for."""


class Consumers(BaseModel):
    """The group that is played; what is not here is as in `rlscaler demo kafka`."""

    model_config = ConfigDict(frozen=True)

    partitions: int
    messages_per_second: float
    """That one consumer processes."""

    protocol: str
    objective_seconds: float
    """How long a message may wait."""

    fewest: int
    most: int


class Simulation(BaseModel):
    """All rows, on equal messages and cold starts."""

    model_config = ConfigDict(frozen=True)

    load: str
    load_seconds: int
    seeds: int
    consumers: Consumers
    rows: list[Row]
    notes: list[str]

    def table(self) -> Table:
        """The rows for a terminal."""
        group = f"{self.consumers.partitions} partitions, {self.consumers.protocol}"
        seeds = f"mean of {self.seeds} seeds (least-most)" if self.seeds > 1 else "one seed"
        title = f"{self.load}, {self.load_seconds:,} s; {group}; {seeds}"
        made = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
        made.add_column("autoscaler", no_wrap=True)
        for heading in ("p95 lag s", "late %", "consumer-\nseconds", "in time a\nsecond", "rebalances\nan hour"):
            made.add_column(heading, justify="right", overflow="fold")
        made.add_column("J", justify="right", no_wrap=True)
        for row in self.rows:
            figures = (
                (row.p95_lag_seconds, ".1f"),
                (row.late_percent, ".1f"),
                (row.consumer_seconds, ".0f"),
                (row.performance_cost, ".1f"),
                (row.rebalances_per_hour, ".0f"),
            )
            cells = ["-" if figure is None else figure.text(form) for figure, form in figures]
            made.add_row(row.label, *cells, "-" if row.j is None else f"{row.j.mean:.1f}")
        return made
