"""What other settings of the forecast rule would be worth on the tune days of all loads.

python -m benchmarks.rule_settings [--loads NAMES] [--history 3] [--scrape 30] [--out FILE]

The last two tune days of each load are played at the fluid level with the rule that acts every 30, 15 and 10 seconds,
with less and with more caution, and with the HPA as it comes. No day that any page judges on is among them. J of each
is compared with the rule that acts every 30 seconds; intervals are by bootstrap over loads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from rlscaler_core.decision.rule import Rule, RuleSettings
from rlscaler_core.decision.types import Float
from rlscaler_core.options import names_in
from rlscaler_dev.benchmark import out_option, write
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.evaluation.days import play
from rlscaler_rl.evaluation.days.service_load import from_library
from rlscaler_rl.evaluation.days.shift import SCRAPES_PER_WINDOW
from rlscaler_rl.evaluation.statistics import Design, Interval, weights
from rlscaler_rl.simulation.scenario import NOMINAL
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.day_splits import NOMINAL_SHARE
from rlscaler_rl.workloads.days import there

DAYS = 2
BASE = "every 30 s"
CASES: dict[str, tuple[float, Callable[[], Any]]] = {
    BASE: (30.0, Rule),
    "every 15 s": (15.0, Rule),
    "every 10 s": (10.0, Rule),
    "caution .1": (30.0, lambda: Rule(RuleSettings(caution=0.1))),
    "caution .4": (30.0, lambda: Rule(RuleSettings(caution=0.4))),
    "HPA 80 %": (30.0, Hpa),
}


def played(names: list[str], history: int, sensors: dict[str, float]) -> dict[str, tuple[Float, Float]]:
    """Give J and the late percentage (L,) of each case, the mean over the days of each load."""
    capacity = sum(rps * most for rps, most in zip(NOMINAL["rps"], NOMINAL["max_replicas"], strict=True))
    loads = [from_library(name, capacity, NOMINAL_SHARE, None) for name in names]
    chosen = [(load, day) for load in loads for day in list(load.parts[Part.TUNE])[-DAYS:]]
    rows = [np.array([load.name == name for load, _ in chosen]) for name in names]
    prepared = {
        interval: play.prepared(chosen, history_days=history, interval_seconds=interval, **sensors)
        for interval in {interval for interval, _ in CASES.values()}
    }
    found = {}
    for name, (interval, make) in CASES.items():
        result = play.played(prepared[interval], partial(_same, make())).result
        j, late = (np.array([values[row].mean() for row in rows]) for values in (result.j, result.late_percent))
        found[name] = j, late
        click.echo(name, err=True)
    return found


def _same(controller: Any, rate: Float) -> Any:
    return controller


@click.command()
@click.option("--loads", help="Names of the library of days, by commas. Default: all that are there.")
@click.option("--history", default=3, show_default=True, help="Days before that the forecaster is shown.")
@click.option("--scrape", type=float, help="Seconds between two scrapes; rates are over four. Default: 2 s, over 10 s.")
@out_option
def main(loads: str | None, history: int, scrape: float | None, out: Path | None) -> None:
    """Print a Markdown table of J and of late requests for each load and case."""
    names = there() if loads is None else list(names_in("--loads", loads))
    found = played(names, history, {} if scrape is None else {"scrape": scrape, "window": SCRAPES_PER_WINDOW * scrape})
    click.echo(f"| J (late %) | {' | '.join(CASES)} |")
    click.echo(f"|---|{'---|' * len(CASES)}")
    for i, name in enumerate(names):
        click.echo(f"| {name} | {' | '.join(f'{j[i]:.2f} ({late[i]:.2f})' for j, late in found.values())} |")
    base, drawn = found[BASE][0], weights(Design(1, len(names)))
    against = []
    for j, _ in found.values():
        change = 100 * (j / base - 1)
        one = Interval.of(float(change.mean()), drawn @ change)
        against.append(f"{one.mean:+.1f} % [{one.low:+.1f}, {one.high:+.1f}]")
    click.echo(f"| **against {BASE}** | {' | '.join(against)} |")
    figures = {name: {"j": j.tolist(), "late": late.tolist()} for name, (j, late) in found.items()}
    write(out, {"loads": names, "cases": figures}, indent=1)


if __name__ == "__main__":
    main()
