"""`rlscaler evaluate` and `rlscaler compare` in simulation: from inputs to a finished result folder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rlscaler_rl.evaluation.inputs import Inputs
from rlscaler_rl.evaluation.lineup import contenders
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.play import Played, play
from rlscaler_rl.evaluation.result import Layout, result_file, write_all
from rlscaler_rl.evaluation.schema import ResultFile

UNDRAWN = ("sweep", "seed")
"""Roles without a time-line: variants of a contender that has one, or replicas that never change."""


def execute(kind: str, inputs: Inputs, folder: Path, console: Console) -> ResultFile:
    """Play, judge and write the folder, with progress on the console. Raises EvaluationError."""
    began = time.monotonic()
    settings, loaded = inputs.settings, inputs.loaded
    siblings = f" and {len(loaded) - 1} other training seeds" if len(loaded) > 1 else ""
    console.print(f"[bold]{kind}[/] of {loaded[0].name}{siblings}, {settings.level} level", highlight=False)
    entries = contenders(kind, loaded)
    drawn = [entry.name for entry in entries if entry.role not in UNDRAWN]
    columns = (TextColumn("{task.description:42.42}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(entries) * len(settings.played))
        done: Counter[str] = Counter()

        def step(workload: str, label: str) -> None:
            progress.update(task, advance=1, description=f"{workload}: {label}")
            done[workload] += 1
            if not console.is_terminal and done[workload] == 1:
                console.print(f"playing {workload} ({time.monotonic() - began:.0f} s)", highlight=False)

        played = play(settings, kind, loaded, step, timelines=drawn)
    # Outside its envelope the operator does not let a network act: these episodes played its rule or its fallback.
    for workload, reason in played.outside.items():
        console.print(
            f"[bold yellow]{workload}: outside {loaded[0].name}'s trained envelope ({reason}); its rule or fallback "
            "acted[/]",
            highlight=False,
        )
    return finish(kind, played, loaded, folder, began, console)


def finish(
    kind: str, played: Played, loaded: Sequence[Loaded], folder: Path, began: float, console: Console
) -> ResultFile:
    """Judge the played episodes and write the folder.

    `began`: the moment on the monotonic clock at which the command began, seconds.
    """
    layout = Layout(folder, kind, [item.name for item in played.workloads])
    with console.status("judging and drawing"):
        result = result_file(kind, played, loaded, time.monotonic() - began, layout.names())
        write_all(layout, result, played)
    return result
