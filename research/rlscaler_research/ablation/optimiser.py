"""Is it the optimiser or the information? An actor that is given the future has to come close to the hindsight rule.

Whatever it falls short of then, it cannot blame on what it is not told. The hindsight rule acts every 5 s and without
limits on its steps, the actor at its interval and by two steps a pool; so the rule is played a second time through the
same actions, which is what the actor can reach at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlscaler_core.decision.spec import SpecSettings
from rlscaler_research.ablation.foreseeing import by_the_rule, play, trained
from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.simulation.episode import paced, run
from rlscaler_rl.simulation.privileged import WIDTH
from rlscaler_rl.training.validation import SETTINGS, places, scenarios

TOLERANCE_PERCENT = 5.0


def optimiser_test(seed: int, steps: int, interval: int | None = None) -> dict[str, Any]:
    """J per workload of the actor with foresight, the rule through the same actions, and the rule as it is.

    `interval`: seconds between the actions, in training and in play; by default all that the default trains with, and
    the validation's 30 in play.
    """
    episodes = paced(scenarios(*SETTINGS[0]), SpecSettings(interval_seconds=interval))
    scores = {
        "foresight": play(episodes, trained(seed, steps, WIDTH, interval)),
        "hindsight_same_actions": play(episodes, by_the_rule),
        "hindsight": run(episodes, Hindsight(episodes.rate.astype(np.float64))).result.j,
    }
    rows = {
        workload: {name: float(j[rows].mean()) for name, j in scores.items()} for workload, rows in places().items()
    }
    mean = {name: float(j.mean()) for name, j in scores.items()}
    return {"seed": seed, "steps": steps, "interval": interval, "workloads": rows, "mean": mean}


def report(figures: dict[str, Any]) -> str:
    """A table and the verdict."""
    rows = [*figures["workloads"].items(), ("mean", figures["mean"])]
    lines = [f"{'':>15}{'given the future':>18}{'rule, same actions':>20}{'hindsight rule':>16}"]
    lines += [
        f"{name:>15}{row['foresight']:18.2f}{row['hindsight_same_actions']:20.2f}{row['hindsight']:16.2f}"
        for name, row in rows
    ]
    mean = figures["mean"]
    excess = 100 * (mean["foresight"] / mean["hindsight"] - 1)
    verdict = "the optimiser passes" if excess <= TOLERANCE_PERCENT else "the optimiser is at fault"
    return "\n".join(
        [*lines, f"{excess:+.1f} % against the hindsight rule, {TOLERANCE_PERCENT:g} % allowed: {verdict}"]
    )
