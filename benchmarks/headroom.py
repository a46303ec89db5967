"""Lead of a network's lasting headroom over the forecast rule, by the error of the declared capacity.

    python benchmarks/headroom.py --model bundled --model rl/without_days --services 512

Services of all kinds (`Ranges`), with loads, capacities, prices and cold starts that no training draws, an hour of
history and an hour of play. Network and rule meet the same arrivals. In the rows of a fall every service loses 30 % of
its capacity in the middle of the hour, as by a new version of a model. The bound is the best of eight constant
headrooms in the rule's plan, chosen for each service in hindsight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from rlscaler_core.decision.pooling import LOADING
from rlscaler_core.decision.rule import Rule, RuleSettings
from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation import models
from rlscaler_rl.results.statistics import mean_interval
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.generative import draw
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import RANGES, Ranges
from rlscaler_rl.simulation.remembered import HOUR, Pool
from rlscaler_rl.simulation.scenario import PAST_SECONDS, Scenarios
from rlscaler_rl.training.validation import nominal_j

SEED = 20
"""Seed of the drawn services; a training spawns other streams from its seed."""

INTERVAL = 30.0
"""Seconds between two actions."""

ERRORS = (0.0, 0.2, 0.4)
"""Largest difference of the true capacity from the declared one, relative to the latter."""

FALL = 0.3
"""Part of the capacity that is lost in the last case."""

CONSTANT = (-0.15, -0.08, -0.04, 0.04, 0.08, 0.15, 0.25)
"""Constant headrooms as logarithms, beside none."""

KNOWN = replace(RANGES, exact_share=0.0, unknown_past_share=0.0)


def cases() -> Iterator[tuple[str, Ranges]]:
    """Yield each case by its name, with the ranges that its services are drawn from."""
    for error in ERRORS:
        yield f"capacity off by up to {error:.0%}", replace(KNOWN, believed_error=error, fall_share=0.0)
    yield f"capacity falls by {FALL:.0%}", replace(KNOWN, believed_error=0.0, fall=(FALL, FALL), fall_share=1.0)


def services(n: int, ranges: Ranges) -> Scenarios:
    """Return N services that their forecasters have known for an hour; the same loads for any ranges."""
    rng = np.random.default_rng(SEED)
    days = randomised(n, rng, INTERVAL, HOUR + PAST_SECONDS + HOUR, ranges, draw)
    return Pool.of(days, 1.0, HOUR, 1, rng).take(np.arange(n), HOUR, rng)


def scores(played: Scenarios, actor: object) -> tuple[Float, Float]:
    """Return J (N,) at the price of the nominal service, as rewards are, and the late requests (N,) in percent."""
    result = run(played, actor).result
    return nominal_j(result, played), result.late_percent


def constant(headroom: float) -> Rule:
    """Return the rule that plans so much more capacity, as a logarithm."""
    return Rule(RuleSettings(loading=float(LOADING / np.exp(headroom))))


@click.command()
@click.option("--model", multiple=True, default=("bundled",), show_default=True, help="As `rlscaler days` takes it.")
@click.option("--services", "count", type=click.IntRange(8), default=512, show_default=True)
def main(model: tuple[str, ...], count: int) -> None:
    """Print J and late requests of each network and of the rule beneath it."""
    networks = [models.load(name, Path("rl")) for name in model]
    print(
        f"{'':28} J against the rule in %   late % / of the rule   % of services over 5 % late / of the rule\n"
        "The bound is J of the best constant headroom in hindsight against the rule, in %"
    )
    for name, ranges in cases():
        played = services(count, ranges)
        rule, rule_late = scores(played, Rule())
        bound = np.minimum(rule, np.min([scores(played, constant(headroom))[0] for headroom in CONSTANT], axis=0))
        print(f"{name}: bound {mean_interval(100 * (bound / rule - 1)):+.2f}", flush=True)
        for network in networks:
            own, late = scores(played, network.actor)
            over = [100 * np.mean(percent > 5) for percent in (late, rule_late)]
            lead = mean_interval(100 * (own / rule - 1))
            print(
                f"{network.name:28} {lead:+.2f}   {late.mean():.2f} / {rule_late.mean():.2f}"
                f"   {over[0]:.1f} / {over[1]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
