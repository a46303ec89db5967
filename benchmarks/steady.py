"""Constant loads over sizes of service: what the forecast rule costs above the cheapest replicas that never change.

python benchmarks/steady.py [--sizes 5,10,20,50] [--out FILE]

Every case is a service of two pools or of one, whose load needs 5 to 90 % of what all its replicas carry. The rule is
shown five hours of the load before one hour is played; the constant replicas are the best of the cheapest mixes that
the load would fill to 60, 64 ... 100 %.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from rlscaler_core.decision.types import Float, Int, Params
from rlscaler_core.models import load_bundled
from rlscaler_dev.benchmark import out_option, write
from rlscaler_rl.baselines.contender import cheapest_mix
from rlscaler_rl.baselines.simple import Static, StaticSettings
from rlscaler_rl.evaluation.days.play import Days, played, prepared
from rlscaler_rl.evaluation.days.service_load import MONDAY, ServiceLoad
from rlscaler_rl.simulation.scenario import NOMINAL

POOLS = {"both": (True, True), "gpu": (True, False), "cpu": (False, True)}
SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
"""Loads, as parts of the capacity of all replicas."""

STRETCH, BEFORE = 3600, 5
"""Seconds that are played, and stretches of the same length that come before."""

FULLNESS = np.arange(0.6, 1.01, 0.04)
"""Utilizations that constant replicas are tried at."""


class Case(NamedTuple):
    """One service and its load."""

    pools: str
    size: int
    share: float

    @property
    def rate(self) -> float:
        """Requests/s."""
        return self.share * self.size * sum(np.array(NOMINAL["rps"]) * POOLS[self.pools])


def days_of(cases: list[Case]) -> Days:
    """Prepare one stretch of each case."""
    sizes = np.array([(case.size, case.size) for case in cases])
    present = np.array([POOLS[case.pools] for case in cases])
    chosen = [(_load(case), BEFORE) for case in cases]
    return prepared(chosen, max_replicas=sizes, schedulable=sizes, present=present)


def _load(case: Case) -> ServiceLoad:
    def seconds(first: int, last: int) -> Float:
        return np.full(last - first, case.rate)

    name = f"{case.pools}_{case.size}_{case.share}"
    return ServiceLoad(name, name, False, seconds, MONDAY, 0, {}, STRETCH)


def best_constant(days: Days, rates: Float) -> Float:
    """J (N,) of the best replicas that never change."""
    params = days.scenarios.params()
    tried = [cheapest_mix(params, rates / full) for full in FULLNESS]
    found = np.full(len(rates), np.inf)
    for replicas in tried:
        settings = StaticSettings(fraction=_fractions(params, replicas))
        found = np.minimum(found, played(days, lambda rate, chosen=settings: Static(chosen)).result.j)
    return found


def _fractions(params: Params, replicas: Int) -> Float:
    room = params.max_replicas - params.min_replicas
    return np.where(room > 0, (replicas - params.min_replicas) / np.maximum(room, 1), 0.0)


@click.command()
@click.option("--sizes", default="5,10,20,50", show_default=True, help="maxReplicas of each pool, by commas.")
@out_option
def main(sizes: str, out: Path | None) -> None:
    """Print a Markdown table: J of the rule above that of the best constant replicas, in percent."""
    cases = [Case(pools, int(size), share) for pools in POOLS for size in sizes.split(",") for share in SHARES]
    days = days_of(cases)
    constant = best_constant(days, np.array([case.rate for case in cases]))
    rule = played(days, lambda rate: load_bundled("rule")).result
    above = 100 * (rule.j / constant - 1)
    click.echo(f"| pools, max replicas | {' | '.join(f'{100 * share:.0f} %' for share in SHARES)} |")
    click.echo(f"|---|{'---|' * len(SHARES)}")
    for first in range(0, len(cases), len(SHARES)):
        cells = [f"{value:+.1f}" for value in above[first : first + len(SHARES)]]
        click.echo(f"| {cases[first].pools}, {cases[first].size} | {' | '.join(cells)} |")
    click.echo(f"\nwithin 5 %: {np.mean(above <= 5):.0%} of {len(cases)}; worst {above.max():+.1f} %")
    rows = [
        {**case._asdict(), "rate": case.rate, "constant": float(j), "rule": float(r), "late": float(late)}
        for case, j, r, late in zip(cases, constant, rule.j, rule.late_percent, strict=True)
    ]
    write(out, rows, indent=1)


if __name__ == "__main__":
    main()
