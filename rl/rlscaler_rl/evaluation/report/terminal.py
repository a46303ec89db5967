"""Summary of a result for the terminal: losses, the gate, and the folder of the files."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.report import firstpage, tables
from rlscaler_rl.evaluation.report.documents import validity
from rlscaler_rl.evaluation.schema import ResultFile, Row
from rlscaler_rl.results.table import Table

_HEADINGS = {
    "ppo_tuned": "PPO-1",
    "hpa_tuned": "HPA-1",
    "rule_tuned": "rule-1",
    "hpa_tuned_all": "HPA-a",
    "rule_tuned_all": "rule-a",
    "hpa": "HPA",
    "rule": "rule",
    "keda": "KEDA",
}
_MOST_RIVALS = 4
"""Rivals that fit into 80 columns beside hindsight."""

_MARKS = {"loss": "-", "win": "+", "undecided": "?"}
_LEGEND = (
    "- beats the policy, + is beaten by it, ? is undecided\n"
    "-1 tuned for this load (last rows: for all), -a for all; hinds. knows the load\n"
    "floor: least cost of the answers"
)


def show(result: ResultFile, folder: Path, console: Console) -> None:
    """Print the losses, the headline and the files in 80 columns."""
    console.print(_matrix(result).rich())
    console.print(_LEGEND, style="dim", highlight=False)
    for line in firstpage.headline(result):
        console.print(escape(line), highlight=False)
    for line in validity(result):
        console.print(escape(line), style="bold green" if result.valid else "bold red", highlight=False)
    console.print(f"{escape(str(folder))}/", style="bold", highlight=False, soft_wrap=True)
    for name in result.files:
        console.print(f"  {escape(name)}", highlight=False, soft_wrap=True)


def _matrix(result: ResultFile) -> Table:
    """Return J by workload, workloads with losses first, each rival with a mark of the policy's verdict."""
    cells = {(row.workload, row.contender): row for row in result.rows}
    headings = {name: heading for name, heading in _HEADINGS.items() if (ALL, name) in cells}
    shown = dict(list(headings.items())[:_MOST_RIVALS]) | {item.end: "hinds." for item in result.closed[:1]}
    gates = {row.workload: row.status for row in result.gate.rows}
    rows = []
    for workload in firstpage.losses_first(result):
        policy = next(row for row in result.rows if row.role == "policy" and row.workload == workload)
        scores = [_score(cells[workload, name]) for name in shown]
        floor = _three_digits(tables.cost_floor(result, workload))
        late = _three_digits(policy.metrics["late_percent"].mean)
        rows.append((tables.title(workload), _score(policy), *scores, floor, late, gates.get(workload, "")))
    header = ("workload", "policy", *shown.values(), "floor", "late%", "gate")
    return Table(header, rows, title="LOSSES FIRST: J per workload")


def _score(row: Row) -> str:
    mark = _MARKS[row.difference.verdict] if row.difference else ""
    return _three_digits(row.metrics["j"].mean) + mark


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"
