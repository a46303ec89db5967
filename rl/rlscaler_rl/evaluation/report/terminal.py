"""What the terminal shows at the end: losses, the gate, and where the files are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.gate import FAILS, PASSES, UNDECIDED
from rlscaler_rl.evaluation.report import firstpage, tables
from rlscaler_rl.evaluation.report.documents import validity
from rlscaler_rl.evaluation.schema import ResultFile, Row

_COLOURS = {"loss": "red", "win": "green", "undecided": "yellow"}
_GATE = {PASSES: "[green]passes[/]", FAILS: "[red]fails[/]", UNDECIDED: "[yellow]undecided[/]"}
_STYLE: dict[str, Any] = {
    "title_justify": "left",
    "caption_justify": "left",
    "title_style": "bold",
    "caption_style": "dim",
    "header_style": "dim",
    "box": None,
    "pad_edge": False,
}
_HEADINGS = {
    "ppo_tuned": "PPO-1",
    "hpa_tuned": "HPA-1",
    "rule_tuned": "rule-1",
    "hpa_tuned_all": "HPA-a",
    "rule_tuned_all": "rule-a",
    "hpa": "HPA",
    "rule": "rule",
    "keda": "KEDA",
    "hindsight_tuned": "hinds.",
    "hindsight": "hinds.",
}
_MOST_COLUMNS = 5


def show(result: ResultFile, folder: Path, console: Console) -> None:
    """Print the essentials in 80 columns; the reports have the rest."""
    lost = bool(tables.decided(result, "loss"))
    console.print(_matrix(result, "bold red" if lost else "bold green"))
    for line in firstpage.headline(result):
        console.print(escape(line), highlight=False)
    for line in validity(result):
        console.print(escape(line), style="bold green" if result.valid else "bold red", highlight=False)
    console.print(f"{escape(str(folder))}/", style="bold", highlight=False, soft_wrap=True)
    for name in result.files:
        console.print(f"  {escape(name)}", highlight=False, soft_wrap=True)


def _matrix(result: ResultFile, style: str) -> RichTable:
    """J per workload, the ones with losses first; red beats the policy, green is beaten by it."""
    cells = {(row.workload, row.contender): row for row in result.rows}
    known = [name for name in _HEADINGS if (ALL, name) in cells]
    end = [item.end for item in result.closed[:1]]
    names = [*[name for name in known if "hindsight" not in name][: _MOST_COLUMNS - len(end)], *end]
    made = RichTable(
        title="LOSSES FIRST: J per workload",
        padding=(0, 1, 0, 0),
        caption="red beats the policy, green is beaten by it, yellow is undecided\n"
        "-1 tuned for this load (last rows: for all), -a for all; hinds. knows the load\n"
        "floor: what answering costs at least",
        **_STYLE | {"title_style": style},
    )
    made.add_column("workload", no_wrap=True)
    for heading in ["policy", *(_HEADINGS[name] for name in names), "floor", "late%", "gate"]:
        made.add_column(heading, justify="right", no_wrap=True)
    gates = {row.workload: _GATE[row.status] for row in result.gate.rows}
    for workload in firstpage.losses_first(result):
        policy = next(row for row in result.rows if row.role == "policy" and row.workload == workload)
        scores = [_score(cells[workload, name]) for name in ("policy", *names)]
        late = _three_digits(policy.metrics["late_percent"].mean)
        floor = _three_digits(tables.cost_floor(result, workload))
        made.add_row(tables.title(workload), *scores, floor, late, gates.get(workload, ""))
    return made


def _score(row: Row) -> str:
    text = _three_digits(row.metrics["j"].mean)
    if row.difference is None:
        return f"[bold blue]{text}[/]"
    return f"[{_COLOURS[row.difference.verdict]}]{text}[/]"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"
