"""One small comparison, played once and shared."""

from __future__ import annotations

import pytest

from rlscaler_rl.baselines.lineup import lineup
from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.play import Played, play
from rlscaler_rl.evaluation.result import result_file
from rlscaler_rl.evaluation.schema import ResultFile
from rlscaler_rl.evaluation.settings import Settings


@pytest.fixture(scope="session")
def small() -> Settings:
    return Settings(patterns=("spike", "random"), runs=2, episodes=2, duration_seconds=300)


@pytest.fixture(scope="session")
def played(small, tmp_path_factory) -> Played:
    """Everybody on two patterns, with the bundled rule as the policy."""
    loaded = models.load("rule", tmp_path_factory.mktemp("none"))
    return play(small, lineup(loaded.actor, loaded.name, sweep=True), lambda workload, label: None)


@pytest.fixture(scope="session")
def result(played, tmp_path_factory) -> ResultFile:
    loaded = models.load("rule", tmp_path_factory.mktemp("none"))
    return result_file("comparison", played, loaded, 1.0, ["a.json"])
