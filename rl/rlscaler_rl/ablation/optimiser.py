"""Is it the optimiser or the information? An actor that is given the future has to come close to the hindsight rule.

Whatever it falls short of then, it cannot blame on what it is not told. The hindsight rule acts every 5 s and without
limits on its steps, the actor at its interval and by two steps a pool; so the rule is played a second time through the
same actions, which is what the actor can reach at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.decision.action import from_indices
from rlscaler_rl.decision.types import Float, Float32, Int
from rlscaler_rl.simulation import ledger
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.episode import LATE_WEIGHT, run
from rlscaler_rl.simulation.privileged import hidden, reveal
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.training.config import TrainingConfig
from rlscaler_rl.training.imitation import CriticFirst, advice
from rlscaler_rl.training.validation import SETTINGS, places, scenarios

TOLERANCE_PERCENT = 5.0
Act = Callable[[Batch, Float32], Int]


def optimiser_test(seed: int, steps: int) -> dict[str, Any]:
    """J per workload of the actor with foresight, the rule through the same actions, and the rule as it is."""
    episodes = scenarios(*SETTINGS[0])
    policy = _trained(seed, steps)

    def act(batch: Batch, inputs: Float32) -> Int:
        return from_indices(policy.predict(inputs, deterministic=True)[0])

    scores = {
        "foresight": _play(episodes, act),
        "hindsight_same_actions": _play(episodes, lambda batch, inputs: from_indices(advice(batch))),
        "hindsight": run(episodes, Hindsight(episodes.rate.astype(np.float64))).result.j,
    }
    rows = {
        workload: {name: float(j[rows].mean()) for name, j in scores.items()} for workload, rows in places().items()
    }
    mean = {name: float(j.mean()) for name, j in scores.items()}
    return {"seed": seed, "steps": steps, "workloads": rows, "mean": mean}


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


def _play(episodes: Scenarios, act: Act) -> Float:
    """(N,) J of the scenarios under an actor that sees the critic's columns behind its stack."""
    batch, facts = Batch(episodes, TrainingConfig().environment.contract()), hidden(episodes)
    for _ in range(int(episodes.duration[0]) // batch.interval):
        samples, observation, stacked = batch.observe()
        inputs = np.concatenate([stacked, reveal(facts, batch.cluster, batch.scenarios, batch.rows)], axis=1)
        batch.act(samples, observation, act(batch, inputs))
        batch.finish_interval()
    books = ledger.check(ledger.read(batch.cluster), episodes)
    return books.cost(episodes.price_ratio) + LATE_WEIGHT * books.late_percent()


def _trained(seed: int, steps: int) -> Any:
    from rlscaler_rl.training.callbacks import EntropySchedule, TimeLimitBootstrap
    from rlscaler_rl.training.train import make_env, make_model, prepare, set_up

    config = TrainingConfig.load(None, seed=seed, steps=steps)
    set_up(config)
    model = make_model(config, make_env(config), None, foresight=True)
    prepare(model, config)
    entropy = EntropySchedule(config.agent.entropy, config.agent.final_entropy)
    model.learn(steps, callback=[entropy, TimeLimitBootstrap(), CriticFirst(config.agent.critic_rollouts)])
    return model
