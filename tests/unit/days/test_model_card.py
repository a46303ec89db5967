"""The model card has its figures from a comparison on days and says first where the network loses."""

from __future__ import annotations

import pytest

from rlscaler_core.decision.manifest import Envelope, Manifest, Training
from rlscaler_rl.evaluation.days.model_card import model_card
from tests.unit.days.made_up import day_table

ENVELOPE = {
    "slo_ms": [200, 2000],
    "cold_start_seconds": {"gpu": [10, 120], "cpu": [4, 60]},
    "max_replicas": {"gpu": [5, 20], "cpu": [5, 20]},
    "price_ratio": [2, 10],
    "interval_seconds": [10, 60],
    "rps_ratio": [2, 12],
    "lag_seconds": [0, 30],
}
ROLES = {"hpa": "untuned", "hindsight": "reference"}


@pytest.fixture
def manifest() -> Manifest:
    training = Training(seed=1, steps=1000, hyperparameters={"agent": {"gamma": 0.95}, "environment": {}})
    return Manifest(name="ppo", digest="a" * 64, envelope=Envelope.model_validate(ENVELOPE), training=training)


def card(manifest: Manifest, **j: tuple[float, ...]) -> str:
    """Return the card of `network_1` on three loads; j[name] has the J of each contender."""
    return "\n".join(model_card(day_table(j, ROLES, ("calm", "jumpy", "noisy")), "network_1", manifest))


def test_losses_come_before_scores_and_hyperparameters(manifest):
    text = card(manifest, network_1=(1.0, 2.2, 3.0), rule=(1.0, 2.0, 3.0), hpa=(2.0, 3.0, 4.0))
    assert text.splitlines()[2].startswith("This is a small neural network"), "first what it is, for everybody"
    lost, scores, origin = (text.index(f"## {part}") for part in ("Where it loses", "Scores", "Data, objective"))
    assert lost < scores < origin
    assert "**jumpy**: +10.0 % against RULE" in text[lost:scores]
    assert "calm" not in text[lost:scores]
    assert "noisy" not in text[lost:scores]
    assert "| calm (s) | 1 | 1.00 | 0.50 | 1.00 | +0.0 |" in text
    assert "not ahead of the forecast rule" in text[:lost]
    assert text.index("| RULE | +3.3 [") < text.index("| HPA |"), "losses first"
    assert "| gamma | 0.95 |" in text
    assert "| cold_start_seconds gpu | 10 | 120 |" in text
    assert "| a replica's capacity in requests/s | any | any |" in text


def test_a_network_that_wins_everywhere_says_so_and_knowing_the_future_is_no_rival(manifest):
    text = card(manifest, network_1=(0.9, 1.8, 2.8), rule=(1.0, 2.0, 3.0), hindsight=(0.1, 0.1, 0.1))
    assert "It is ahead of the forecast rule" in text
    assert "On no load is it more than 3 % above" in text
