"""Why requests are late under the forecast rule, and what the split of the traffic changes, on tune days of real loads.

python benchmarks/late_causes.py [--loads NAMES] [--prices 0.5,8] [--loadings 1.15,0.9] [--history 1] [--out FILE]

The last tune day of each load is played at the fluid level, for every price of lateness and loading, with balanced
traffic and with the rule's own split. A late request counts as one of a jump where the load has been above 1.4 times
that of half a minute before within the last 90 s, as one of an overload where more came than the ready replicas carry
within the last half minute, and else as one of chance: there were enough replicas, and it waited in them.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

from rlscaler_core.decision.rule import BY_LOAD, Rule, RuleSettings
from rlscaler_core.decision.types import Bool, Float, Placement
from rlscaler_dev.benchmark import out_option, write
from rlscaler_rl.baselines.contender import stacked
from rlscaler_rl.evaluation.days import play
from rlscaler_rl.evaluation.days.service_load import from_library
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.simulation.episode import Run
from rlscaler_rl.simulation.scenario import NOMINAL
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.day_splits import NOMINAL_SHARE

LOADS = "servegen_small,nasa_july,microblog_stream,balancer,taxi,database_4,library_portal,app_servers"
SPLITS = {"balanced": int(Placement.BALANCED), "by load": BY_LOAD}

JUMP, BEFORE = 1.4, slice(3, 9)
"""A jump is a load so many times the mean of the points 15 to 40 s before."""

JUMP_ECHO, OVERLOAD_ECHO = 18, 7
"""Points of 5 s in which a jump or an overload still makes requests late."""


def causes(run: Run, rps: Float) -> Float:
    """Give the % (N, 3) of all requests that are late by chance, by a jump, and by another overload."""
    arrivals, ready = run.timeline["arrivals"], run.timeline["ready"]
    queue = run.timeline["queue"].sum(axis=2)
    late = run.timeline["late_share"] * arrivals
    overload = _echo((arrivals > (ready * rps[:, None, :]).sum(axis=2)) | (queue > arrivals / 2 + 5), OVERLOAD_ECHO)
    padded = np.pad(arrivals, ((0, 0), (BEFORE.stop - 1, 0)), mode="edge")
    seen = np.lib.stride_tricks.sliding_window_view(padded, BEFORE.stop, axis=1)[..., : BEFORE.stop - BEFORE.start]
    jump = _echo(arrivals > JUMP * np.maximum(seen.mean(axis=2), 1e-6), JUMP_ECHO)
    parts = (~overload, overload & jump, overload & ~jump)
    total = arrivals.sum(axis=1)
    return np.stack([100 * (late * part).sum(axis=1) / total for part in parts], axis=1)


def _echo(where: Bool, points: int) -> Bool:
    """Extend marks (N, T) to so many points from each of them on."""
    marked = where.copy()
    for later in range(1, points):
        marked[:, later:] |= where[:, :-later]
    return marked


@click.command()
@click.option("--loads", default=LOADS, show_default=False, help="Names of the library of days, by commas.")
@click.option("--prices", default="0.5,8", show_default=True, help="Prices of lateness.")
@click.option("--loadings", default="1.15,0.9", show_default=True, help="How full the rule means replicas to be.")
@click.option("--history", default=1, show_default=True, help="Days before that the forecaster is shown.")
@click.option("--interval", default=30.0, show_default=True, help="Seconds between two actions.")
@out_option
def main(loads: str, prices: str, loadings: str, history: int, interval: float, out: Path | None) -> None:
    """Print a Markdown table of replica-hours and of what is late, by cause."""
    capacity = sum(rps * most for rps, most in zip(NOMINAL["rps"], NOMINAL["max_replicas"], strict=True))
    found = [from_library(name, capacity, NOMINAL_SHARE, None) for name in loads.split(",")]
    last = [(load, load.parts[Part.TUNE][-1]) for load in found]
    days = play.prepared(last, history_days=history, interval_seconds=interval)
    cases = list(product(map(float, prices.split(",")), map(float, loadings.split(",")), SPLITS))
    settings = [RuleSettings(late_price=price, loading=full, placement=SPLITS[split]) for price, full, split in cases]
    rule, n = Rule(stacked(settings, len(found))), len(found)
    run = play.played(days.tiled(len(cases)), lambda rate: rule, timeline=SENSE_SECONDS)
    by_cause = causes(run, np.tile(days.scenarios.rps, (len(cases), 1)))
    rows: list[dict[str, Any]] = []
    click.echo("| load | price | loading | traffic | GPU-hours | late % | chance | jump | overload |")
    click.echo(f"|---|{'---|' * 8}")
    for row, (load, (price, full, split)) in enumerate(product(found, cases)):
        place = (row % len(cases)) * n + row // len(cases)
        hours, late = 24 * run.result.cost[place], run.result.late_percent[place]
        chance, jump, overload = by_cause[place]
        click.echo(
            f"| {load.name} | {price:g} | {full:g} | {split} | {hours:.1f} | {late:.3f} "
            f"| {chance:.3f} | {jump:.3f} | {overload:.3f} |"
        )
        figures = {"gpu_hours": float(hours), "late": float(late), "chance": float(chance), "jump": float(jump)}
        rows.append({"load": load.name, "price": price, "loading": full, "traffic": split, **figures})
    write(out, rows, indent=1)


if __name__ == "__main__":
    main()
