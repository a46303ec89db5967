"""What is said on a pipe and on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from rlscaler_dev.demo.recorder import Condition, Replicas
from rlscaler_dev.demo.results import summarise
from rlscaler_dev.demo.screen import Screen, Snapshot, summary_table
from rlscaler_dev.demo.settings import Settings
from rlscaler_dev.demo.tails import LoadFigures

from .records_fixture import make_records, make_requests

SNAPSHOT = Snapshot(
    elapsed_seconds=12.4,
    offered_rps=100,
    load=LoadFigures(97.5, 1234.5, 3.21),
    replicas={"gpu": Replicas(3, 3, 1, 2), "cpu": None},
    weights=(833, 167),
    placement="PreferGPU",
    action="gpu +2 cpu -1 prefer GPU",
    guards=("floor gpu 3→4",),
    conditions={
        "Ready": Condition("Ready", "True", "Ready", ""),
        "Active": Condition("Active", "False", "Conflicted", "an HPA"),
        "Fallback": Condition("Fallback", "False", "NotNeeded", ""),
        "Conflicted": Condition("Conflicted", "True", "HPAExists", ""),
    },
)


def screen(terminal: bool = False) -> tuple[Screen, io.StringIO]:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=160, highlight=False, soft_wrap=True)
    return Screen(Settings(out=Path("/out")), console), output


def test_a_snapshot_says_everything_on_one_line() -> None:
    shown, output = screen()
    with shown.table():
        shown.show(SNAPSHOT)
    line = output.getvalue()
    assert line.count("\n") == 1
    for part in ("12 s", "100 offered", "p95  1234 ms", "3.2 %", "gpu 1/3 +2", "cpu -", "PreferGPU 83:17"):
        assert part in line
    assert "gpu +2 cpu -1 prefer GPU" in line
    assert "[floor gpu 3→4]" in line


def test_only_conditions_that_need_attention_are_shown_besides_ready() -> None:
    assert SNAPSHOT.state == "Ready=True  Active=False (Conflicted)  Conflicted=True"


def test_what_is_unknown_is_a_dash() -> None:
    nothing = LoadFigures(0, float("nan"), float("nan"))
    cells = replace(SNAPSHOT, load=nothing, weights=None, placement="", elapsed_seconds=-1).cells
    assert cells[:8] == ("0 s", "100", "0", "-", "-", "1/3 +2", "-", "-")


def test_a_pipe_gets_a_line_every_ten_seconds() -> None:
    shown, output = screen()
    with shown.table():
        for tick in range(100):
            shown.show(replace(SNAPSHOT, elapsed_seconds=tick / 4))
    assert [line.split()[0] for line in output.getvalue().splitlines()] == ["0", "10", "20"]


def test_a_terminal_gets_one_table_that_is_redrawn() -> None:
    shown, output = screen(terminal=True)
    with shown.table():
        shown.show(SNAPSHOT)
    text = output.getvalue()
    assert "last action" in text
    assert "Conflicted=True" in text


def test_the_summary_shows_unknown_figures_as_dashes() -> None:
    output = io.StringIO()
    Console(file=output, width=80).print(summary_table(summarise(make_records(requests=make_requests()))))
    rows = dict(line.split(maxsplit=1) for line in output.getvalue().splitlines())
    assert rows["p95_ms"].strip() == "-"
    assert rows["contender"].strip() == "rl"
