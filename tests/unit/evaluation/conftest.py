"""One small comparison, played once and shared."""

from __future__ import annotations

import pytest

from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.play import Played, play
from rlscaler_rl.evaluation.result import result_file
from rlscaler_rl.evaluation.schema import ResultFile
from rlscaler_rl.evaluation.settings import EvaluationSettings


def nobody(workload: str, label: str) -> None:
    """Progress that nobody watches."""


@pytest.fixture(scope="session")
def small() -> EvaluationSettings:
    return EvaluationSettings(workloads=("spike", "azure_code"), runs=2, episodes=2, duration_seconds=120)


@pytest.fixture(scope="session")
def nowhere(tmp_path_factory):
    """A folder without trainings."""
    return tmp_path_factory.mktemp("none")


@pytest.fixture(scope="session")
def played(small, nowhere) -> Played:
    """Everybody on a pattern, a trace and the extras, with the bundled rule as policy and as its own second seed."""
    return play(small, "comparison", models.load_all(("rule", "rule"), nowhere), nobody, workers=1)


@pytest.fixture(scope="session")
def result(played, nowhere) -> ResultFile:
    return result_file("comparison", played, models.load_all(("rule", "rule"), nowhere), 1.0, ["a.json"])
