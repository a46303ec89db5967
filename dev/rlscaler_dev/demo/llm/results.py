"""The figures of the contenders from their raw records: `summary.json`, and a table in Markdown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlscaler_dev import markdown
from rlscaler_dev.demo.records import REPLICA_COLUMNS, Float, Steps, read_columns, read_steps

EXISTING = REPLICA_COLUMNS.index("existing")
OUTCOMES = ("arrived", "prompt", "answer", "need", "first", "token")

HEAD = ("", "late", "TTFT p95 (s)", "TPOT p95 (ms)", "no answer", "replica-seconds", "against the need")


@dataclass(frozen=True, slots=True)
class Played:
    """The records of one contender. Times are seconds since the load began."""

    name: str
    title: str
    server: str
    duration: float
    first_seconds: float
    """Objective of the time to the first token."""
    token_seconds: float
    """Objective of each further token."""
    outcomes: dict[str, Float]
    """(M,) each, by OUTCOMES; NaN: there was no token."""
    replicas: Steps
    """Columns REPLICA_COLUMNS."""

    @property
    def late(self) -> np.ndarray:
        """(M,) which requests missed an objective or got no answer."""
        first, token = self.outcomes["first"], self.outcomes["token"]
        return np.isnan(first) | (first > self.first_seconds) | (np.nan_to_num(token) > self.token_seconds)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one contender."""

    title: str
    requests: int
    late: int
    late_percent: float
    first_p95: float | None
    """95th percentile of the time to the first token, None where more than 5 % got none."""
    token_p95: float
    lost: int
    """Requests without any token of an answer."""
    replica_seconds: float
    """Every pod that exists, also while it starts or terminates, over the time of the load."""
    needed: float
    """Replica-seconds that the requests take on full replicas."""


def read(data: Path) -> Played:
    """Read the records of a contender."""
    run, facts = (json.loads((data / name).read_text()) for name in ("run.json", "facts.json"))
    columns = read_columns(data / "outcomes.csv", OUTCOMES)
    return Played(
        name=run["contender"],
        title=run["title"],
        server=run["server"],
        duration=float(run["duration_seconds"]),
        first_seconds=facts["first_seconds"],
        token_seconds=facts["token_seconds"],
        outcomes={name: np.array(columns[name], np.float64) for name in OUTCOMES},
        replicas=read_steps(data / "replicas.csv", REPLICA_COLUMNS, run["begun"]),
    )


def figures(played: Played) -> Figures:
    """Return the figures of one contender."""
    outcomes, late = played.outcomes, played.late
    # A request without an answer waited for longer than any other.
    first = np.percentile(np.where(np.isnan(outcomes["first"]), np.inf, outcomes["first"]), 95, method="higher")
    existing = played.replicas.integral(np.array([0.0, played.duration]))[0, EXISTING]
    return Figures(
        title=played.title,
        requests=len(late),
        late=int(late.sum()),
        late_percent=round(100 * float(late.mean()), 2),
        first_p95=round(float(first), 2) if np.isfinite(first) else None,
        token_p95=round(float(np.nanpercentile(outcomes["token"], 95)), 4),
        lost=int(np.isnan(outcomes["first"]).sum()),
        replica_seconds=round(float(existing), 1),
        needed=round(float(outcomes["need"].sum()), 1),
    )


def table(contenders: list[Figures]) -> str:
    """Return the table of all contenders."""
    rows = [
        [
            row.title,
            f"{row.late:,d} of {row.requests:,d} ({row.late_percent:.1f} %)",
            "-" if row.first_p95 is None else f"{row.first_p95:.1f}",
            f"{1000 * row.token_p95:.0f}",
            f"{row.lost}",
            f"{row.replica_seconds:,.0f}",
            f"{row.replica_seconds / row.needed:.2f}",
        ]
        for row in contenders
    ]
    return markdown.table(HEAD, rows)
