"""The model card has its figures from the comparison and says on top where the policy loses."""

import pytest

from rlscaler_core.decision.manifest import Envelope, Manifest, Training
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.report.documents import card
from rlscaler_rl.evaluation.report.tables import title

ENVELOPE = {
    "slo_ms": [200, 2000],
    "cold_start_seconds": {"gpu": [10, 120], "cpu": [4, 60]},
    "price_ratio": [2, 10],
    "interval_seconds": [10, 60],
    "rps_ratio": [2, 12],
    "lag_seconds": [0, 30],
}


@pytest.fixture
def manifest() -> Manifest:
    training = Training(seed=1, steps=1000, hyperparameters={"agent": {"gamma": 0.95}, "environment": {}})
    return Manifest(name="ppo", digest="a" * 64, envelope=Envelope.model_validate(ENVELOPE), training=training)


@pytest.fixture
def compared(result, manifest):
    digests = result.digests.model_copy(update={"model": manifest.digest})
    return result.model_copy(update={"digests": digests, "valid": True, "reasons": []})


def test_losses_come_before_scores_and_hyperparameters(compared, manifest):
    text = card(compared, manifest)
    lost, scores, origin = (text.index(f"## {part}") for part in ("Where it loses", "Scores", "Data, objective"))
    assert lost < scores < origin
    for row in compared.gate.rows:
        assert (f"**{title(row.workload)}**" in text[lost:scores]) == (row.status != "passes")
    assert "## Claims of earlier research" in text
    assert "| gamma | 0.95 |" in text
    assert "| cold_start_seconds gpu | 10 | 120 |" in text


def test_figures_of_another_policy_are_refused(result, manifest):
    with pytest.raises(EvaluationError, match="compare this policy first"):
        card(result, manifest)


def test_an_invalid_comparison_makes_no_card(compared, manifest):
    broken = compared.model_copy(update={"valid": False, "reasons": ["broken meter"]})
    with pytest.raises(EvaluationError, match="invalid: broken meter"):
        card(broken, manifest)
