"""Actors that are shown what no actor can know: two tests of the training, of no other use.

The information test asks what it is worth to know the load of the next seconds: the same training, with more and more
of the future shown. Where an actor that knows the next minute is far better than one that does not, the difference is
information: no policy can win it from measurements of the past. Where it is not, what is missing to the hindsight rule
is reach.

The optimiser test asks whether it is the optimiser or the information. An actor that is given the future has to come
close to the hindsight rule: what it falls short of then is not for want of information. The hindsight rule acts every
5 s and without limits on its steps, the actor at its interval and by two steps a pool; so the rule is played a second
time through the same actions, which is what the actor can reach at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import REACH, from_indices
from rlscaler_core.decision.rule import rule_of
from rlscaler_core.decision.spec import SpecSettings
from rlscaler_core.decision.types import CPU, GPU, Float, Float32, Int, Placement
from rlscaler_rl.baselines.hindsight import Hindsight, HindsightSettings, sized_ahead
from rlscaler_rl.simulation import ledger
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.episode import LATE_WEIGHT, paced, run
from rlscaler_rl.simulation.privileged import WIDTH, WINDOWS_SECONDS, hidden, reveal
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.training import validation
from rlscaler_rl.training.config import AgentConfig, EnvironmentConfig, TrainingConfig
from rlscaler_rl.training.export import bare_manifest
from rlscaler_rl.training.imitation import CriticFirst
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

TOLERANCE_PERCENT = 5.0

Act = Callable[[Batch, Float32], Int]
"""The clusters and the network's input with `privileged.WIDTH` more columns -> the action (N, 3)."""


def advice(batch: Batch) -> NDArray[np.int64]:
    """(N, 3) what the hindsight rule would do now within the reach of one action."""
    settings, params = HindsightSettings(), batch.params.copy()
    params.requests_per_second = batch.scenarios.rps
    interval = batch.scenarios.interval_seconds.astype(np.int64)
    lead = np.ceil(float(settings.lead) * params.cold_start_seconds).astype(np.int64) + interval[:, None]
    spec, ready = batch.cluster.pool["target"], batch.cluster.pool["ready"]
    far, near = (_peak(batch, lead[:, pool]) / float(settings.target) for pool in (GPU, CPU))
    wanted = sized_ahead(params, ready, far, near)
    later = sized_ahead(params, ready, _peak(batch, lead[:, GPU] + interval) / float(settings.target), near)
    wanted[:, GPU] = np.maximum(wanted[:, GPU], later[:, GPU] - REACH * params.step_size[:, GPU])
    steps = np.clip(np.ceil((wanted - spec) / params.step_size), -REACH, REACH)
    placement = np.full((len(steps), 1), int(Placement.BALANCED))
    return np.concatenate([np.where(params.present, steps + REACH, REACH), placement], axis=1).astype(np.int64)


def _peak(batch: Batch, lead: Int | NDArray[np.int64]) -> Float:
    """(N,) highest rate of the next `lead` (N,) seconds of each row; the load's end lasts."""
    offsets = np.arange(int(lead.max()))
    moments = np.minimum(batch.cluster.row["time"][:, None] + offsets, batch.scenarios.duration[:, None] - 1)
    rate = np.take_along_axis(batch.scenarios.rate, moments, axis=1)
    return np.asarray(np.where(offsets < lead[:, None], rate, 0.0).max(axis=1), np.float64)


def by_the_rule(batch: Batch, inputs: Float32) -> Int:
    """What the hindsight rule would do within the reach of one action."""
    return from_indices(advice(batch))


def trained(seed: int, steps: int, columns: int, interval: int | None = None) -> Act:
    """An actor of the default configuration that reads so many of the critic's columns; `interval`: the only one that
    it is trained with, all of the default by default.
    """
    from rlscaler_rl.training.callbacks import EntropySchedule, TimeLimitBootstrap
    from rlscaler_rl.training.train import make_env, make_model, prepare, set_up

    agent = AgentConfig(seed=seed, steps=steps)
    config = TrainingConfig(environment=EnvironmentConfig(action_interval=interval), agent=agent)
    set_up(config)
    model: Any = make_model(config, make_env(config), None, foresight=columns)
    prepare(model, config)
    entropy = EntropySchedule(config.agent.entropy, config.agent.final_entropy)
    model.learn(steps, callback=[entropy, TimeLimitBootstrap(), CriticFirst(config.agent.critic_rollouts)])
    return lambda batch, inputs: from_indices(model.predict(inputs, deterministic=True)[0])


def play(scenarios: Scenarios, act: Act) -> Float:
    """(N,) J of the scenarios at the fluid level."""
    manifest = bare_manifest(TrainingConfig())
    batch, facts = Batch(scenarios, manifest.contract, rule=rule_of(manifest)), hidden(scenarios)
    for _ in range(int(scenarios.duration[0]) // batch.interval):
        samples, observation, stacked = batch.observe()
        inputs = np.concatenate([stacked, reveal(facts, batch.cluster, batch.scenarios, batch.rows)], axis=1)
        batch.act(samples, observation, act(batch, inputs))
        batch.finish_interval()
    books = ledger.check(ledger.read(batch.cluster), scenarios)
    return books.cost(scenarios.price_ratio) + LATE_WEIGHT * books.late_percent()


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


def information_report(figures: dict[str, Any]) -> str:
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


def optimiser_test(seed: int, steps: int, interval: int | None = None) -> dict[str, Any]:
    """J per workload of the actor with foresight, the rule through the same actions, and the rule as it is.

    `interval`: seconds between the actions, in training and in play; by default all that the default trains with, and
    the validation's 30 in play.
    """
    played = paced(validation.scenarios(*validation.CONDITIONS[0]), SpecSettings(interval_seconds=interval))
    scores = {
        "foresight": play(played, trained(seed, steps, WIDTH, interval)),
        "hindsight_same_actions": play(played, by_the_rule),
        "hindsight": run(played, Hindsight(played.rate.astype(np.float64))).result.j,
    }
    rows = {
        workload: {name: float(j[rows].mean()) for name, j in scores.items()}
        for workload, rows in validation.places().items()
    }
    mean = {name: float(j.mean()) for name, j in scores.items()}
    return {"seed": seed, "steps": steps, "interval": interval, "workloads": rows, "mean": mean}


def optimiser_report(figures: dict[str, Any]) -> str:
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
