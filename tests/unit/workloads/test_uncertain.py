"""Services as users have them: the gate of models and the training for one service play the uncertain world."""

from __future__ import annotations

import numpy as np

from rlscaler_rl.evaluation.episodes import folds_of
from rlscaler_rl.evaluation.settings import EvaluationSettings
from rlscaler_rl.simulation.scenario import nominal
from rlscaler_rl.workloads.names import DRIFT, ERRORS
from rlscaler_rl.workloads.uncertain import uncertain


def test_errors_come_in_turn_half_of_the_rows_drift_and_the_load_is_the_same():
    exact = nominal(["ramp"] * 10, list(range(10)), 60)
    wrong = uncertain(exact)
    np.testing.assert_allclose(wrong.rps / wrong.believed_rps, np.tile(1 + np.array(ERRORS), 2)[:, None].repeat(2, 1))
    assert (wrong.believed_rps == exact.believed_rps).all()
    assert wrong.drift[:, 0].tolist() == [0.0] * 5 + [DRIFT] * 5
    assert (wrong.arrivals == exact.arrivals).all()
    assert (wrong.scrape == 15).all()
    assert (wrong.own_scrape == 2).all()
    assert (wrong.start_seconds == (120.0, 46.0)).all()
    kept = uncertain(exact, scrape=None)
    assert (kept.scrape == exact.scrape).all()
    assert (exact.initial <= wrong.initial)[wrong.rps[:, 0] < 20].all(), "an episode begins with replicas that carry it"


def test_the_gate_plays_the_uncertain_world_unless_the_exact_one_is_asked_for():
    settings = EvaluationSettings(workloads=("ramp",), runs=1, episodes=5, duration_seconds=60)
    wrong = folds_of("ramp", settings)[0].scenarios
    exact = folds_of("ramp", settings.model_copy(update={"world": "exact"}))[0].scenarios
    assert len(np.unique(wrong.rps[:, 0])) == len(ERRORS)
    assert (exact.rps == exact.believed_rps).all()
    assert (exact.start_seconds == 0).all()
