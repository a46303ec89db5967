"""`rlscaler evaluate` and `rlscaler compare` in simulation: from options to a finished result folder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.lineup import EQUAL_COST, Entry, contenders
from rlscaler_rl.evaluation.play import Played, play
from rlscaler_rl.evaluation.report.terminal import show
from rlscaler_rl.evaluation.result import Layout, result_file, write_all
from rlscaler_rl.evaluation.settings import EvaluationSettings, read_settings

RESULTS = Path("rl")
UNDRAWN = ("sweep", "seed", EQUAL_COST)
"""Roles without a time-line: variants of a contender that has one, or replicas that never change."""


def execute(kind: str, model: tuple[str, ...], config: Path | None, out: Path | None, **options: Any) -> bool:
    """Play, judge, write and print; true when the run is valid. Raises EvaluationError for bad input."""
    began = time.monotonic()
    console = Console()
    settings = read_settings(config, **options)
    loaded = models.load_all(model, RESULTS)
    siblings = f" and {len(loaded) - 1} other training seeds" if len(loaded) > 1 else ""
    console.print(f"[bold]{kind}[/] of {loaded[0].name}{siblings}, {settings.level} level", highlight=False)
    entries = contenders(kind, loaded)
    drawn = [entry.name for entry in entries if entry.role not in UNDRAWN]
    columns = (TextColumn("{task.description:42.42}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=_plays(entries, settings))
        done: Counter[str] = Counter()

        def step(workload: str, label: str) -> None:
            progress.update(task, advance=1, description=f"{workload}: {label}")
            done[workload] += 1
            if not console.is_terminal and done[workload] == 1:
                console.print(f"playing {workload} ({time.monotonic() - began:.0f} s)", highlight=False)

        played = play(settings, kind, loaded, step, timelines=drawn)
    # The operator refuses to let an actor act outside its envelope; say so when these episodes are outside.
    for workload, reason in played.outside.items():
        console.print(
            f"[bold yellow]{workload}: outside {loaded[0].name}'s trained envelope ({reason}); its fallback acted[/]",
            highlight=False,
        )
    return finish(kind, played, loaded, out or default_folder(kind), began, console)


def finish(
    kind: str, played: Played, loaded: Sequence[models.Loaded], folder: Path, began: float, console: Console
) -> bool:
    """Judge what was played, write the folder and print the essentials; true when the run is valid.

    `began`: the moment on the monotonic clock at which the command began, seconds.
    """
    layout = Layout.at(kind, folder, [item.name for item in played.workloads])
    with console.status("judging and drawing"):
        result = result_file(kind, played, loaded, time.monotonic() - began, layout.names())
        write_all(layout, result, played)
    show(result, layout.folder, console)
    return result.valid


def default_folder(kind: str) -> Path:
    """`rl/KIND_YYYYMMDD_HHMMSS`."""
    return RESULTS / f"{kind}_{datetime.now():%Y%m%d_%H%M%S}"


def _plays(entries: list[Entry], settings: EvaluationSettings) -> int:
    everywhere = sum(entry.role != EQUAL_COST for entry in entries) * len(settings.played)
    return everywhere + sum(entry.role == EQUAL_COST for entry in entries) * len(settings.workloads)
