"""What the terminal shows at the end: losses, the standing over all workloads, and where the files are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.report import tables
from rlscaler_rl.evaluation.report.tables import Table
from rlscaler_rl.evaluation.report.text import validity
from rlscaler_rl.evaluation.schema import ResultFile, Row

_COLOURS = {"loss": "red", "win": "green", "undecided": "yellow"}
_STYLE: dict[str, Any] = {
    "title_justify": "left",
    "caption_justify": "left",
    "title_style": "bold",
    "caption_style": "dim",
    "header_style": "dim",
    "box": None,
    "pad_edge": False,
}


def show(result: ResultFile, folder: Path, console: Console) -> None:
    """Print the essentials in 80 columns; the reports have the rest."""
    losses, undecided, _ = tables.verdict_tables(result, short=True)
    console.print(_rich(losses, "bold red" if losses.rows else "bold green"))
    if undecided.rows:
        console.print(_rich(undecided, "bold yellow"))
    console.print(_matrix(result))
    for line in validity(result):
        console.print(escape(line), style="bold green" if result.valid else "bold red", highlight=False)
    console.print(escape(tables.headline(result)), highlight=False)
    console.print(f"\n{escape(str(folder))}/", style="bold", highlight=False, soft_wrap=True)
    for name in result.files:
        console.print(f"  {escape(name)}", highlight=False, soft_wrap=True)


_HEADINGS = {"one_pool": "1pool", "periodic": "period"}
"""Shorter, so that the table fits 80 columns."""


def _matrix(result: ResultFile) -> RichTable:
    """Contenders by mean J; red beats the policy, green is beaten by it, yellow is undecided."""
    names = [*(item.name for item in result.workloads), ALL]
    made = RichTable(
        title="J PER WORKLOAD",
        padding=(0, 1, 0, 0),
        caption="red beats the policy, green is beaten by it, yellow is undecided; * knows load or peak beforehand",
        **_STYLE,
    )
    made.add_column("contender", no_wrap=True)
    for name in [*names, "cost", "late%"]:
        made.add_column(_HEADINGS.get(name, name), justify="right", no_wrap=True)
    cells = {(row.contender, row.workload): row for row in result.rows}
    ranking = [row for row in result.rows if row.workload == ALL and row.role != "sweep"]
    for row in sorted(ranking, key=lambda row: row.metrics["j"].mean):
        scores = [_score(cells[row.contender, name]) for name in names]
        figures = [_three_digits(row.metrics[name].mean) for name in ("cost", "late_percent")]
        label = "THE POLICY" if row.role == "policy" else escape(row.label + (" *" if row.role == "reference" else ""))
        made.add_row(label, *scores, *figures, style="bold" if row.role == "policy" else "")
    floors = [_three_digits(tables.cost_floor(result, name)) for name in names]
    made.add_row("(cost floor)", *floors, "", "", style="dim")
    return made


def _score(row: Row) -> str:
    text = _three_digits(row.metrics["j"].mean)
    if row.difference is None:
        return f"[blue]{text}[/]"
    return f"[{_COLOURS[row.difference.verdict]}]{text}[/]"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _rich(table: Table, style: str) -> RichTable:
    made = RichTable(title=escape(f"{table.title}: {table.note}"), **_STYLE | {"title_style": style})
    for column, name in enumerate(table.header):
        made.add_column(name, justify="left" if column < table.text_columns else "right", no_wrap=True)
    for row in table.rows:
        made.add_row(*map(escape, row))
    return made
