"""Gain of a headroom that is chosen each night by the days before, for each recorded load by itself.

    python -m benchmarks.nightly --nights 5

One load of each origin is played on its last day and on the days before it, in the uncertain world, by the forecast
rule under each of six constant headrooms. `hedge` keeps a weight for each headroom, which
falls exponentially with J of every day played, and takes the headroom that is nearest to their weighted mean. `best so
far` takes the headroom with the least J of the days before. `hindsight` takes the best of the last day itself, which no
method can know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import click
import numpy as np
from benchmarks.headroom import constant

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.days.contenders import Afresh
from rlscaler_rl.evaluation.days.play import Job, played_side_by_side
from rlscaler_rl.evaluation.days.service_load import ServiceLoad, from_library
from rlscaler_rl.evaluation.days.setting import UNCERTAIN, World
from rlscaler_rl.evaluation.days.world import prepared_in
from rlscaler_rl.results.statistics import mean_interval
from rlscaler_rl.simulation.scenario import NOMINAL
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.days import LEAST_DAYS, NOMINAL_SHARE, day_load, there

GRID = (0.0, -0.15, -0.08, 0.08, 0.15, 0.25)
"""Constant headrooms as logarithms; the first is the rule as it is."""

RATE = 20.0
"""Exponent of Hedge: a headroom whose J is 5 % below the rule's in one night gets e times the weight."""

AT_ONCE = 4
"""Loads that are played at a time; a day takes some megabytes."""


def hedge(before: Float) -> int:
    """Return the index of the next day's headroom, from J relative to the rule's (nights, headrooms)."""
    weights = np.exp(-RATE * (before - 1).sum(axis=0))
    return int(np.argmin(np.abs(np.array(GRID) - np.average(GRID, weights=weights))))


def best_so_far(before: Float) -> int:
    """Return the index of the headroom with the least J relative to the rule's (nights, headrooms)."""
    return int(np.argmin(before.sum(axis=0)))


def relative_j(loads: Sequence[ServiceLoad], nights: int, world: World) -> Float:
    """Return J relative to the rule's of each load (loads, nights + 1, settings, headrooms), the days in order."""
    chosen = []
    for load in loads:
        known = sorted(day for part in Part for day in load.parts[part])
        chosen += [(load, day) for day in known[-nights - 1 :]]
    jobs = [Job(Afresh(partial(constant, headroom))) for headroom in GRID]
    figures = played_side_by_side(prepared_in(world, chosen), jobs)
    j = np.stack([figure.result.j for figure in figures], axis=1)
    return (j / j[:, :1]).reshape(len(loads), nights + 1, -1, len(GRID))


@click.command()
@click.option("--nights", type=click.IntRange(1), default=5, show_default=True, help="Days before the last one.")
@click.option("--errors", default="-20", show_default=True, help="True capacity against the declared one in %.")
def main(nights: int, errors: str) -> None:
    """Print J of the last day against the rule's, in percent, for each way to choose and by load."""
    shares = tuple(float(value) / 100 for value in errors.split(","))
    world = replace(UNCERTAIN, errors=shares, scrapes=UNCERTAIN.scrapes[:1], pools=("both",))
    capacity = float(sum(rps * most for rps, most in zip(NOMINAL["rps"], NOMINAL["max_replicas"], strict=True)))
    long_enough = [name for name in there(None) if day_load(name).days >= max(LEAST_DAYS, nights + 1)]
    names = list({day_load(name).group: name for name in reversed(long_enough)}.values())
    loads = [from_library(name, capacity, NOMINAL_SHARE) for name in names]
    ways = {"hedge": hedge, "best so far": best_so_far}
    print(f"{'load':18} {'hedge':>8} {'best so far':>12} {'hindsight':>10}   % of the rule's J, mean of the settings")
    gains: dict[str, list[float]] = {name: [] for name in (*ways, "hindsight")}
    for first in range(0, len(loads), AT_ONCE):
        batch = loads[first : first + AT_ONCE]
        for load, played in zip(batch, relative_j(batch, nights, world), strict=True):
            last = played[-1]
            rows = range(last.shape[0])
            relative = {name: np.mean([last[i, way(played[:-1, i])] for i in rows]) for name, way in ways.items()}
            relative["hindsight"] = last.min(axis=1).mean()
            for name, value in relative.items():
                gains[name].append(100 * float(value - 1))
            shown = [gains[name][-1] for name in gains]
            print(f"{load.name:18} {shown[0]:+8.1f} {shown[1]:+12.1f} {shown[2]:+10.1f}", flush=True)
    for name, values in gains.items():
        print(f"{name:12} {mean_interval(np.array(values)):+.2f}, worst {max(values):+.1f} %", flush=True)


if __name__ == "__main__":
    main()
