"""`rlscaler scheduler openb`: the trace's files and the replay."""

from __future__ import annotations

import time
from pathlib import Path

import click
import numpy as np

from rlscaler_core.options import FILE, FOLDER
from rlscaler_rl.placement.openb import POD_LISTS

_FILES = click.option("--folder", type=FOLDER, help="$RLSCALER_OPENB or ~/.local/share/rlscaler/openb by default.")

_REFERENCE = "fgd best fit"
"""Exact FGD and best fit: who is played beside it is compared with it, pods in the same order."""

FEWEST_SEEDS = 2
"""Seeds below which a difference has no interval."""


@click.group()
def openb() -> None:
    """Alibaba's trace of a cluster with shared GPUs: 1,213 nodes, 6,212 GPUs, 8,152 pods."""


@openb.command()
@click.argument("originals", type=FILE, nargs=-1, required=True)
@_FILES
def make(originals: tuple[Path, ...], folder: Path | None) -> None:
    """Check the published ORIGINALS and put them where `replay` finds them."""
    from rlscaler_rl.placement.openb import OpenbError
    from rlscaler_rl.placement.openb import make as put

    try:
        for path in put(originals, folder):
            click.echo(path)
    except OpenbError as error:
        raise click.ClickException(str(error)) from error


@openb.command()
@_FILES
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(1))
@click.option("--ties", type=click.Choice(["name", "random"]), default="name", show_default=True)
@click.option(
    "--ratio", default=1.3, show_default=True, type=click.FloatRange(0.1, 1.39), help="Requested GPUs, over all GPUs."
)
@click.option(
    "--pod-list",
    type=click.Choice(list(POD_LISTS)),
    metavar="NAME",
    default="default",
    show_default=True,
    help="Published list of pods: openb_pod_list_NAME.csv.",
)
@click.option("--scheduler", "only", multiple=True, help="Of the schedulers only this one (repeatable); default: all.")
def replay(
    folder: Path | None,
    seeds: int,
    ties: str,
    ratio: float,
    pod_list: str,
    only: tuple[str, ...],
) -> None:
    """Replay the trace by inflation with the published schedulers and the project's rules.

    The last column has how many points each has allocated more than FGD with best fit, over the same orders of pods.
    """
    from rlscaler_core.placement.fragmentation import typical
    from rlscaler_rl.placement.openb import OpenbError, inflated, load
    from rlscaler_rl.placement.published import Scheduler, Ties
    from rlscaler_rl.placement.published import replay as play
    from rlscaler_rl.results.statistics import mean_interval
    from rlscaler_rl.results.table import Table

    names = {scheduler.name.replace("_", " ").lower(): scheduler for scheduler in Scheduler}
    if wrong := set(only) - set(names):
        raise click.UsageError(f"--scheduler: {', '.join(sorted(wrong))} is none of {', '.join(names)}")
    try:
        nodes, pods = load(POD_LISTS[pod_list], folder)
    except OpenbError as error:
        raise click.ClickException(str(error)) from error
    gpus, kinds = float(nodes.gpus.sum()), typical(pods)
    rule = Ties.BY_NAME if ties == "name" else Ties.RANDOM
    contenders = [(name, scheduler) for name, scheduler in names.items() if not only or name in only]
    rows, reference = [], None
    for name, scheduler in sorted(contenders, key=lambda named: named[0] != _REFERENCE):
        shares, took = [], []
        for seed in range(seeds):
            order = inflated(pods, gpus, ratio, np.random.default_rng(42 + seed))
            began = time.process_time()
            replayed = play(nodes, pods, order, kinds, scheduler, rule, seed)
            took.append(time.process_time() - began)
            shares.append((replayed.curve[100], replayed.allocated))
        at, end = np.mean(shares, axis=0)
        ends = np.array(shares)[:, 1]
        ahead = "-" if reference is None else mean_interval(ends - reference, FEWEST_SEEDS).shown("+.2f")
        if name == _REFERENCE:
            reference = ends
        click.echo(f"{name}: {end:.2f} %", err=True)
        rows.append((name, *(f"{value:.2f}" for value in (at, end, ends.std(), np.median(took))), ahead))
    header = ("scheduler", "at 100 %", "at the end", "sd", "CPU s", f"against {_REFERENCE} (95 %)")
    click.echo("\n".join(Table(header, rows).markdown()))
