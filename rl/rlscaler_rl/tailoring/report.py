"""report.txt, and what the terminal shows."""

from __future__ import annotations

from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rlscaler_rl.tailoring.history import duration
from rlscaler_rl.tailoring.schema import Row, Verdict

WIDTH = 120


def headline(verdict: Verdict) -> str:
    return "publish" if verdict.publish else "do not publish"


def text_report(verdict: Verdict) -> str:
    """The verdict with its reasons, the table, and what it rests on."""
    history, training = verdict.history, verdict.training
    kind = "smooth" if history.smooth else "bursty"
    best = f"the checkpoint at {training.best_steps:,}" if training.best_steps else "the start itself"
    over = " (ended by the clock)" if training.cut_short else ""
    tuned = "; ".join(f"{name} {j['default']:.2f} -> {j['tuned']:.2f}" for name, j in training.tuned.items())
    blocks = ", ".join(f"{count} to {part}" for part, count in history.blocks.items())
    peaks = ", ".join(f"{peak:.3g} ({part})" for part, peak in history.peak_rps.items())
    lines = [
        f"{verdict.namespace}/{verdict.name}: {headline(verdict)}",
        *(f"  - {reason}" for reason in verdict.reasons),
        "",
        f"Held-back part: {verdict.episodes} episodes of {duration(verdict.episode_seconds)}, {verdict.level} level; "
        "differences are paired, with 95 % intervals.",
        _table(verdict.rows),
        f"History: {history.source}, {duration(history.seconds)}, {kind} (rise {history.rise:.2f})",
        f"Stretches of one episode: {blocks}",
        f"99th percentiles of the load, requests/s: {peaks}",
        f"Training: from {training.start}, {training.steps:,} steps in {training.seconds:.0f} s{over}; chosen: {best}",
        f"Tuned on the same tune part, J: {tuned}",
        *(["Keep in mind:", *(f"  - {caveat}" for caveat in verdict.caveats)] if verdict.caveats else []),
    ]
    return "\n".join(lines) + "\n"


def _table(rows: tuple[Row, ...]) -> str:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in ("J", "cost/h", "late %", "p95 ms", "GPU", "CPU", "policy against it, %"):
        table.add_column(name, justify="right")
    for row in rows:
        figures = [f"{row.j:.2f}", f"{row.cost_per_hour:.2f}", f"{row.late_percent:.2f}", f"{row.p95_ms:.0f}"]
        replicas = [f"{row.gpu_replicas:.1f}", f"{row.cpu_replicas:.1f}"]
        table.add_row(row.label, *figures, *replicas, _against(row))
    console = Console(file=StringIO(), width=WIDTH)
    console.print(table)
    written = console.file
    assert isinstance(written, StringIO)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def _against(row: Row) -> str:
    found = row.difference
    if found is None:
        return ""
    return f"{found.percent:+.1f} [{found.low_percent:+.1f}, {found.high_percent:+.1f}] {found.verdict}"
