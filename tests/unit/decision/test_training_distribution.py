"""Observations unlike those of training."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from rlscaler_core.decision.training_distribution import TrainingDistribution
from rlscaler_core.decision.types import OBSERVATIONS, Observation, SignalState

N = len(OBSERVATIONS)


@pytest.fixture(scope="module")
def trained() -> np.ndarray:
    """(5000, 10): the first two numbers move together, the last never moves."""
    rng = np.random.default_rng(1)
    fed = rng.normal(0.5, 0.1, (5000, N))
    fed[:, 1] = fed[:, 0] + rng.normal(0, 0.01, 5000)
    fed[:, 9] = 0.0
    return fed


def observed(fed: np.ndarray, unknown: tuple[int, ...] = ()) -> Observation:
    rows = np.atleast_2d(fed).astype(np.float32)
    status = np.full(rows.shape, SignalState.KNOWN, np.int32)
    status[:, list(unknown)] = SignalState.UNKNOWN
    return Observation(rows.astype(float), rows, status, np.zeros(rows.shape), np.zeros(len(rows), bool))


def test_what_training_saw_is_familiar(trained: np.ndarray) -> None:
    assert not TrainingDistribution.of(trained, 1.0).mask(observed(trained + 1e-6)).any()


def test_a_number_far_out_is_not(trained: np.ndarray) -> None:
    strange = np.full(N, 0.5)
    strange[9] = 0.0
    assert not TrainingDistribution.of(trained, 1.25).mask(observed(strange))[0]
    strange[4] = 3.0
    assert TrainingDistribution.of(trained, 1.25).mask(observed(strange))[0]


def test_numbers_that_never_occur_together_are_not(trained: np.ndarray) -> None:
    strange = np.full(N, 0.5)
    strange[0], strange[1], strange[9] = 0.7, 0.3, 0.0
    assert TrainingDistribution.of(trained, 1.25).mask(observed(strange))[0]
    assert trained[:, 0].max() > 0.7
    assert trained[:, 1].min() < 0.3


def test_what_is_not_known_is_not_held_against_it(trained: np.ndarray) -> None:
    strange = np.full(N, 0.5)
    strange[4], strange[9] = 3.0, 0.0
    assert not TrainingDistribution.of(trained, 1.25).mask(observed(strange, unknown=(4,)))[0]


def test_a_number_that_never_moved_may_move_a_little(trained: np.ndarray) -> None:
    strange = np.full(N, 0.5)
    strange[9] = 0.05
    assert not TrainingDistribution.of(trained, 1.25).mask(observed(strange))[0]


def test_a_row_does_not_depend_on_the_rows_beside_it(trained: np.ndarray) -> None:
    measure = TrainingDistribution.of(trained, 1.25)
    together = measure.distance(observed(trained[:50]))
    assert (together == [measure.distance(observed(row))[0] for row in trained[:50]]).all()


def test_it_survives_json(trained: np.ndarray) -> None:
    measure = TrainingDistribution.of(trained, 1.25)
    assert TrainingDistribution.model_validate_json(measure.model_dump_json()) == measure


def test_a_precision_that_is_none_is_refused(trained: np.ndarray) -> None:
    body = TrainingDistribution.of(trained, 1.25).model_dump()
    body["precision"] = (tuple(-1.0 for _ in range(N)), *body["precision"][1:])
    with pytest.raises(ValidationError, match="positive definite"):
        TrainingDistribution.model_validate(body)
