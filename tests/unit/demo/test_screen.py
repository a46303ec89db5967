"""Output of the demo on a pipe and on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from rlscaler_dev.demo.pods import Replicas
from rlscaler_dev.demo.recorder import Condition
from rlscaler_dev.demo.screen import Screen, Snapshot
from rlscaler_dev.demo.tails import LoadFigures

POLICY = Snapshot(
    name="rlscaler",
    offered_rps=100,
    load=LoadFigures(97.5, 1234.5, 3.21),
    late_percent=1.25,
    cost=0.1234,
    replicas={
        "gpu": Replicas(3, 3, 1, 2),
    },
    action="orders 2 GPU",
    conditions={
        "Ready": Condition("Ready", "True", "Ready", ""),
        "Active": Condition("Active", "False", "Conflicted", "an HPA"),
        "Fallback": Condition("Fallback", "False", "NotNeeded", ""),
        "Conflicted": Condition("Conflicted", "True", "HPAExists", ""),
    },
)
HPA = replace(POLICY, name="hpa", conditions={}, action="orders 1 CPU", late_percent=20.0)


def screen(terminal: bool = False) -> tuple[Screen, io.StringIO]:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=160, highlight=False, soft_wrap=True)
    return Screen(300, console), output


def test_both_copies_have_a_line_with_load_replicas_lateness_cost_and_action() -> None:
    shown, output = screen()
    with shown.table():
        shown.show(12.4, [HPA, POLICY])
    first, second = output.getvalue().splitlines()
    assert "hpa" in first
    assert "late so far 20.0 %" in first
    parts = ("12 s", "load 100/s", "p95  1234 ms", "late so far  1.2 %", "cost so far 0.123", "gpu 1/3 +2", "cpu -")
    for part in (*parts, "orders 2 GPU", "Active False (Conflicted)"):
        assert part in second


def test_only_conditions_that_need_attention_are_shown() -> None:
    assert POLICY.state == "Active False (Conflicted)  Conflicted True"
    assert replace(HPA, problem="the API server is away").state == "the API server is away"


def test_unknown_figures_are_dashes() -> None:
    nothing = replace(POLICY, load=LoadFigures(0, float("nan"), float("nan")), late_percent=float("nan"), action="")
    assert nothing.cells == ("rlscaler", "0", "-", "1/3 +2", "-", "-", "0.123", "")


def test_a_pipe_gets_a_line_every_ten_seconds() -> None:
    shown, output = screen()
    with shown.table():
        for tick in range(100):
            shown.show(tick / 4, [POLICY])
    assert [line.split()[0] for line in output.getvalue().splitlines()] == ["0", "10", "20"]


def test_a_terminal_gets_one_table_and_the_newest_actions_of_both() -> None:
    shown, output = screen(terminal=True)
    with shown.table():
        for second in range(12):
            shown.show(second, [HPA, replace(POLICY, action=f"orders {second} GPU")])
    text = output.getvalue()
    assert "late so far" in text
    assert "rlscaler: orders 11 GPU" in text
    assert "rlscaler: orders 1 GPU" not in text.rsplit("cost so far", 1)[1]
