"""The fluid level on a GPU keeps the ledger of the one on the processors; where there is no GPU it says so."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.action import from_indices
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_rl.simulation import cuda, ledger, levels
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.processors import FluidLevel
from rlscaler_rl.simulation.ranges import RANGES
from rlscaler_rl.simulation.remembered import pool
from rlscaler_rl.simulation.scenario import ScenarioError, Scenarios, nominal
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv

on_a_gpu = pytest.mark.skipif(bool(cuda.missing()), reason=f"no GPU: {cuda.missing()}")
PATTERNS = ("ramp", "spike", "periodic", "random")
ROWS = 64


def scenarios(seconds: int = 300) -> Scenarios:
    return nominal([PATTERNS[i % 4] for i in range(ROWS)], list(range(ROWS)), seconds)


def play(batch: Batch, steps: int, seed: int = 0) -> ledger.Ledger:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        samples, observation, _ = batch.observe()
        batch.act(samples, observation, from_indices(rng.integers(0, [5, 5, 3], (len(batch.rows), 3))))
        batch.finish_interval(latencies=True)
    return ledger.read(batch.level.fetch(batch.cluster))


def assert_close(found: Any, expected: Any, tolerance: float = 1e-9) -> None:
    for field in dataclasses.fields(expected):
        mine, plain = getattr(found, field.name), getattr(expected, field.name)
        np.testing.assert_allclose(mine, plain, rtol=tolerance, atol=tolerance, err_msg=field.name)


def test_a_gpu_that_is_not_there_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "missing", lambda: "no NVIDIA GPU answers; install its driver")
    with pytest.raises(ScenarioError, match="'cuda' needs a GPU: no NVIDIA GPU answers; install its driver; or choose"):
        Batch(scenarios(), level="cuda")


def test_the_fastest_level_is_the_processors_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "missing", lambda: "nothing")
    assert isinstance(levels.make("fastest", 1), FluidLevel)
    monkeypatch.setattr(cuda, "missing", lambda: "")
    assert levels.chosen("fastest") == "cuda"


@on_a_gpu
@pytest.mark.parametrize("rule", [None, RuleSettings()])
def test_same_ledger_with_the_decision_function(rule: RuleSettings | None) -> None:
    episodes = scenarios()
    made = play(Batch(episodes, level="cuda", rule=rule), 10)
    assert_close(ledger.check(made, episodes), play(Batch(episodes, rule=rule), 10))


@on_a_gpu
def test_same_ledger_after_other_episodes_began() -> None:
    episodes, rows = scenarios(), np.arange(3, 40, 2)
    made = []
    for level in ("cuda", "fluid"):
        batch = Batch(episodes, level=level)
        play(batch, 4)
        batch.restart(rows, nominal(["spike"] * len(rows), list(range(99, 99 + len(rows))), 300))
        batch.observe_rows(rows)
        batch.floor_tick()
        made.append(play(batch, 5, seed=1))
    assert_close(*made)


@on_a_gpu
def test_same_forecasts_of_services_that_have_a_past() -> None:
    drawn = pool([np.random.default_rng(1)], dataclasses.replace(RANGES, intervals=(30,)), 2.0, services=8)
    services, rows = drawn[0]
    episodes = services.take(rows, 300, np.random.default_rng(2))
    batches = [Batch(episodes, level=level, rule=RuleSettings(), history=64) for level in ("cuda", "fluid")]
    found, expected = (play(batch, 10) for batch in batches)
    assert_close(found, expected, 1e-6)
    recent = batches[0].level.fetch(batches[0].state.load_recent)
    np.testing.assert_allclose(recent, batches[1].state.load_recent, rtol=1e-3, atol=1e-4)


@on_a_gpu
def test_same_environments() -> None:
    actions = np.random.default_rng(0).integers(0, [5, 5, 3], (25, 32, 3))
    seen = []
    for level in ("cuda", "fluid"):
        env = SimulatorVecEnv(32, 5, asymmetric=True, rule=RuleSettings(), paired=True, level=level)
        steps = [env.reset()]
        for action in actions:
            observation, reward, _, _ = env.step(action)
            steps += [observation, reward]
        env.close()
        seen.append(steps)
    for mine, plain in zip(*seen, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-3, atol=1e-4)
