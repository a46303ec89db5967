"""What is it worth to know the load of the next seconds? The same training, with more and more of the future shown.

Where an actor that knows the next minute is far better than one that does not, the difference is information: no
policy can win it from measurements of the past. Where it is not, what is missing to the hindsight rule is reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_research.ablation.foreseeing import by_the_rule, play, trained
from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.privileged import WIDTH, WINDOWS_SECONDS
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.workloads import HELD_OUT, PATTERNS, TRACES, Part, episodes

WORKLOADS = (*PATTERNS, *TRACES)
EPISODES = 32
STEPS = 1_500_000

LADDER: dict[str, int] = {
    "nothing": 0,
    **{f"{end} s": shown for shown, (_, end) in enumerate(WINDOWS_SECONDS, start=1)},
    "all": WIDTH,
}
"""What is shown -> columns of `privileged.reveal`: mean rates up to so many seconds ahead; the last also the hidden
facts of the service and its queues."""

SAME_ACTIONS, HINDSIGHT = "rule, same actions", "hindsight rule"


def information_test(seeds: Sequence[int], steps: int, say: Callable[[str], None]) -> dict[str, Any]:
    """J per workload and seed of every step of the ladder, and of the rules that know everything."""
    played = _episodes()
    scores = {
        SAME_ACTIONS: [play(played, by_the_rule)],
        HINDSIGHT: [run(played, Hindsight(played.rate.astype(np.float64))).result.j],
    }
    for name, columns in LADDER.items():
        scores[name] = []
        for seed in seeds:
            scores[name].append(play(played, trained(seed, steps, columns)))
            say(f"{name} shown, seed {seed}: J {scores[name][-1].mean():.2f}")
    return {
        "seeds": list(seeds),
        "steps": steps,
        "workloads": {
            workload: {name: [_mean(j, i) for j in found] for name, found in scores.items()}
            for i, workload in enumerate(WORKLOADS)
        },
    }


def report(figures: dict[str, Any]) -> str:
    """A Markdown table: means over the seeds."""
    names = [*LADDER, SAME_ACTIONS, HINDSIGHT]
    lines = ["| shown of the future | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    rows = {workload: [float(np.mean(row[name])) for name in names] for workload, row in figures["workloads"].items()}
    rows["mean"] = np.mean(list(rows.values()), axis=0).tolist()
    lines += [f"| {workload} | " + " | ".join(f"{j:.2f}" for j in row) + " |" for workload, row in rows.items()]
    return "\n".join(lines)


def _episodes() -> Scenarios:
    """`EPISODES` of every workload, one after the other, of parts that no report looks at."""
    parts = [
        episodes(name, Part.TUNE, runs=1, episodes=EPISODES, fold=0 if name == HELD_OUT else None) for name in WORKLOADS
    ]
    return Scenarios.concat(parts)


def _mean(j: Float, place: int) -> float:
    return round(float(j[place * EPISODES : (place + 1) * EPISODES].mean()), 4)
