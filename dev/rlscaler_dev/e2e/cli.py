"""`rlscaler e2e`: images and charts on a real node, under load, to the last object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlscaler_dev.demo.options import Seconds, place
from rlscaler_dev.e2e.settings import CONTENDERS, FOUR, PARTS, PATTERNS, Settings

LINE = 140
"""Columns of the table where the output is no terminal."""
CHARTS = Path(__file__).parents[3] / "helm"
"""Where a checkout has the charts."""


class Names(click.ParamType[tuple[str, ...]]):
    """Some of a set of names, separated by commas."""

    name = "NAMES"

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = value if isinstance(value, tuple) else tuple(part for part in str(value).split(",") if part)
        unknown = [name for name in names if name not in self._known]
        if unknown:
            self.fail(f"{', '.join(unknown)}: not one of {', '.join(self._known)}", param, ctx)
        return names


@click.command()
@click.option("--only", type=Names(PARTS), default=PARTS, show_default=",".join(PARTS), help="Parts of the run.")
@click.option("--patterns", type=Names(PATTERNS), default=FOUR, show_default=",".join(FOUR), help="Loads to play.")
@click.option("--contenders", type=Names(CONTENDERS), default=CONTENDERS, show_default=",".join(CONTENDERS))
@click.option("--duration", type=click.IntRange(30, 3600), default=180, show_default=True, help="Seconds of each load.")
@click.option("--interval", type=click.IntRange(10, 300), default=15, show_default=True, help="Of the policy, seconds.")
@click.option(
    "--lifecycle",
    type=click.IntRange(60, 3600),
    default=120,
    show_default=True,
    help="Seconds of the load during which the operator is upgraded and its leader killed.",
)
@click.option("--gpu-cold-start", type=Seconds(), default=(35, 55), show_default="35-55", help="Of a GPU pod, seconds.")
@click.option("--cpu-cold-start", type=Seconds(), default=(5, 11), show_default="5-11", help="Of a CPU pod, seconds.")
@click.option(
    "--charts",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=CHARTS,
    help="Folder of the charts rlscaler and rlscaler-demo.  [default: helm/ of the checkout]",
)
@place("e2e", "Of patterns and arrivals.")
@click.option(
    "--keep-cluster", is_flag=True, help="Leave the cluster for a closer look: rlscaler cluster down ends it."
)
def e2e(**options: Any) -> None:
    """Install operator and demo with Helm on a real node, load them, and take them away again.

    Needs root, Linux, the packages of `rlscaler cluster packages` and the images of `make images`. Plays each pattern
    with the policy and with the HorizontalPodAutoscaler, upgrades the operator and kills its leader under load, resizes
    running pods, and fails where anything is left in the cluster or on this machine.
    """
    from rich.console import Console

    from rlscaler_dev.demo.interrupts import ended_by_signal, interruptible
    from rlscaler_dev.e2e.report import tables
    from rlscaler_dev.e2e.run import run

    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = LINE
    settings = Settings(
        out=options["out"],
        charts=options["charts"].absolute(),
        parts=options["only"],
        patterns=options["patterns"],
        contenders=options["contenders"],
        duration_seconds=options["duration"],
        interval_seconds=options["interval"],
        seed=options["seed"],
        lifecycle_seconds=options["lifecycle"],
        gpu_cold_start_seconds=options["gpu_cold_start"],
        cpu_cold_start_seconds=options["cpu_cold_start"],
        cluster_name=options["cluster_name"],
        keep_cluster=options["keep_cluster"],
    )

    def say(text: str) -> None:
        console.print(f"• {text}", markup=False)

    try:
        with ended_by_signal(say), interruptible(lambda: say("still stopping; one moment")):
            summary = run(settings, say)
    except click.ClickException:
        say(f"it failed; logs and transcript are in {settings.out}")
        raise
    for shown in tables(summary):
        console.print(shown)
    for name in ("summary.json", "transcript.txt"):
        console.print(f"  {settings.out / name}")
