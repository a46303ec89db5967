"""Result of a comparison on token services: a row for each autoscaler, for a terminal, a page and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rlscaler_rl.results.document import Document
from rlscaler_rl.results.table import Column, Table


class Row(Document):
    """Figures of one autoscaler over all services."""

    contender: str
    label: str
    settings: dict[str, float]
    """Settings that the search chose on other services, or the default ones where nothing is tuned."""

    j: list[float]
    """J of each service."""

    over_need: float
    """Mean of replica-hours over those that the requests need."""

    replicas: float
    """Mean of billed replicas."""

    cost_per_month: float | None = None
    """Cost of the billed replicas over a month of such load, in the currency of `costPerHour`; None without a price."""

    late_percent: float
    """Mean share beyond the objective of the first token or of the others, or without an answer."""

    first_p95: float
    """Mean of the 95th percentiles of the time to the first token, in seconds."""

    token_p95: float
    """The same of the time per output token."""

    starts_per_hour: float
    behind: str | None
    """J over that of the first row, with its interval over several services; None for that row itself."""

    outside: str | None = None
    """Services outside the envelope of a network, by their number and a reason; None: it acts for all."""


COLUMNS: dict[str, Column] = {
    "autoscaler": "{0.label}",
    "J": lambda row: f"{fmean(row.j):.2f}",
    "against the first": lambda row: row.behind or "",
    "replica-hours over need": "{0.over_need:.2f}",
    "replicas": "{0.replicas:.2f}",
    "cost a month": "{0.cost_per_month:,.0f}",
    "late %": "{0.late_percent:.1f}",
    "TTFT p95 s": "{0.first_p95:.2f}",
    "TPOT p95 s": "{0.token_p95:.3f}",
    "starts/h": "{0.starts_per_hour:.1f}",
}


def table_of(rows: Sequence[Row], title: str) -> Table:
    """Return rows for a terminal or a page, with their cost where they have a price."""
    priced = any(row.cost_per_month is not None for row in rows)
    return Table.of({name: text for name, text in COLUMNS.items() if priced or name != "cost a month"}, rows, title)


class Comparison(Document):
    """All rows, on equal requests and cold starts."""

    services: int
    servers: list[str]
    load: str
    """Name of the requests, for people."""

    loads: list[str] | None = None
    """Load of the library of days that each service has; None: other requests."""

    seconds: int
    trials: int
    seed: int
    rows: list[Row]

    def table(self) -> Table:
        """Return the rows for a terminal or a page."""
        servers, hours = len(set(self.servers)), self.seconds / 3600
        return table_of(self.rows, f"{self.services} services of {servers} servers, {self.load}, {hours:.3g} h each")

    def notes(self) -> list[str]:
        """Return a sentence on each network that does not act for all services."""
        return [f"{row.label}: {row.outside}" for row in self.rows if row.outside is not None]
