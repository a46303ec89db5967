"""The runs beside one another, for people."""

from __future__ import annotations

from typing import Any

from rich.table import Table

COLUMNS = {
    "requests": ("requests", "{:,}"),
    "late or failed": ("slo_violation_ratio", "{:.1%}"),
    "failed": ("failures", "{:,}"),
    "p50 ms": ("p50_ms", "{:,.0f}"),
    "p95 ms": ("p95_ms", "{:,.0f}"),
    "GPU pod-s": ("gpu_replica_seconds", "{:,.0f}"),
    "CPU pod-s": ("cpu_replica_seconds", "{:,.0f}"),
    "cost": ("cost", "{:.3f}"),
    "up/down": ("scale_ups", "{:d}"),
}
"""Title -> key of the summary and how it is shown."""


def table(runs: list[dict[str, Any]]) -> Table:
    """One row a run."""
    shown = Table(box=None, padding=(0, 2))
    for title in ("pattern", "contender", *COLUMNS):
        shown.add_column(title, justify="left" if title in ("pattern", "contender") else "right")
    for run in runs:
        cells = ["-" if run[key] is None else text.format(run[key]) for key, text in COLUMNS.values()]
        cells[-1] = f"{run['scale_ups']}/{run['scale_downs']}"
        shown.add_row(run["pattern"], run["contender"], *cells)
    return shown
