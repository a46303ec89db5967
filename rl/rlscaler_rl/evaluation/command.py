"""From options to a finished result folder."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rlscaler_rl.baselines.lineup import CONTROLS, lineup
from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.board import EXTRAS
from rlscaler_rl.evaluation.files import Layout, write_all
from rlscaler_rl.evaluation.play import Played, play
from rlscaler_rl.evaluation.report.terminal import show
from rlscaler_rl.evaluation.result import result_file
from rlscaler_rl.evaluation.settings import read_settings

RESULTS = Path("rl")
EVALUATED = ("policy", "hpa", "keda", "rule", "static_mid", "static_peak", *CONTROLS, "hindsight")
"""Who is played by `evaluate`; `compare` plays everybody and sweeps HPA's target."""

PORTRAYED = ("policy", "hpa", "rule")
"""Whose first episode `evaluate` draws; `compare` draws everybody's."""


def execute(kind: str, model: str | None, config: Path | None, out: Path | None, **options: Any) -> bool:
    """Play, judge, write and print; true when the run is valid. Raises EvaluationError for bad input."""
    began = time.monotonic()
    console = Console()
    settings = read_settings(config, **options)
    loaded = models.load(model, RESULTS)
    console.print(f"[bold]{kind}[/] of {loaded.name}", highlight=False)
    everybody = lineup(loaded.actor, loaded.name, sweep=kind == "comparison")
    entries = everybody if kind == "comparison" else [entry for entry in everybody if entry.name in EVALUATED]
    portrayed = None if kind == "comparison" else PORTRAYED
    with _progress(console) as progress:
        task = progress.add_task("", total=len(entries) * (len(settings.patterns) + len(EXTRAS) * settings.extras))

        def step(workload: str, label: str) -> None:
            progress.update(task, advance=1, description=f"{workload}: {label}")
            if not console.is_terminal and label == entries[0].label:
                console.print(f"playing {workload}, {len(entries)} contenders", highlight=False)

        played = play(settings, entries, step, portrayed)
        progress.update(task, description="judging")
        layout = Layout.at(kind, out or _default_folder(kind), [item.name for item in played.workloads])
        result = result_file(kind, played, loaded, time.monotonic() - began, layout.names())
        progress.update(task, description="drawing")
        write_all(layout, result, played)
    _warn_outside(played, loaded, console)
    show(result, layout.folder, console)
    return result.valid


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:42.42}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True)


def _default_folder(kind: str) -> Path:
    return RESULTS / f"{kind}_{datetime.now():%Y%m%d_%H%M%S}"


def _warn_outside(played: Played, loaded: models.Loaded, console: Console) -> None:
    """The operator refuses to let an actor act outside its envelope; say so when these episodes are outside."""
    for workload, reason in played.outside.items():
        console.print(
            f"[bold yellow]{workload}: outside {loaded.name}'s trained envelope ({reason}); its fallback acted[/]",
            highlight=False,
        )
