"""Tables of an end-to-end run, one for each kind of part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table

RUN_COLUMNS = {
    "requests": ("requests", "{:,}"),
    "late or failed": ("slo_violation_ratio", "{:.1%}"),
    "failed": ("failures", "{:,}"),
    "p50 ms": ("p50_ms", "{:,.0f}"),
    "p95 ms": ("p95_ms", "{:,.0f}"),
    "GPU pod-s": ("gpu_replica_seconds", "{:,.0f}"),
    "CPU pod-s": ("cpu_replica_seconds", "{:,.0f}"),
    "cost": ("cost", "{:.3f}"),
    "up": ("scale_ups", "{:d}"),
    "down": ("scale_downs", "{:d}"),
}
"""Title -> key of the summary and its format."""

SIZE_COLUMNS = ("cores before", "cores", "MiB before", "MiB", "patch to cgroup (s)", "restarts")


def tables(summary: dict[str, Any]) -> list[Table]:
    """Return a table of the runs and one of the pods that were resized, where there are any."""
    runs = [
        [run["pattern"], run["contender"], *(_cell(run[key], form) for key, form in RUN_COLUMNS.values())]
        for run in summary["runs"]
    ]
    sizes = [
        [kind.replace("_", " "), pod["pod"], *_amounts(pod)]
        for kind, pods in (summary["sizes"] or {}).items()
        for pod in (pods if isinstance(pods, list) else [pods])
    ]
    shown = [(("pattern", "contender"), RUN_COLUMNS, runs), (("resized", "pod"), SIZE_COLUMNS, sizes)]
    return [_table(names, columns, rows) for names, columns, rows in shown if rows]


def _amounts(pod: dict[str, Any]) -> list[str]:
    """Return the limits of the container's cgroup before and after, the delay, and the restarts."""
    before, after = pod["cgroup_at_first"], pod["cgroup"]
    amounts = [_cell(amount[name], "{:g}") for name in ("cores", "memory_mib") for amount in (before, after)]
    return [*amounts, _cell(pod["patch_to_cgroup_seconds"], "{:.2f}"), str(pod["restarts"])]


def _cell(value: Any, form: str) -> str:
    return "-" if value is None else form.format(value)


def _table(names: Iterable[str], columns: Iterable[str], rows: list[list[str]]) -> Table:
    table = Table(*names, box=None, padding=(0, 2))
    for title in columns:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*row)
    return table
