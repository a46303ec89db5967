"""The model card has its figures from a comparison on days and says first where the network loses."""

from __future__ import annotations

import pytest

from rlscaler_core.decision.manifest import Envelope, Manifest, Training
from rlscaler_rl.evaluation.days.card import card
from rlscaler_rl.evaluation.days.table import DayTable, PlayedLoad, Score

ENVELOPE = {
    "slo_ms": [200, 2000],
    "cold_start_seconds": {"gpu": [10, 120], "cpu": [4, 60]},
    "max_replicas": {"gpu": [5, 20], "cpu": [5, 20]},
    "price_ratio": [2, 10],
    "interval_seconds": [10, 60],
    "rps_ratio": [2, 12],
    "lag_seconds": [0, 30],
}
ROLES = {"network_1": "policy", "rule": "policy", "hpa": "untuned", "hindsight": "reference"}


@pytest.fixture
def manifest() -> Manifest:
    training = Training(seed=1, steps=1000, hyperparameters={"agent": {"gamma": 0.95}, "environment": {}})
    return Manifest(name="ppo", digest="a" * 64, envelope=Envelope.model_validate(ENVELOPE), training=training)


def table(**j: tuple[float, float, float]) -> DayTable:
    """Three loads of three origins; j[name] has the J of each."""
    names = ("calm", "jumpy", "noisy")
    loads = [PlayedLoad(name=n, group=n, drawn=n == "calm", days=[3], requests=1.0, digest="") for n in names]
    scores = [
        Score(
            load=load,
            contender=name,
            label=name.upper(),
            role=ROLES[name],
            j=[value],
            cost=[value - 0.5],
            late_percent=[1.0],
            gpu_hours=[24.0],
            cpu_hours=[24.0],
        )
        for name, values in j.items()
        for load, value in zip(names, values, strict=True)
    ]
    return DayTable(
        kind="transfer",
        level="fluid",
        share=0.5,
        version="0",
        loads=loads,
        scores=scores,
        networks={"network_1": "a" * 64},
        seconds=1.0,
        peak_mib=1,
    )


def test_losses_come_before_scores_and_hyperparameters(manifest):
    text = card(table(network_1=(1.0, 2.2, 3.0), rule=(1.0, 2.0, 3.0), hpa=(2.0, 3.0, 4.0)), "network_1", manifest)
    assert text.splitlines()[2].startswith("This is a small neural network"), "first what it is, for everybody"
    lost, scores, origin = (text.index(f"## {part}") for part in ("Where it loses", "Scores", "Data, objective"))
    assert lost < scores < origin
    assert "**jumpy**: +10.0 % against RULE" in text[lost:scores]
    assert "calm" not in text[lost:scores]
    assert "noisy" not in text[lost:scores]
    assert "| calm (s) | 1 | 1.00 | 0.50 | 1.00 | +0.0 |" in text
    assert "not ahead of the forecast rule" in text[:lost]
    assert text.index("| RULE | +3.3 |") < text.index("| HPA |"), "losses first"
    assert "| gamma | 0.95 |" in text
    assert "| cold_start_seconds gpu | 10 | 120 |" in text
    assert "| a replica's capacity in requests/s | any | any |" in text


def test_a_network_that_wins_everywhere_says_so_and_knowing_the_future_is_no_rival(manifest):
    text = card(
        table(network_1=(0.9, 1.8, 2.8), rule=(1.0, 2.0, 3.0), hindsight=(0.1, 0.1, 0.1)), "network_1", manifest
    )
    assert "It is ahead of the forecast rule" in text
    assert "On no load is it more than 3 % above" in text
